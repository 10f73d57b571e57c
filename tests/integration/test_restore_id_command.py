"""`--restore-id`: the same command again goes on where a broken connection left it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from support.cutting_proxy import cutting_proxy
from support.daemon import running_daemon

pytestmark = pytest.mark.anyio

RECORDED = Path(__file__).parents[1] / "data/copilot/1.0.102/tool"
LARGE_BYTES = 6 << 20
CUT_BYTES = 3 << 20


async def _outpost(*arguments: str) -> tuple[int, dict[str, object]]:
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "host_client.cli",
        *arguments,
        "--json",
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
    )
    told, _ = await child.communicate()
    return child.returncode or 0, json.loads(told)


async def test_the_same_command_goes_on(tmp_path: Path) -> None:
    """The first is cut in the middle and says so; the second sends the rest, and tells what was there."""
    source, repository = tmp_path / "source", tmp_path / "repository"
    shutil.copytree(RECORDED / "home", source)
    repository.mkdir()
    session_id = json.loads((RECORDED / "expected.json").read_text())["session_id"]
    (events,) = source.rglob("events.jsonl")
    with events.open("a") as file:
        file.write(json.dumps({"type": "x", "data": os.urandom(LARGE_BYTES // 2).hex()}) + "\n")
    keep = ("copilot", session_id, "--repository", str(repository))
    status, _ = await _outpost("capture", f"local:{source},{repository}", *keep)
    assert status == 0
    with running_daemon(tmp_path) as daemon:
        async with cutting_proxy(daemon.target, [CUT_BYTES]) as (target, _):
            status, broken = await _outpost("restore", target, *keep, "--restore-id", "mine")
            assert status != 0
            assert broken["error"]["code"] == "unavailable"
            status, restored = await _outpost("restore", target, *keep, "--restore-id", "mine")
    assert status == 0
    assert restored["resumed_bytes"] > CUT_BYTES // 4
    assert restored["sent_bytes"] < LARGE_BYTES


async def test_an_id_that_is_none_is_refused(tmp_path: Path) -> None:
    """Before anything is sent."""
    home = tmp_path / "home"
    home.mkdir()
    status, told = await _outpost("restore", f"local:{home}", "copilot", "x", "--restore-id", "not/one")
    assert status != 0
    assert told["error"]["reason"] == "invalid_id"
