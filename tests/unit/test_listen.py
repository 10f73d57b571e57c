"""Where the daemon may listen."""

from __future__ import annotations

import os
import socket
import stat
from typing import TYPE_CHECKING

import pytest

from sandbox_agent.listen import MAX_SOCKET_PATH_BYTES, Address, SocketClaim, read_address
from sandbox_api.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Path of a socket in a folder that does not exist yet."""
    return tmp_path / "run" / "agent.sock"


@pytest.fixture
def bound(path: Path) -> Iterator[socket.socket]:
    """A socket that is bound at `path`."""
    path.parent.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as found:
        found.bind(str(path))
        yield found


def _address(path: Path, *, is_default: bool = False) -> Address:
    return Address(f"unix:{path}", str(path), is_default)


def _refused(address: Address) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught, SocketClaim(address):
        pytest.fail("the claim was granted")
    assert caught.value.reason == "listen"
    return caught.value


@pytest.mark.parametrize(
    ("listen", "target"),
    [
        ("unix:/a/b", "unix:/a/b"),
        ("unix:///a//b/", "unix:/a/b"),
        ("127.0.0.1:0", "127.0.0.1:0"),
        ("127.8.8.8:80", "127.8.8.8:80"),
        ("[::1]:65535", "[::1]:65535"),
    ],
)
def test_addresses(listen: str, target: str) -> None:
    """A socket by its absolute path, and literal loopback addresses, are accepted."""
    assert read_address(listen, {}).target == target


@pytest.mark.parametrize(
    "listen",
    [
        *("0.0.0.0:1", "[::]:1", "192.168.1.1:1", "localhost:1", "example.org:1", "127.0.0.1", "127.0.0.1:", ":1"),
        *("127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1:1x", "127.0.0.1:٣", "vsock:1:2", "::1", "[::ffff:8.8.8.8]:1"),
        *("unix:", "unix:agent.sock", "unix:/a\0b", "unix:/a,b", "unix:/" + "x" * MAX_SOCKET_PATH_BYTES),
    ],
)
def test_other_addresses_are_refused(listen: str) -> None:
    """Anything that others could reach, or that is no address, is `configuration/listen` with a hint."""
    with pytest.raises(ConfigurationError) as caught:
        read_address(listen, {})
    assert caught.value.reason == "listen"
    assert caught.value.hint


def test_network_hint_says_what_is_missing() -> None:
    """Who asks for the network learns that it needs what this version has not."""
    with pytest.raises(ConfigurationError) as caught:
        read_address("0.0.0.0:7000", {})
    assert "TLS and tokens are not available" in caught.value.hint


def test_default_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default lies in a private folder: of the system for root, else of the user's run time, else in /tmp."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert read_address("", {"XDG_RUNTIME_DIR": "/run/user/0"}).socket_path == "/run/sandbox-agent/agent.sock"
    monkeypatch.setattr(os, "geteuid", lambda: 1001)
    assert read_address("", {"XDG_RUNTIME_DIR": "/run/user/7"}).socket_path == "/run/user/7/sandbox-agent/agent.sock"
    monkeypatch.setattr("tempfile.tempdir", "/tmp")
    assert read_address("", {}) == Address(
        "unix:/tmp/sandbox-agent-1001/agent.sock", "/tmp/sandbox-agent-1001/agent.sock", is_default=True
    )


def test_folder_is_made_private(path: Path) -> None:
    """A missing folder is made 0700, and nothing but it is left afterwards."""
    with SocketClaim(_address(path, is_default=True)):
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert [entry.name for entry in path.parent.iterdir()] == ["agent.sock.lock"]
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize("mode", [0o750, 0o701, 0o1777])
def test_default_folder_open_to_others_is_refused(path: Path, mode: int) -> None:
    """A default folder that others can look into may have been made by them."""
    path.parent.mkdir()
    path.parent.chmod(mode)
    _refused(_address(path, is_default=True))


def test_default_folder_of_another_user_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So may one that belongs to somebody else."""
    path.parent.mkdir(mode=0o700)
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1 if path.exists() else 4711)
    _refused(_address(path, is_default=True))


