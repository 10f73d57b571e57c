"""Recorded conversations of Claude Code and Codex, carried from one daemon to another and back.

What must arrive is worked out here from the recordings alone: every recorded transcript is compact JSON, so that its
working directory stands in it as `"cwd":"/home/dev/demo-app"`, and with escaped quotes where a text mentions it.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
import zstandard

from host_client import ConversationContext, builtin_format, connect
from host_client.agents.claude import project_key
from support.recorded import DATA

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from host_client import ConversationRecord, RestoreOutcome

RECORDED = "/home/dev/demo-app"
RECORDED_KEY = "-home-dev-demo-app"
HOMES = {"claude": ".claude", "codex": ".codex"}


@dataclass(frozen=True)
class Case:
    """A recording, which of its conversations is carried, and what is known of it.

    Attributes:
        name: `<cli>/<version>/<scenario>`.
        id: The conversation.
        changed: How many values of `cwd` are its working directory, by the end of the name of the file.
        stays: Ends of the paths of recorded files that do not belong to it.
    """

    name: str
    id: str
    changed: Mapping[str, int]
    stays: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}/{self.id[-4:]}"

    @property
    def cli(self) -> str:
        """The format."""
        return self.name.partition("/")[0]


CLAUDE_8, CLAUDE_FORK = "f1000000-0000-4000-8000-000000000008", "96416047-f755-4762-ba2d-f4b0a9d2e03b"
CODEX_PARENT, CODEX_FORK = "01a22be9-6bd0-74b1-8e68-8ec8c11634b0", "01a22be9-6e94-7931-90f0-7b34fd12f652"
CODEX_AGENT, CODEX_CHILD = "01a22be9-638d-7433-b605-0676e08a5c36", "01a22be9-6439-7263-8fe0-27a995d68ea7"
CASES = [
    Case(
        "claude/1.0.128/tool", "f1000000-0000-4000-8000-000000000007", {"f1000000-0000-4000-8000-000000000007.jsonl": 5}
    ),
    Case(
        "claude/2.1.197/compacted",
        "f1000000-0000-4000-8000-000000000006",
        {"f1000000-0000-4000-8000-000000000006.jsonl": 20},
    ),
    Case(
        "claude/2.1.197/multiturn",
        "f1000000-0000-4000-8000-000000000004",
        {"f1000000-0000-4000-8000-000000000004.jsonl": 12},
    ),
    Case(
        "claude/2.1.197/rich",
        "f1000000-0000-4000-8000-000000000005",
        {"f1000000-0000-4000-8000-000000000005.jsonl": 21},
        ("/.lock",),
    ),
    Case(
        "claude/2.1.197/simple",
        "f1000000-0000-4000-8000-000000000001",
        {"f1000000-0000-4000-8000-000000000001.jsonl": 4},
    ),
    Case(
        "claude/2.1.197/subagent",
        "f1000000-0000-4000-8000-000000000003",
        {"f1000000-0000-4000-8000-000000000003.jsonl": 7, "agent-aeeb973f3bbdbc4f9.jsonl": 6},
    ),
    Case(
        "claude/2.1.197/tool", "f1000000-0000-4000-8000-000000000002", {"f1000000-0000-4000-8000-000000000002.jsonl": 7}
    ),
    Case("claude/2.1.332/fork", CLAUDE_FORK, {CLAUDE_FORK + ".jsonl": 19}, (CLAUDE_8 + ".jsonl",)),
    Case("claude/2.1.332/fork", CLAUDE_8, {CLAUDE_8 + ".jsonl": 15}, (CLAUDE_FORK + ".jsonl",)),
    Case(
        "claude/2.1.332/interactive",
        "18c28e31-7e6a-4763-9f5a-b13ec1004a8c",
        {"18c28e31-7e6a-4763-9f5a-b13ec1004a8c.jsonl": 23},
        ("history.jsonl",),
    ),
    Case(
        "claude/2.1.332/multiturn",
        "f1000000-0000-4000-8000-000000000004",
        {"f1000000-0000-4000-8000-000000000004.jsonl": 21},
    ),
    Case(
        "claude/2.1.332/subagent",
        "f1000000-0000-4000-8000-000000000003",
        {"f1000000-0000-4000-8000-000000000003.jsonl": 19, "agent-a8a6b92630dc5fb37.jsonl": 16},
    ),
    Case("codex/0.128.0/multiturn", "01a22bea-10bc-7331-acd5-8745c75110c9", {"8745c75110c9.jsonl": 4}),
    Case("codex/0.171.0/compressed", "01a22be9-721e-75d2-8bcc-3edc6cbff272", {"6cbff272.jsonl.zst": 4}),
    Case("codex/0.171.0/fork", CODEX_FORK, {CODEX_PARENT + ".jsonl": 6, CODEX_FORK + ".jsonl": 6}),
    Case("codex/0.171.0/fork", CODEX_PARENT, {CODEX_PARENT + ".jsonl": 6}, (CODEX_FORK + ".jsonl",)),
    Case(
        "codex/0.171.0/interactive",
        "01a22be9-c581-7b32-b376-eca45d396a13",
        {"eca45d396a13.jsonl": 6},
        ("history.jsonl",),
    ),
    Case("codex/0.171.0/multiturn", "01a22be9-66e2-70d3-92a6-1c9619f25606", {"1c9619f25606.jsonl": 8}),
    Case("codex/0.171.0/simple", "01a22be9-5f42-7292-adca-d8b056614c78", {"d8b056614c78.jsonl": 4}),
    Case("codex/0.171.0/subagent", CODEX_AGENT, {CODEX_AGENT + ".jsonl": 4, CODEX_CHILD + ".jsonl": 4}),
    Case("codex/0.171.0/subagent", CODEX_CHILD, {CODEX_AGENT + ".jsonl": 4, CODEX_CHILD + ".jsonl": 4}),
    Case("codex/0.171.0/tool", "01a22be9-613c-7661-9f95-bd377fa86db8", {"bd377fa86db8.jsonl": 4}),
    Case("codex/0.55.0/multiturn", "01a22bea-15cb-72d0-bedf-827f9b1f747a", {"827f9b1f747a.jsonl": 5}),
]


def relocated(content: bytes, old: str, new: str) -> bytes:
    """Change the working directory, and nothing else."""
    return content.replace(f'"cwd":"{old}"'.encode(), f'"cwd":"{new}"'.encode())


def read_home(home: Path) -> dict[str, bytes]:
    """Read every file below a CLI home, compressed ones unpacked."""
    found = {}
    for path in sorted(home.rglob("*")):
        if path.is_file():
            content = path.read_bytes()
            if path.suffix == ".zst":
                content = zstandard.ZstdDecompressor().decompressobj().decompress(content)
            found[str(path.relative_to(home))] = content
    return found


def expected_home(case: Case, new: str) -> dict[str, bytes]:
    """Work out what a CLI home holds that knows this conversation alone, in another workspace."""
    files = {
        path.replace(RECORDED_KEY, project_key(new)): relocated(content, RECORDED, new)
        if re.search(r"\.jsonl(\.zst)?$", path)
        else content
        for path, content in read_home(DATA / case.name / "home" / HOMES[case.cli]).items()
        if not path.endswith(case.stays or ("\0",))
    }
    # A fork notes how long its parent's file was; in these recordings nothing was said in the parent since.
    length = sum(len(content) for path, content in files.items() if CODEX_PARENT in path)
    return {
        path: re.sub(
            rb'("thread_id":"%b","end_ordinal_exclusive":24,"end_byte_offset":)\d+' % CODEX_PARENT.encode(),
            lambda found: found[1] + str(length).encode(),
            content,
        )
        for path, content in files.items()
    }


@dataclass(frozen=True)
class Site:
    """One place on the way of a conversation: a home, and a workspace or repository."""

    home: Path
    workspace: Path

    @classmethod
    def make(cls, folder: Path, workspace: str) -> Site:
        """Make both folders."""
        (folder / "home").mkdir(parents=True)
        (folder / workspace).mkdir(parents=True)
        return cls(folder / "home", folder / workspace)

    @property
    def target(self) -> str:
        """What to connect to."""
        return f"local:{self.home},{self.workspace}"


async def carry(case: Case, source: Site, host: Site, target: Site) -> tuple[ConversationRecord, RestoreOutcome]:
    """Capture from one sandbox to the host and restore to another."""
    store = builtin_format(case.cli)
    async with connect(source.target) as a, connect(target.target) as b:
        context = ConversationContext(sandbox=a, conversation_home=host.home, repository=host.workspace)
        record = await store.capture(case.id, context)
        restoring = ConversationContext(sandbox=b, conversation_home=host.home, repository=host.workspace)
        return record, await store.restore(record, restoring)


@pytest.mark.anyio
@pytest.mark.parametrize("case", CASES, ids=str)
async def test_a_recorded_conversation_arrives(case: Case, tmp_path: Path) -> None:
    """Exactly its files arrive, and exactly its working directory (and a fork's offset) differs in them."""
    a, host = Site.make(tmp_path / "a", "w"), Site.make(tmp_path / "host", "src/repository.git")
    b = Site.make(tmp_path / "b", "a much longer workspace_name/проект 😀/than/before")
    home = HOMES[case.cli]
    shutil.copytree(DATA / case.name / "home", a.home, dirs_exist_ok=True)
    before = read_home(a.home)
    record, outcome = await carry(case, a, host, b)

    for site in (host, b):
        found = read_home(site.home / home)
        assert found == expected_home(case, str(site.workspace))
        counts = {path: content.count(f'"cwd":"{site.workspace}"'.encode()) for path, content in found.items()}
        for end, count in case.changed.items():
            assert [counts[path] for path in counts if path.endswith(end)] == [count]
        assert sum(counts.values()) == sum(case.changed.values())
    assert read_home(a.home) == before, "a capture changes nothing in the sandbox"
    assert record.files_count == outcome.files_count == len(read_home(b.home / home))
    assert case.id in outcome.target.name
    assert not outcome.unchanged
    assert not outcome.recovery


@pytest.mark.anyio
@pytest.mark.parametrize("case", CASES, ids=str)
async def test_a_recorded_conversation_comes_back_as_it_was(case: Case, tmp_path: Path) -> None:
    """There and back again, through workspaces with names of other lengths, gives the recorded bytes."""
    workspace = tmp_path / "a" / "w"
    host, back = Site.make(tmp_path / "host", "src/repository"), Site.make(tmp_path / "back", "x")
    a, b = Site.make(tmp_path / "a", "w"), Site.make(tmp_path / "b", "another/workspace/with/a/longer/name")
    home = a.home / HOMES[case.cli]
    for path, content in expected_home(case, str(workspace)).items():
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        packed = zstandard.ZstdCompressor().compress(content) if path.endswith(".zst") else content
        (home / path).write_bytes(packed)
    before = read_home(home)
    await carry(case, a, host, b)
    record, outcome = await carry(case, b, back, a)
    # What is compressed again need not be the same bytes before it is unpacked, and then is set aside.
    assert outcome.unchanged or record.path.suffix == ".zst"
    if outcome.recovery:
        shutil.rmtree(home / ".outpost-recovery")
    assert read_home(home) == before
    assert read_home(home) != read_home(b.home / HOMES[case.cli])
