"""Targets: what each form means, and which texts name no daemon."""

from __future__ import annotations

from pathlib import Path

import pytest

from host_client.errors import ConfigurationError
from host_client.sandbox.target import LocalTarget, PortTarget, SocketTarget, parse_target


@pytest.mark.parametrize(
    ("text", "target", "address"),
    [
        ("unix:/run/agent.sock", SocketTarget(Path("/run/agent.sock")), "unix:/run/agent.sock"),
        ("unix:/a b/100%/ü", SocketTarget(Path("/a b/100%/ü")), "unix:/a%20b/100%25/%C3%BC"),
        ("127.0.0.1:7000", PortTarget("127.0.0.1", 7000), "dns:///127.0.0.1:7000"),
        ("sandbox-1.example:65535", PortTarget("sandbox-1.example", 65535), "dns:///sandbox-1.example:65535"),
        ("[::1]:7000", PortTarget("[::1]", 7000), "dns:///[::1]:7000"),
    ],
)
def test_addresses(text: str, target: SocketTarget | PortTarget, address: str) -> None:
    """Sockets and ports are parsed, printed as they were given, and addressed as gRPC reads them."""
    assert parse_target(text) == target
    assert str(target) == text
    assert target.address == address


def test_relative_socket_is_of_this_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative socket path means the one below the current directory, also after a change of it."""
    monkeypatch.chdir(tmp_path)
    target = parse_target("unix:agent.sock")
    monkeypatch.chdir("/")
    assert target == SocketTarget(tmp_path / "agent.sock")


def test_local_home_is_its_own_workspace(tmp_path: Path) -> None:
    """Without a workspace the home is it."""
    target = parse_target(f"local:{tmp_path}")
    assert target == LocalTarget(tmp_path, tmp_path)
    assert str(target) == f"local:{tmp_path}"


def test_first_comma_separates(tmp_path: Path) -> None:
    """The text is cut at its first comma: a workspace may have commas, a home cannot."""
    workspace = tmp_path / "w,x,y"
    workspace.mkdir()
    target = parse_target(f"local:{tmp_path},{workspace}")
    assert target == LocalTarget(tmp_path, workspace)
    assert str(target) == f"local:{tmp_path},{workspace}"


@pytest.mark.parametrize("text", ["local:{}/missing", "local:{},{}/missing", "local:{}/file", "local:{},{}/file"])
def test_local_directories_must_exist(text: str, tmp_path: Path) -> None:
    """A home or workspace that is missing, or a file, is refused before a daemon is started; the path is named."""
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match=str(tmp_path)) as caught:
        parse_target(text.format(tmp_path, tmp_path))
    assert caught.value.reason == "invalid_target"
    assert ("home" if "," not in text else "workspace") in caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "",
        "unix:",
        "unix:/" + "x" * 107,
        "unix:/a\0b",
        "unix:/a,b",
        "local:",
        "local:,",
        "local:/,",
        "local:,/",
        "7000",
        ":7000",
        "host:",
        "host:0",
        "host:65536",
        "host:٣",
        "host:7000/path",
        "http://host:7000",
        "dns:///host:7000",
        "[::1:7000",
        "a b:7000",
        "host:7000\n",
    ],
)
def test_texts_that_name_no_daemon(text: str) -> None:
    """Anything else is `invalid_target` with a hint, and no control character comes back in the message."""
    with pytest.raises(ConfigurationError) as caught:
        parse_target(text)
    assert caught.value.reason == "invalid_target"
    assert caught.value.hint
    assert caught.value.message.isprintable()
