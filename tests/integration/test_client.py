"""Connecting to daemons: which targets reach one, and what is told when none is there."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path, PurePosixPath

import pytest

from host_client.errors import (
    UnavailableError,
)
from host_client.sandbox.place import Place
from host_client.sandbox.sandbox import connect
from host_client.sandbox.target import LocalTarget
from support.bundle_end import PROFILE
from support.daemon import running_daemon

pytestmark = pytest.mark.anyio

PLACE = Place(PROFILE, "S1")
CONTENTS = {b"a": b"first", b"b/c": b"second" * 500_000, b"b/empty": b""}


async def test_socket_and_port_reach_the_same_daemon(tmp_path: Path) -> None:
    """Both forms of a target serve; info tells home and workspace."""
    with running_daemon(tmp_path, "--listen", "127.0.0.1:0") as daemon:
        async with connect(daemon.target) as sandbox:
            info = await sandbox.info()
            assert (sandbox.home, sandbox.root) == (PurePosixPath(daemon.home), PurePosixPath(daemon.workspace))
            assert (info.uid, info.gid) == (os.getuid(), os.getgid())
            assert "bundle.capture.held" in info.capabilities


async def test_socket_path_may_have_any_characters(tmp_path: Path) -> None:
    """Spaces, percent signs and the like in the path of a socket are no part of an address's syntax."""
    with running_daemon(tmp_path) as daemon:
        socket_path = Path(daemon.target.removeprefix("unix:"))
        (tmp_path / "a b?%41#ü").symlink_to(socket_path.parent)
        async with connect(f"unix:{tmp_path}/a b?%41#ü/{socket_path.name}") as sandbox:
            assert sandbox.home == PurePosixPath(daemon.home)


@pytest.mark.parametrize("target", ["unix:/nowhere/agent.sock", "127.0.0.1:1"])
async def test_nobody_there_is_told_at_once(target: str) -> None:
    """A target where nobody listens is `unavailable`/`unreachable` and named."""
    with pytest.raises(UnavailableError, match=target) as caught:
        async with asyncio.timeout(9), connect(target):
            pass
    assert caught.value.reason == "unreachable"
    assert "sandbox-agent serve" in caught.value.hint


async def test_listener_that_never_answers_is_unreachable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Something that accepts connections and says nothing cannot hold a caller up."""
    monkeypatch.setattr("host_client.sandbox.sandbox.CONNECT_SECONDS", 0.3)
    socket_path = tmp_path / "mute"
    writers: list[asyncio.StreamWriter] = []
    server = await asyncio.start_unix_server(lambda _, writer: writers.append(writer), socket_path)
    async with server:
        with pytest.raises(UnavailableError, match="mute") as caught:
            async with connect(f"unix:{socket_path}"):
                pass
        for writer in writers:
            writer.close()
            await writer.wait_closed()
    assert caught.value.reason == "unreachable"


async def test_proxy_of_the_environment_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon on a port of this host is reached directly whatever proxy variables say."""
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with running_daemon(tmp_path, "--listen", "127.0.0.1:0") as daemon:
        async with connect(daemon.target) as sandbox:
            await sandbox.info()


async def test_error_of_the_callers_own_passes_unchanged(tmp_path: Path) -> None:
    """What a caller raises inside the connection comes out as it is, and the daemon is ended."""
    with pytest.raises(ZeroDivisionError):
        async with connect(LocalTarget(tmp_path, tmp_path)):
            raise ZeroDivisionError
