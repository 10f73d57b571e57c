"""What a sandbox has of a kept conversation, told by all four built-in formats about their recorded sessions.

Host, the sandbox of the recording and the other sandbox have workspaces of different names, so every comparison with
the other one is across a relocation.
"""

from __future__ import annotations

import json
import shutil
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import zstandard

from host_client import (
    ConfigurationError,
    ConversationContext,
    LiteralRule,
    OutpostError,
    Redaction,
    SessionError,
    builtin_format,
)
from host_client.stores.content_comparison import compare_contents
from support.conversation import files_below
from support.recorded import DATA
from support.restore_scene import sandbox_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from host_client import ConversationRecord, NativeConversationStore, Sandbox
    from host_client.stores.contract import Comparison

pytestmark = pytest.mark.anyio


@dataclass(frozen=True)
class Case:
    """A recording, and which of its files the CLI adds to.

    Attributes:
        name: `<cli>/<version>/<scenario>`.
        id: The conversation.
        log: A glob of that file.
        state: A glob of a small file beside it that the CLI writes anew; empty: there is none.
    """

    name: str
    id: str
    log: str
    state: str = ""

    @property
    def store(self) -> NativeConversationStore:
        """The format's store."""
        return builtin_format(self.name.partition("/")[0])


CLAUDE = "f1000000-0000-4000-8000-000000000003"
CODEX = "01a22be9-66e2-70d3-92a6-1c9619f25606"
PACKED = "01a22be9-721e-75d2-8bcc-3edc6cbff272"
FORK = "01a22be9-6e94-7931-90f0-7b34fd12f652"
CASES = {
    "claude": Case("claude/2.1.197/subagent", CLAUDE, f"**/{CLAUDE}.jsonl"),
    "codex": Case("codex/0.171.0/multiturn", CODEX, f"**/*{CODEX}.jsonl"),
    "codex compressed": Case("codex/0.171.0/compressed", PACKED, f"**/*{PACKED}.jsonl.zst"),
    "codex fork": Case("codex/0.171.0/fork", FORK, f"**/*{FORK}.jsonl"),
    "copilot": Case(
        "copilot/1.0.102/tool", "aaaaaaaa-0000-4000-8000-000000000002", "**/events.jsonl", "**/workspace.yaml"
    ),
    "kimi": Case("kimi/2.1.0/subagent", "", "**/agents/main/wire.jsonl", "**/session_*/state.json"),
}


class Scene:
    """A host, the sandbox `a` in which a conversation was recorded, and another one, `b`."""

    def __init__(self, case: Case, tmp_path: Path, a: Sandbox, b: Sandbox) -> None:
        told = json.loads((DATA / case.name / "expected.json").read_text())
        self.case, self.store, self.id = case, case.store, case.id or told["session_id"]
        self.host, self.repository, self.a, self.b = tmp_path / "host", tmp_path / "src/repository", a, b
        for folder in (self.host, self.repository):
            folder.mkdir(parents=True)

    def context(self, sandbox: Sandbox) -> ConversationContext:
        """Return the host's context with a sandbox."""
        return ConversationContext(
            sandbox=sandbox, conversation_home=self.host, repository=self.repository, durability="none"
        )

    async def capture(self) -> ConversationRecord:
        """Capture from `a`."""
        return await self.store.capture(self.id, self.context(self.a))

    async def compare(self, record: ConversationRecord, sandbox: Sandbox) -> Comparison:
        """Compare, and make sure that not a file of either side changed by it."""
        watched = (self.host, Path(sandbox.home))
        before = [files_below(one) for one in watched]
        compared = await self.store.compare(record, self.context(sandbox))
        assert [files_below(one) for one in watched] == before
        return compared

    def file(self, sandbox: Sandbox, pattern: str) -> Path:
        """Find a file of the conversation in a sandbox."""
        home = Path(sandbox.home)
        (found,) = (path for path in home.glob(pattern) if self.id in str(path) and ".outpost" not in str(path))
        return found

    def go_on(self, sandbox: Sandbox, said: str) -> None:
        """Add a line to the log, and write the small file beside it anew."""
        path = self.file(sandbox, self.case.log)
        line = json.dumps({"type": "note", "cwd": str(sandbox.root), "text": said}).encode() + b"\n"
        is_packed = path.suffix == ".zst"
        old = (
            zstandard.ZstdDecompressor().decompressobj().decompress(path.read_bytes())
            if is_packed
            else path.read_bytes()
        )
        content = old + (b"" if old.endswith(b"\n") else b"\n") + line
        path.write_bytes(zstandard.ZstdCompressor().compress(content) if is_packed else content)
        if self.case.state.endswith(".yaml"):
            state = self.file(sandbox, self.case.state)
            state.write_text(state.read_text().replace("updated_at: 2026", "updated_at: 2027"))
        elif self.case.state:
            state = self.file(sandbox, self.case.state)
            state.write_text(json.dumps({**json.loads(state.read_text()), "updatedAt": len(said)}))


