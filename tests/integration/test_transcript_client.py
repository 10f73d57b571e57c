"""Transcripts of a real daemon through the client: put in place, told who has them open, followed, set aside."""

from __future__ import annotations

import os
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import pytest

from host_client.errors import OutpostError
from host_client.sandbox.sandbox import connect
from sandbox_api.lock import LockSign
from support.daemon import running_daemon

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.daemon import RunningDaemon

pytestmark = pytest.mark.anyio


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[RunningDaemon]:
    """A daemon with an empty home."""
    with running_daemon(tmp_path) as running:
        yield running


async def test_home_is_resolved_by_variable_and_directory(daemon: RunningDaemon) -> None:
    """A variable that is set moves the home; else it is the directory below the agent home, there or not yet."""
    moved = daemon.home / "moved"
    moved.mkdir()
    async with connect(daemon.target) as sandbox:
        home = await sandbox.resolve_home("CLAUDE_CONFIG_DIR", ".claude")
        assert (home.path, home.exists) == (PurePosixPath(daemon.home / ".claude"), False)
        for variables, path in (({"CLAUDE_CONFIG_DIR": str(moved)}, moved), ({"CLAUDE_CONFIG_DIR": ""}, None)):
            home = await sandbox.resolve_home("CLAUDE_CONFIG_DIR", ".claude", variables=variables)
            assert (home.path, home.exists) == (PurePosixPath(path or daemon.home / ".claude"), path is not None)
        assert (await sandbox.resolve_home(None, "")).path == PurePosixPath(daemon.home)


async def test_home_that_is_a_link_is_followed_only_when_asked(daemon: RunningDaemon) -> None:
    """A CLI home that is a link is refused, or resolved when the caller accepts that."""
    (daemon.home / "real").mkdir()
    (daemon.home / ".claude").symlink_to("real")
    async with connect(daemon.target) as sandbox:
        with pytest.raises(OutpostError) as caught:
            await sandbox.resolve_home(None, ".claude")
        assert (caught.value.code, caught.value.reason) == ("session", "root_symlink")
        home = await sandbox.resolve_home(None, ".claude", follow_root_link=True)
    assert (home.path, home.exists) == (PurePosixPath(daemon.home / "real"), True)


async def test_only_a_private_daemon_is_local(daemon: RunningDaemon, tmp_path: Path) -> None:
    """A sandbox knows whether its files are this machine's by how it was connected, not by where its socket is."""
    (tmp_path / "other").mkdir()
    async with connect(daemon.target) as remote, connect(f"local:{tmp_path / 'other'}") as local:
        assert (remote.is_local, local.is_local) == (False, True)


async def test_process_that_has_a_conversation_open_is_told(daemon: RunningDaemon) -> None:
    """A sign with a running process in its name is told by path and process; one of another content is not."""
    home = PurePosixPath(daemon.home / ".claude")
    signs = daemon.home / ".claude" / "sessions"
    signs.mkdir(parents=True)
    (signs / f"{os.getpid()}.json").write_bytes(b'{"sessionId":"S1"}')
    (signs / "notes.txt").write_bytes(b'{"sessionId":"S1"}')
    pattern = r"^(?P<pid>\d+)[.]json$"
    async with connect(daemon.target) as sandbox:
        (holder,) = await sandbox.transcripts.find_holders(home, [LockSign("sessions", pattern, b'"S1"')])
        assert (holder.path, holder.pid) == (home / "sessions" / f"{os.getpid()}.json", os.getpid())
        assert not await sandbox.transcripts.find_holders(home, [LockSign("sessions", pattern, b'"S2"')])
