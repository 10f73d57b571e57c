"""A daemon that is killed in the middle of a restore, as a client and the next daemon see it."""

from __future__ import annotations

import asyncio
import random
import re
import time
from typing import TYPE_CHECKING

from host_client import (
    BundleRoot,
    ConversationContext,
    ConversationRecord,
    SessionBundleConversations,
    SessionBundleProfile,
    UnavailableError,
    connect,
)
from support.daemon import running_daemon
from support.restoring import files_of, staged

if TYPE_CHECKING:
    from pathlib import Path

    from support.daemon import RunningDaemon

ID = "S1"
ROUNDS_COUNT = 12
OLD = {"state.json": b"old", "kept": b"k" * 1000}
NEW = {"state.json": b"new", **{f"files/{number:03d}": bytes([number]) * 9000 for number in range(250)}}
STORE = SessionBundleConversations(
    SessionBundleProfile(
        format="demo",
        root=BundleRoot(".demo"),
        sessions="sessions",
        include=re.compile(""),
        required=["state.json"],
        validate=lambda files, id: None if files.text("state.json") else "empty",  # noqa: ARG005, A006
    )
)


def _write(home: Path, files: dict[str, bytes]) -> Path:
    session = home / ".demo/sessions" / ID
    for name, content in files.items():
        path = session / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return session


async def _captured(tmp_path: Path) -> ConversationRecord:
    home = tmp_path / "source"
    _write(home, NEW)
    async with connect(f"local:{home}") as sandbox:
        return await STORE.capture(ID, ConversationContext(sandbox=sandbox, conversation_home=tmp_path))


async def _restore(daemon: RunningDaemon, record: ConversationRecord, kill_after_seconds: float | None) -> bool:
    """Restore, with the daemon killed after a while; return whether the client was told of success."""
    async with connect(daemon.target) as sandbox:
        if kill_after_seconds is not None:
            asyncio.get_running_loop().call_later(kill_after_seconds, daemon.process.kill)
        try:
            await STORE.restore(record, ConversationContext(sandbox=sandbox))
        except UnavailableError:
            return False
    return True


def test_a_killed_restore_leaves_the_old_session_or_the_new_one(tmp_path: Path) -> None:
    """At random moments of a whole restore: after the next start one of both is there, and nothing is staged.

    A client that was told of success finds the new one; any other was told that the daemon is unavailable.
    """
    record = asyncio.run(_captured(tmp_path))
    whole = tmp_path / "whole"
    whole.mkdir()
    with running_daemon(whole) as daemon:
        _write(daemon.home, OLD)
        began = time.monotonic()
        assert asyncio.run(_restore(daemon, record, None))
        usual_seconds = time.monotonic() - began
    moments = random.Random(41)  # noqa: S311 - the same moments every time, as far as time allows
    seen = set()
    for number in range(ROUNDS_COUNT):
        folder = tmp_path / str(number)
        folder.mkdir()
        with running_daemon(folder) as daemon:
            session = _write(daemon.home, OLD)
            told_success = asyncio.run(_restore(daemon, record, moments.uniform(0, 1.1) * usual_seconds))
            if daemon.process.poll() is None:
                daemon.process.kill()
            daemon.process.wait()
        with running_daemon(folder) as daemon:
            assert staged(daemon.home) == []
            left = files_of(session)
            assert left in (OLD, NEW), sorted(left)
            assert not told_success or left == NEW
            seen.add(left == NEW)
            set_aside = [path for path in (daemon.home / ".demo").glob(".outpost-recovery/*") if path.is_dir()]
            assert [files_of(path) for path in set_aside] == [OLD] * (left == NEW)
    assert False in seen, "no kill came before the commit: the test tries nothing"