@asynccontextmanager
async def scene(case: Case, tmp_path: Path) -> AsyncIterator[Scene]:
    """Make the three places, with the recording in `a`."""
    shutil.copytree(DATA / case.name / "home", tmp_path / "a/home")
    other = "b-with-a-longer-name"
    async with sandbox_of(tmp_path / "a", "w") as a, sandbox_of(tmp_path / other, "its workspace") as b:
        yield Scene(case, tmp_path, a, b)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_what_a_sandbox_has_is_told(case: Case, tmp_path: Path) -> None:
    """Absent, same and ahead as one sandbox goes on; behind and diverged when the host's copy goes on, too."""
    async with scene(case, tmp_path) as made:
        record = await made.capture()
        assert await made.compare(record, made.b) == "absent"
        assert await made.compare(record, made.a) == "same"
        await made.store.restore(record, made.context(made.b))
        assert await made.compare(record, made.b) == "same"

        made.go_on(made.a, "in the first")
        assert await made.compare(record, made.a) == "ahead"
        newer = await made.capture()
        assert await made.compare(newer, made.a) == "same"
        assert await made.compare(newer, made.b) == "behind"

        made.go_on(made.b, "in the other")
        assert await made.compare(newer, made.b) == "diverged"


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_one_that_went_on_in_another_workspace_is_ahead(case: Case, tmp_path: Path) -> None:
    """What was relocated and then gone on with begins with all that the host has."""
    async with scene(case, tmp_path) as made:
        record = await made.capture()
        await made.store.restore(record, made.context(made.b))
        made.go_on(made.b, "in the other")
        assert await made.compare(record, made.b) == "ahead"


@pytest.mark.parametrize("name", ["claude", "kimi"])
async def test_what_was_redacted_is_no_difference(name: str, tmp_path: Path) -> None:
    """The rules by which a copy was captured are applied to what it is compared with."""
    async with scene(CASES[name], tmp_path) as made:
        made.go_on(made.a, "the s3cr3t-word")
        rules = Redaction([LiteralRule("word", "s3cr3t-word")])
        context = replace(made.context(made.a), redaction=rules)
        record = await made.store.capture(made.id, context)
        assert record.redactions == {"word": 1}
        assert await made.store.compare(record, context) == "same"
        assert await made.store.compare(record, replace(context, redaction=None)) == "diverged"
        made.go_on(made.a, "more")
        assert await made.store.compare(record, context) == "ahead"


async def test_a_transcript_whose_children_are_gone_is_behind(tmp_path: Path) -> None:
    """The same main transcript without a file that belongs to it is less than what the host has."""
    async with scene(CASES["claude"], tmp_path) as made:
        record = await made.capture()
        await made.store.restore(record, made.context(made.b))
        made.file(made.b, "**/subagents/*.jsonl").unlink()
        assert await made.compare(record, made.b) == "behind"


async def test_a_transcript_that_only_was_begun_is_behind(tmp_path: Path) -> None:
    """An empty file is the beginning of everything."""
    async with scene(CASES["claude"], tmp_path) as made:
        record = await made.capture()
        await made.store.restore(record, made.context(made.b))
        made.file(made.b, made.case.log).write_bytes(b"")
        assert await made.compare(record, made.b) == "behind"


async def test_the_transcript_in_its_place_is_compared(tmp_path: Path) -> None:
    """Of several with the id the one counts that the CLI would look for; without that one it is `ambiguous`."""
    async with scene(CASES["claude"], tmp_path) as made:
        record = await made.capture()
        await made.store.restore(record, made.context(made.b))
        placed = made.file(made.b, made.case.log)
        copies = [placed.parent.with_name(name) / placed.name for name in ("-one", "-two")]
        for copy in copies:
            copy.parent.mkdir()
            copy.write_bytes(b'{"type":"user","cwd":"/other"}\n')
        assert await made.compare(record, made.b) == "same"
        placed.unlink()
        with pytest.raises(SessionError) as caught:
            await made.compare(record, made.b)
        assert caught.value.reason == "ambiguous"
        copies[0].unlink()
        assert await made.compare(record, made.b) == "diverged"


