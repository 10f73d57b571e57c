"""Captures and restores whose connection is cut: nothing half done is kept, a retry starts from the present state."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from host_client import ConversationContext, UnavailableError, connect
from support.conversation import ID, files_below, make_session, store
from support.daemon import running_daemon
from support.fake_daemon import Exchange, fake_daemon
from support.lie import honest
from support.midway import act_in_capture, act_in_restore

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio

BYTES = random.Random(7)  # noqa: S311 - any bytes
BEFORE, AFTER = {"files/big": BYTES.randbytes(20 << 20)}, {"files/big": BYTES.randbytes(20 << 20)}
NAMES = ["[slug]", "a:b", "-rf", "new\nline", "x" * 255, " spaces ", "dot.", "~", "*", "é", "\x7f", "$(id)", "...", '"']


async def test_a_stream_without_its_commit_is_no_copy(tmp_path: Path) -> None:
    """Closed after the last chunk, before the trailer: exit status not 0, and no file of that name or beside it."""
    lie = honest({b"events.jsonl": b"{}", b"workspace.yaml": b"id: S1\n"})

    async def cut(call: Exchange) -> None:
        await call.receive()
        await call.send(*lie.messages()[:-1])

    async with fake_daemon(BundleService_Capture=cut) as target:
        words = ["capture", target, "copilot", ID, "--home", str(tmp_path), "--json"]
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "host_client.cli",
            *words,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        printed, _ = await process.communicate()
    assert process.returncode == 10
    assert json.loads(printed)["error"]["reason"] == "incomplete"
    assert not files_below(tmp_path)


async def test_a_capture_that_was_cut_starts_again_from_the_present(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What arrived before the cut is not part of the next capture: the session changed meanwhile."""
    tested = store()
    context = ConversationContext(repository=tmp_path, durability="none")
    with running_daemon(tmp_path) as daemon:
        session = make_session(daemon.home / ".mycli", BEFORE)
        async with connect(daemon.target) as sandbox:
            act_in_capture(monkeypatch, daemon.process.kill)
            with pytest.raises(UnavailableError):
                await tested.capture(ID, replace(context, sandbox=sandbox))
        daemon.process.wait(30)
    make_session(session.parents[1], AFTER)
    async with connect(f"local:{session.parents[2]}") as sandbox, connect(f"local:{tmp_path}") as other:
        record = await tested.capture(ID, replace(context, sandbox=sandbox))
        await tested.restore(record, replace(context, sandbox=other))
    placed = files_below(tmp_path / ".mycli/sessions" / ID)
    assert placed.keys() == {"session.json", "files/big"}
    assert placed["files/big"] == AFTER["files/big"]


async def test_a_restore_that_was_cut_starts_again_from_the_present(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What reached the sandbox before the cut is gone; the copy that was captured anew meanwhile is what is placed."""
    tested = store()
    source = tmp_path / "source"
    session = make_session(source / ".mycli", BEFORE)
    context = ConversationContext(repository=tmp_path, durability="none")
    async with connect(f"local:{source}") as sandbox:
        record = await tested.capture(ID, replace(context, sandbox=sandbox))
        with running_daemon(tmp_path) as daemon:
            async with connect(daemon.target) as target:
                act_in_restore(monkeypatch, daemon.process.kill, pieces_count=10)
                with pytest.raises(UnavailableError):
                    await tested.restore(record, replace(context, sandbox=target))
            daemon.process.wait(30)
        make_session(session.parents[1], AFTER)
        record = await tested.capture(ID, replace(context, sandbox=sandbox))
    with running_daemon(tmp_path) as daemon:
        async with connect(daemon.target) as target:
            await tested.restore(record, replace(context, sandbox=target))
        placed = files_below(daemon.home)
    assert sorted(placed) == [f".mycli/sessions/{ID}/files/big", f".mycli/sessions/{ID}/session.json"]
    assert placed[f".mycli/sessions/{ID}/files/big"] == AFTER["files/big"]


async def test_odd_names_make_the_whole_way(tmp_path: Path) -> None:
    """Captured, kept and restored, files and directories with names that shells and terminals fear keep their bytes."""
    tested = store()
    extra = {f"files/{name}/{name}": name.encode() for name in NAMES}
    session = make_session(tmp_path / "a/.mycli", extra)
    (tmp_path / "b").mkdir()
    async with connect(f"local:{tmp_path / 'a'}") as a, connect(f"local:{tmp_path / 'b'}") as b:
        record = await tested.capture(ID, ConversationContext(sandbox=a, repository=tmp_path))
        await tested.restore(record, ConversationContext(sandbox=b, repository=tmp_path))
    placed = files_below(tmp_path / "b/.mycli/sessions" / ID)
    placed.pop("session.json")
    assert placed == extra
    assert files_below(session).keys() == {"session.json", *extra}
