"""Recorded conversations of all four formats that hop from sandbox to sandbox through an archive, and go on in each.

Every workspace has another name, so that each hop relocates: bytes change that are no part of what was said.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import zstandard

from host_client import ConflictError, ConversationContext, builtin_format
from support.archive_hosts import Scene
from support.recorded import DATA

if TYPE_CHECKING:
    from pathlib import Path

    from host_client import ConversationStore

pytestmark = pytest.mark.anyio


@dataclass(frozen=True)
class Case:
    """A recording.

    Attributes:
        name: `<cli>/<version>/<scenario>`.
        log: A glob of the file that the CLI adds to.
        state: A glob of a small file that it writes anew; empty: there is none.
        id: The conversation; empty: the one of the recording.
    """

    name: str
    log: str
    state: str = ""
    id: str = ""

    @property
    def conversation_id(self) -> str:
        """The conversation."""
        told: dict[str, Any] = json.loads((DATA / self.name / "expected.json").read_text())
        return self.id or str(told["session_id"])

    @property
    def store(self) -> ConversationStore:
        """The format's store."""
        return builtin_format(self.name.partition("/")[0])


CASES = {
    "claude": Case("claude/2.1.197/subagent", "{id}.jsonl", id="f1000000-0000-4000-8000-000000000003"),
    "codex": Case("codex/0.171.0/multiturn", "*{id}.jsonl", id="01a22be9-66e2-70d3-92a6-1c9619f25606"),
    "codex compressed": Case("codex/0.171.0/compressed", "*{id}.jsonl.zst", id="01a22be9-721e-75d2-8bcc-3edc6cbff272"),
    "codex fork": Case("codex/0.171.0/fork", "*{id}.jsonl", id="01a22be9-6e94-7931-90f0-7b34fd12f652"),
    "copilot": Case(
        "copilot/1.0.102/tool", "events.jsonl", "workspace.yaml", id="aaaaaaaa-0000-4000-8000-000000000002"
    ),
    "kimi": Case("kimi/2.1.0/subagent", "agents/main/wire.jsonl", "session_*/state.json"),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    """Give every recording in turn."""
    return CASES[request.param]


def go_on(case: Case, home: Path, workspace: Path, said: str) -> Path:
    """Say something: a line more in the log, and another state beside it."""
    path = file(case, home, case.log)
    line = json.dumps({"type": "note", "cwd": str(workspace), "text": said}).encode() + b"\n"
    if path.suffix == ".zst":
        old = zstandard.ZstdDecompressor().decompressobj().decompress(path.read_bytes())
        path.write_bytes(zstandard.ZstdCompressor().compress(old + line))
    else:
        old = path.read_bytes()
        path.write_bytes(old + (b"" if old.endswith(b"\n") else b"\n") + line)
    if case.state:
        state = file(case, home, case.state)
        old_text = state.read_text()
        new_text = old_text.replace('"updatedAt": "2026', '"updatedAt": "2027').replace(
            "updated_at: 2026", "updated_at: 2027"
        )
        state.write_text(new_text if new_text != old_text else old_text + "\n")
    return path


def file(case: Case, home: Path, pattern: str) -> Path:
    """Find a file of the conversation."""
    found = [
        path
        for path in home.glob("**/" + pattern.format(id=case.conversation_id))
        if case.conversation_id in str(path) and ".outpost" not in str(path)
    ]
    assert len(found) == 1, found
    return found[0]


def said_in(case: Case, home: Path) -> bytes:
    """Return what the log holds."""
    path = file(case, home, case.log)
    data = path.read_bytes()
    return zstandard.ZstdDecompressor().decompressobj().decompress(data) if path.suffix == ".zst" else data


async def test_every_hop_is_a_fast_forward(tmp_path: Path, case: Case) -> None:
    """From A to B to C by three hosts: three snapshots, none of them diverged, and C has all that was said."""
    scene = Scene(tmp_path, case.store)
    shutil.copytree(DATA / case.name / "home", scene.home("a"))
    hops = (("a", "one"), ("b", "workspace-two"), ("c", "some/place/three"))
    for name, workspace in hops:
        archive = scene.archive(name)
        async with scene.sandbox(name, workspace) as context:
            if name != "a":
                located = await archive.locate(case.conversation_id, ConversationContext())
                await archive.restore(located, context)
            go_on(case, scene.home(name), tmp_path / name / workspace, f"said in {name}")
            await archive.capture(case.conversation_id, context)
    history = await scene.archive("d").history(case.conversation_id)
    assert [entry.diverged for entry in history] == [False] * 3
    assert [entry.parent for entry in history] == ["", history[0].snapshot_id, history[1].snapshot_id]
    said = said_in(case, scene.home("c"))
    assert all(f"said in {name}".encode() in said for name, _ in hops)


@pytest.mark.parametrize("name", ["claude", "kimi"])
async def test_an_older_state_elsewhere_is_behind(tmp_path: Path, name: str) -> None:
    """A sandbox that was left behind cannot put its state in front of what went on in another workspace."""
    case = CASES[name]
    scene = Scene(tmp_path, case.store)
    shutil.copytree(DATA / case.name / "home", scene.home("a"))
    archive = scene.archive("a")
    async with scene.sandbox("a", "one") as first, scene.sandbox("b", "two") as second:
        record = await archive.capture(case.conversation_id, first)
        await archive.restore(record, second)
        go_on(case, scene.home("b"), tmp_path / "b/two", "said in b")
        await archive.capture(case.conversation_id, second)
        with pytest.raises(ConflictError) as caught:
            await archive.capture(case.conversation_id, first)
        assert caught.value.reason == "behind"
        go_on(case, scene.home("a"), tmp_path / "a/one", "said in a meanwhile")
        with pytest.raises(ConflictError) as caught:
            await archive.capture(case.conversation_id, first)
        assert caught.value.reason == "diverged"
    assert len(await archive.history(case.conversation_id)) == 2