async def test_nothing_of_a_transcript_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Same, ahead and behind are told by digests alone: no byte of the sandbox's file comes to the host."""
    async with scene(CASES["claude"], tmp_path) as made:
        record = await made.capture()
        await made.store.restore(record, made.context(made.b))
        received = counted_reads(made.b, monkeypatch)
        assert await made.compare(record, made.b) == "same"
        made.go_on(made.b, "more")
        assert await made.compare(record, made.b) == "ahead"
        made.go_on(made.a, "the first")
        content = made.file(made.b, made.case.log).read_bytes()
        made.file(made.b, made.case.log).write_bytes(content[: content.rindex(b"\n", 0, -1) + 1])
        assert await made.compare(await made.capture(), made.b) == "behind"
    assert received == []


def counted_reads(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Note every piece of a file that the sandbox sends from now on."""
    received: list[bytes] = []
    read = sandbox.files.read

    async def noting(path: Path, write: Callable[[bytes], object], **options: object) -> object:
        def noted(data: bytes) -> None:
            received.append(data)
            write(data)

        return await read(path, noted, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(sandbox.files, "read", noting)
    return received


@pytest.mark.parametrize("damage", ["a required file is gone", "the hook refuses it"])
async def test_a_session_that_is_not_whole_has_diverged(damage: str, tmp_path: Path) -> None:
    """What cannot be captured is not what the host has, and a restore over it must be asked for."""
    async with scene(CASES["kimi"], tmp_path) as made:
        record = await made.capture()
        await made.store.restore(record, made.context(made.b))
        state = made.file(made.b, made.case.state)
        if damage == "the hook refuses it":
            state.write_text("{")
        else:
            state.unlink()
        assert await made.compare(record, made.b) == "diverged"


async def test_a_users_own_cli_home_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable that leads to the CLI home of this host does not lead a comparison there."""
    own = tmp_path / "own"
    own.mkdir()
    monkeypatch.setenv("KIMI_CODE_HOME", str(own))
    async with scene(CASES["kimi"], tmp_path) as made:
        variables = {"KIMI_CODE_HOME": str(Path(made.a.home) / ".kimi-code")}
        record = await made.store.capture(made.id, replace(made.context(made.a), variables=variables))
        there = replace(made.context(made.b), variables={"KIMI_CODE_HOME": str(Path(made.b.home) / ".kimi-code")})
        await made.store.restore(record, there)
        made.go_on(made.b, "more")
        assert await made.store.compare(record, there) == "ahead"
    assert list(own.iterdir()) == []


@pytest.mark.parametrize("name", ["claude", "copilot"])
async def test_a_record_must_be_of_the_format_and_still_true(name: str, tmp_path: Path) -> None:
    """A record of another format, and one whose file is gone, compare with nothing."""
    async with scene(CASES[name], tmp_path) as made:
        record = await made.capture()
        with pytest.raises(ConfigurationError) as mismatch:
            await made.store.compare(replace(record, format="other"), made.context(made.b))
        assert mismatch.value.reason == "format_mismatch"
        made.go_on(made.a, "more")
        await made.capture()
        if name == "copilot":
            with pytest.raises(SessionError) as stale:
                await made.store.compare(record, made.context(made.a))
            assert stale.value.reason == "digest_mismatch"
        record.path.unlink()
        with pytest.raises(OutpostError) as gone:
            await made.store.compare(record, made.context(made.a))
        assert gone.value.reason == "not_found"


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ([b"ab", b"", b"c"], [b"a", b"bc"], "same"),
        ([], [b""], "same"),
        ([b"ab"], [b"a", b"b", b"c"], "ahead"),
        ([b"abc"], [b"ab"], "behind"),
        ([b"abc"], [b"abd", b"e"], "diverged"),
        ([b"x"], [], "behind"),
    ],
)
def test_contents_are_compared_whatever_their_pieces(ours: list[bytes], theirs: list[bytes], expected: str) -> None:
    """Only the bytes count, not how they are cut."""
    assert compare_contents(ours, theirs) == expected