def test_default_folder_that_is_a_link_is_refused(path: Path, tmp_path: Path) -> None:
    """A link leads wherever who made it wants."""
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    path.parent.symlink_to(tmp_path / "elsewhere")
    _refused(_address(path, is_default=True))
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_named_folder_where_anybody_may_replace_is_refused(path: Path) -> None:
    """A folder the operator names may be shared, but not so that anybody can put another socket in place."""
    path.parent.mkdir()
    path.parent.chmod(0o777)
    _refused(_address(path))
    path.parent.chmod(0o1777)
    with SocketClaim(_address(path)):
        assert True


def test_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    """A file in the way is a refusal with the system's reason, not a crash."""
    (tmp_path / "file").write_text("")
    assert "cannot listen" in _refused(_address(tmp_path / "file" / "run" / "agent.sock")).message


def test_live_socket_is_not_stolen(path: Path, bound: socket.socket) -> None:
    """A socket on which somebody answers stays, although nobody holds its lock."""
    bound.listen()
    _refused(_address(path))
    assert stat.S_ISSOCK(path.stat().st_mode)
    assert not path.with_name("agent.sock.lock").exists()


def test_busy_socket_is_not_stolen(path: Path, bound: socket.socket) -> None:
    """A socket whose queue is full belongs to somebody who is busy."""
    bound.listen(0)
    with socket.socket(socket.AF_UNIX) as first, socket.socket(socket.AF_UNIX) as second:
        for client in (first, second):
            client.setblocking(False)
            client.connect_ex(str(path))
        _refused(_address(path))
    assert stat.S_ISSOCK(path.stat().st_mode)


def test_stale_socket_is_replaced(path: Path, bound: socket.socket) -> None:
    """A socket on which nobody answers is removed."""
    bound.close()
    with SocketClaim(_address(path)):
        assert not path.exists()


@pytest.mark.parametrize("kind", ["file", "directory", "link"])
def test_what_is_no_socket_is_kept(path: Path, kind: str) -> None:
    """A file of the user's at the socket's path is never removed."""
    path.parent.mkdir()
    if kind == "file":
        path.write_text("mine")
    elif kind == "directory":
        path.mkdir()
    else:
        path.symlink_to("nowhere")
    _refused(_address(path))
    assert path.is_symlink() or path.exists()


def test_claim_is_exclusive(path: Path) -> None:
    """While one daemon holds a path another does not get it, and does once the first has let go."""
    with SocketClaim(_address(path)):
        _refused(_address(path))
        assert path.with_name("agent.sock.lock").exists()
    with SocketClaim(_address(path)):
        pass


def test_lock_file_that_goes_away_is_made_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who locks a file that its last holder removes at that moment tries again with the one in sight."""
    lock_path = path.with_name("agent.sock.lock")
    removed = []
    flock = __import__("fcntl").flock

    def racing_flock(fd: int, operation: int) -> None:
        if not removed:
            lock_path.unlink()
            removed.append(fd)
        flock(fd, operation)

    monkeypatch.setattr("fcntl.flock", racing_flock)
    with SocketClaim(_address(path)):
        assert removed
        assert lock_path.exists()


def test_lock_file_that_is_a_link_is_refused(path: Path, tmp_path: Path) -> None:
    """A lock file is never opened through a link."""
    path.parent.mkdir()
    path.with_name("agent.sock.lock").symlink_to(tmp_path / "made")
    _refused(_address(path))
    assert not (tmp_path / "made").exists()


def test_lock_file_of_another_daemon_stays(path: Path) -> None:
    """Who lost its lock file ends all the same, and leaves the one that another daemon has made since."""
    with SocketClaim(_address(path)):
        path.with_name("agent.sock.lock").unlink()
    with SocketClaim(_address(path)):
        path.with_name("agent.sock.lock").unlink()
        second = SocketClaim(_address(path))
        second.__enter__()
    assert path.with_name("agent.sock.lock").exists()
    second.__exit__(None, None, None)
    assert list(path.parent.iterdir()) == []


def test_port_needs_no_claim() -> None:
    """For a port there is nothing to lock; the system refuses a second one."""
    with SocketClaim(Address("127.0.0.1:0")):
        pass
