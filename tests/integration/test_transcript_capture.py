"""The capture of transcript conversations from real daemons: whole, what is new, odd, growing, failing."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import pytest

from host_client.agents.codex import LAYOUT as CODEX
from host_client.errors import LimitError, OutpostError, SessionError
from host_client.sandbox.sandbox import connect
from host_client.sandbox.target import LocalTarget
from host_client.session import transcript_placement
from host_client.session.compression import compressed, decompressed
from host_client.session.redaction import LiteralRule, Redaction
from host_client.session.transcript_stream import TranscriptStream
from host_client.stores import transcript_capture
from host_client.stores.context import ConversationContext
from host_client.stores.layout import Conversation, Related, Skipped
from host_client.stores.transcript import TranscriptConversations
from sandbox_api.limits import Limits
from sandbox_api.lock import LockSign
from support.conversation import files_below
from support.recorded import DATA
from support.transcript_format import ID, IN_BUCKETS, LAYOUT, OLD, WITH_SIDECARS, lines
from support.transcript_text import relocated

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from host_client.sandbox.progress import Progress
    from host_client.stores.contract import ConversationRecord
    from host_client.stores.layout import TranscriptFunctions

pytestmark = pytest.mark.anyio

SESSIONS = ".mycli/sessions"
STATE = f".outpost/conversations/mycli/{ID}.json"


class Scene:
    """A sandbox with a conversation, and a host that captures it.

    Attributes:
        sandbox_home: The agent home.
        source: The main transcript there.
        home: The conversation home of the host.
        repository: The repository of the host.
        copy: The main transcript there.
        context: Of captures.
    """

    def __init__(self, tmp_path: Path, layout: TranscriptFunctions, sandbox: Any) -> None:
        self.store = TranscriptConversations(layout)
        self.sandbox_home = tmp_path / "sandbox"
        self.source = self.sandbox_home / SESSIONS / f"{ID}.jsonl"
        self.home, self.repository = tmp_path / "host", tmp_path / "repo"
        self.copy = self.home / SESSIONS / f"{ID}.jsonl"
        for path in (self.home, self.repository, self.source.parent):
            path.mkdir(parents=True, exist_ok=True)
        self.context = ConversationContext(
            sandbox=sandbox, conversation_home=self.home, repository=self.repository, durability="none"
        )

    async def capture(self, content: bytes | None = None, **context: Any) -> ConversationRecord:
        """Capture, after writing that content; the record must be what locating finds."""
        if content is not None:
            self.source.write_bytes(content)
        before = files_below(self.sandbox_home)
        record = await self.store.capture(ID, replace(self.context, **context))
        assert files_below(self.sandbox_home) == before, "a capture changes nothing in the sandbox"
        located = await self.store.locate(ID, replace(self.context, **context))
        assert (located.digest, located.files_count) == (record.digest, record.files_count)
        assert not list(self.home.rglob(".outpost-session-*")), "nothing staged is left"
        return record

    def append(self, content: bytes) -> None:
        """Let the CLI write."""
        with self.source.open("ab") as file:
            file.write(content)

    def moved(self, content: bytes | None = None) -> bytes:
        """Return what the transcript must be on the host."""
        content = self.source.read_bytes() if content is None else content
        return content.replace(json.dumps(OLD).encode(), json.dumps(str(self.repository)).encode())


@asynccontextmanager
async def scene(tmp_path: Path, layout: TranscriptFunctions = LAYOUT) -> AsyncIterator[Scene]:
    """Serve the sandbox of a scene."""
    (tmp_path / "sandbox").mkdir()
    (tmp_path / "workspace").mkdir()
    async with connect(LocalTarget(tmp_path / "sandbox", tmp_path / "workspace")) as sandbox:
        yield Scene(tmp_path, layout, sandbox)


def reasons(record: ConversationRecord) -> list[str]:
    """Return the reasons of a record's notices."""
    return [notice.reason for notice in record.notices]


def act_once(patch: pytest.MonkeyPatch, action: Callable[[], object]) -> None:
    """Act when a capture has got its first piece of a transcript, in the thread that takes it."""
    real = TranscriptStream.feed
    acted: list[object] = []

    def feed(self: TranscriptStream, data: bytes) -> None:
        real(self, data)
        if not acted:
            acted.append(action())

    patch.setattr(TranscriptStream, "feed", feed)


BIG = lines(count=30_000)
"""More than one of the pieces in which a daemon sends."""
HUGE = lines() + b'{"type":"user","text":"%b"}\n' % (b"x" * 4000) * 8_000
"""More than a daemon reads before its client has taken the first piece."""


async def test_only_what_is_new_travels(tmp_path: Path) -> None:
    """A grown transcript sends and writes its new lines, capture after capture; an unchanged one nothing at all."""
    async with scene(tmp_path) as it:
        first = await it.capture(BIG)
        inode = it.copy.stat().st_ino
        assert (first.received_bytes >= len(BIG), first.unchanged, reasons(first)) == (True, False, [])
        assert it.copy.stat().st_mode & 0o777 == 0o600
        for number in range(3):
            new = lines(count=number + 1)
            it.append(new)
            record = await it.capture()
            assert (record.received_bytes, record.unchanged, reasons(record)) == (len(new), False, [])
            assert it.copy.read_bytes() == it.moved()
        unchanged = await it.capture()
        assert (unchanged.received_bytes, unchanged.unchanged, unchanged.digest) == (0, True, record.digest)
        assert it.copy.stat().st_ino == inode
        (it.home / STATE).unlink()
        whole = await it.capture()
        assert (whole.received_bytes > len(BIG), whole.unchanged, whole.digest) == (True, True, record.digest)


@pytest.mark.parametrize("left_bytes", [0, 1, 30, 10_000])
async def test_killed_between_append_and_state(tmp_path: Path, left_bytes: int) -> None:
    """What a killed capture left of its lines is gone on with: only the new lines travel, and none is there twice."""
    async with scene(tmp_path) as it:
        await it.capture(lines(count=100))
        state, size = (it.home / STATE).read_bytes(), it.copy.stat().st_size
        it.append(lines(count=100))
        await it.capture()
        (it.home / STATE).write_bytes(state)
        os.truncate(it.copy, min(size + left_bytes, it.copy.stat().st_size))
        it.append(lines(count=1))
        record = await it.capture()
        assert (record.received_bytes, reasons(record)) == (len(lines(count=100) + lines(count=1)), [])
        assert it.copy.read_bytes() == it.moved()


async def test_rewritten_source_is_captured_whole(tmp_path: Path) -> None:
    """A transcript that no longer begins with what was taken is captured anew, and the result says so."""
    async with scene(tmp_path) as it:
        await it.capture(lines(count=100))
        record = await it.capture(lines(count=50) + b'{"type":"other"}\n')
        assert reasons(record) == ["full_capture"]
        assert "does not begin with what was captured before" in record.notices[0].message
        assert it.copy.read_bytes() == it.moved()
        assert not (it.home / ".outpost/recovery").exists(), "what a capture left may go"


@pytest.mark.parametrize("known", [True, False])
async def test_what_the_user_went_on_with_is_set_aside(tmp_path: Path, *, known: bool) -> None:
    """A host's copy that is neither ours nor a beginning of the new content is kept, and the result says where."""
    async with scene(tmp_path) as it:
        await it.capture(lines(count=3))
        with it.copy.open("ab") as file:
            file.write(b'{"type":"user","said":"at home"}\n')
        theirs = it.copy.read_bytes()
        if not known:
            (it.home / STATE).unlink()
        it.append(lines(count=2))
        record = await it.capture()
        assert reasons(record) == [*(["full_capture"] if known else []), "replaced_on_host"]
        (aside,) = (it.home / ".outpost/recovery/mycli").glob(f"{ID}-*/{SESSIONS}/{ID}.jsonl")
        assert aside.read_bytes() == theirs
        assert record.notices[-1].path == str(aside)
        assert it.copy.read_bytes() == it.moved()


async def test_other_destination_is_captured_whole(tmp_path: Path) -> None:
    """Lines for one repository are not appended to those of another."""
    async with scene(tmp_path) as it:
        await it.capture(lines())
        other = tmp_path / "elsewhere"
        other.mkdir()
        record = await it.capture(repository=other)
        assert reasons(record) == ["full_capture"]
        assert str(other).encode() in it.copy.read_bytes()


ODD: dict[str, tuple[bytes, list[tuple[str, int | None]]]] = {
    "torn last line": (lines() + b'{"type":"user","cwd":"/o', [("torn_tail", len(lines()))]),
    "last line without a newline": (lines().rstrip(b"\n"), []),
    "NUL bytes in the middle": (lines() + bytes(4096) + b"\n" + lines(), [("nul_bytes", len(lines()))]),
    "NUL bytes at the end": (lines() + bytes(1728), [("torn_tail", len(lines())), ("nul_bytes", len(lines()))]),
    "byte order mark": (b"\xef\xbb\xbf" + lines(), []),
    "invalid UTF-8": (lines() + b'{"type":"user","text":"\xff\xed\xa0\x80"}\n', []),
    "lone surrogate": (lines() + b'{"type":"user","text":"\\ud800"}\n', []),
    "a line of 3 MB": (lines() + b'{"type":"user","text":"%b"}\n' % (b"x" * 3_000_000) + lines(), []),
    "odd spelling": (lines() + b'{ "n" : 1e2 , "type":"user" , "\\u0063wd":"/old" , "s":"\\u002f" }  \n', []),
    "first line is no message": (b'{"type":"summary"}\n' + lines(), []),
    "dangling parents": (lines() + b'{"type":"user","parentUuid":"gone","leafUuid":"gone"}\n', []),
    "blank lines and CRLF": (b"\r\n\n" + lines().replace(b"\n", b"\r\n"), []),
    "line separators": (lines() + '{"type":"user","text":"\u2028"}\n'.encode(), []),
    "no working directory": (b'{"type":"user"}\n', [("no_origin", None)]),
}


@pytest.mark.parametrize("name", ODD)
async def test_odd_transcripts_arrive_byte_for_byte(tmp_path: Path, name: str) -> None:
    """Whatever a transcript has, only values of `cwd` change; what is unusual is told with its place on the host."""
    content, told = ODD[name]
    async with scene(tmp_path) as it:
        record = await it.capture(content)
        expected = it.moved()
        assert it.copy.read_bytes() == expected
        grown = len(it.moved(lines())) - len(lines())
        places = [(reason, None if at is None else at + grown) for reason, at in told]
        assert [(notice.reason, notice.offset) for notice in record.notices] == places
        again = await it.capture()
        assert (again.unchanged, again.notices) == (True, record.notices)
        it.append(b"\n" + lines(count=1))
        await it.capture()
        assert it.copy.read_bytes().startswith(expected)


@pytest.mark.parametrize("content", [b"", b"\n\n", b"garbage\n"])
async def test_transcript_without_a_record_is_refused_unless_allowed(tmp_path: Path, content: bytes) -> None:
    """Nothing said is no success; by explicit choice it is captured as it is."""
    async with scene(tmp_path) as it:
        it.source.write_bytes(content)
        with pytest.raises(SessionError) as caught:
            await it.store.capture(ID, it.context)
        assert caught.value.reason == "empty"
        assert not it.copy.exists()
        await it.capture(allow_empty=True)
        assert it.copy.read_bytes() == content


async def test_growing_transcript_ends_at_the_last_whole_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is appended during the capture, half lines too, is not in it, nor a line that was not whole before."""
    async with scene(tmp_path) as it:
        it.source.write_bytes(HUGE + b'{"type":"user","half":')
        act_once(monkeypatch, lambda: it.append(b'"line"}\n{"another'))
        record = await it.store.capture(ID, it.context)
        assert it.copy.read_bytes() == it.moved(HUGE)
        assert reasons(record) == ["grew"]
        assert (await it.store.locate(ID, it.context)).digest == record.digest
        it.append(b'":1}\n')
        following = await it.capture()
        assert it.copy.read_bytes() == it.moved()
        assert reasons(following) == []
        assert following.received_bytes == len(b'{"type":"user","half":"line"}\n{"another":1}\n')


@pytest.mark.parametrize("retries", [0, 1])
async def test_truncated_transcript_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, retries: int
) -> None:
    """A transcript that is cut while it is read is `changed`, or read again as often as the caller allows."""
    async with scene(tmp_path) as it:
        it.source.write_bytes(HUGE)
        act_once(monkeypatch, lambda: it.source.write_bytes(lines()))
        context = replace(it.context, retries=retries)
        if retries:
            await it.store.capture(ID, context)
            assert it.copy.read_bytes() == it.moved(lines())
        else:
            with pytest.raises(SessionError) as caught:
                await it.store.capture(ID, context)
            assert caught.value.reason == "changed"
            assert not it.copy.exists()


async def test_conversation_in_use_is_captured_up_to_the_last_line(tmp_path: Path) -> None:
    """While the CLI runs, a half line is not taken, and the result names the process; once it has ended it is."""
    layout = replace(LAYOUT, locks=lambda _: [LockSign(".mycli", r"^(?P<pid>\d+)\.lock$")])
    async with scene(tmp_path, layout) as it:
        lock = it.sandbox_home / ".mycli" / f"{os.getpid()}.lock"
        lock.touch()
        record = await it.capture(lines() + b'{"half')
        assert (record.in_use_pid, reasons(record)) == (os.getpid(), ["in_use"])
        assert record.notices[0].path == str(lock)
        assert it.copy.read_bytes() == it.moved(lines())
        lock.unlink()
        record = await it.capture()
        assert (record.in_use_pid, reasons(record)) == (0, ["torn_tail"])
        assert it.copy.read_bytes() == it.moved()


async def test_several_with_one_id_are_refused_with_size_and_time(tmp_path: Path) -> None:
    """Two transcripts of one id are not guessed between; the one of this workspace is taken, and the other named."""
    async with scene(tmp_path, IN_BUCKETS) as it:
        folder = it.sandbox_home / SESSIONS
        for bucket, count in (("one", 10), ("two", 12)):
            (folder / bucket).mkdir()
            (folder / bucket / f"{ID}.jsonl").write_bytes(lines(count=count))
        with pytest.raises(SessionError) as caught:
            await it.store.capture(ID, it.context)
        assert caught.value.reason == "ambiguous"
        for offender, count in zip(caught.value.offenders, (10, 12), strict=True):
            assert offender.problem.startswith(f"{len(lines(count=count))} bytes, changed 20")
        (folder / "two").rename(folder / "workspace")
        record = await it.store.capture(ID, it.context)
        assert record.source == PurePosixPath(folder / "workspace" / f"{ID}.jsonl")
        assert reasons(record) == ["other_copy"]
        assert [item.path for item in record.left_out] == [f"sessions/one/{ID}.jsonl"]


async def test_unknown_conversation_is_told_with_the_place(tmp_path: Path) -> None:
    """Where nothing is, the failure says where was looked, and nothing is made on the host."""
    async with scene(tmp_path) as it:
        with pytest.raises(SessionError) as caught:
            await it.store.capture(ID, it.context)
        assert caught.value.reason == "not_found"
        assert str(it.sandbox_home / SESSIONS) in caught.value.message
        assert list(it.home.iterdir()) == []


def with_companions(*related: Related | Skipped) -> TranscriptFunctions:
    """Return the format with files that belong to each conversation."""

    async def named(conversation: Conversation) -> Sequence[Related | Skipped]:
        return [item for item in related if isinstance(item, Related) or await conversation.files.exists(item.path)]

    return replace(WITH_SIDECARS, related=named)


async def test_companions_go_along_and_one_that_fails_is_told(tmp_path: Path) -> None:
    """Child transcripts are relocated by the main one's origin, other files not; one that is not there is a notice."""
    plain = PurePosixPath(".mycli/results/r.txt")
    missing = PurePosixPath(".mycli/results/gone.txt")
    skipped = PurePosixPath(".mycli/results/x.lock")
    layout = with_companions(Related(plain), Related(missing), Skipped(skipped, "lock of the CLI"))
    async with scene(tmp_path, layout) as it:
        children = it.source.with_suffix("") / "subagents"
        children.mkdir(parents=True)
        for number in range(20):
            (children / f"agent-{number}.jsonl").write_bytes(b'{"cwd":"/first"}\n' + lines(count=number))
        (it.sandbox_home / ".mycli/results").mkdir()
        (it.sandbox_home / plain).write_bytes(b'{"cwd":"/old"}\xff')
        (it.sandbox_home / skipped).touch()
        record = await it.capture(lines())
        assert reasons(record)[:1] == ["companion_failed"]
        assert (record.files_count, [item.path for item in record.left_out]) == (22, [str(skipped)])
        assert (it.home / plain).read_bytes() == b'{"cwd":"/old"}\xff'
        for child in children.iterdir():
            copy = it.copy.with_suffix("") / "subagents" / child.name
            assert copy.read_bytes() == it.moved(child.read_bytes())
        again = await it.capture()
        assert (again.received_bytes, again.unchanged) == (0, True)
        (children / "agent-3.jsonl").write_bytes(b'{"rewritten":1}\n')
        (it.sandbox_home / plain).write_bytes(b"other")
        changed = await it.capture()
        assert "full_capture" in reasons(changed)
        assert (it.home / plain).read_bytes() == b"other"
        assert changed.received_bytes < len(lines()), "the others are not sent again"


async def test_required_companion_fails_the_capture(tmp_path: Path) -> None:
    """A file that the conversation is useless without must come, else nothing is placed."""
    async with scene(tmp_path, with_companions(Related(PurePosixPath(".mycli/x"), required=True))) as it:
        it.source.write_bytes(lines())
        with pytest.raises(OutpostError) as caught:
            await it.store.capture(ID, it.context)
        assert caught.value.reason == "not_found"
        assert not it.copy.exists()


async def test_lines_of_a_shared_file_are_merged(tmp_path: Path) -> None:
    """Of a file that conversations share only the own lines come, and only where the host lacks them."""
    index = PurePosixPath(".mycli/index.jsonl")
    layout = with_companions(Related(index, "lines", key="id", values=frozenset({ID})))
    own, other = [b'{"id":"%b","name":"%d"}\n' % (ID.encode(), number) for number in range(2)], b'{"id":"S2"}\n'
    async with scene(tmp_path, layout) as it:
        (it.sandbox_home / index).write_bytes(own[0] + other + own[1])
        (it.home / ".mycli").mkdir()
        (it.home / index).write_bytes(b'{"id":"host"}\n' + own[1].rstrip())
        record = await it.capture(lines())
        assert (it.home / index).read_bytes() == b'{"id":"host"}\n' + own[1] + own[0]
        assert not record.unchanged
        assert (await it.capture()).unchanged


SECRET = "s3cret-value"  # noqa: S105 - of nothing


async def test_secrets_reach_no_disk_of_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With rules, no file of the host ever has a secret, nor a digest of what had one; hits are counted."""
    plain = PurePosixPath(".mycli/r.json")
    index = PurePosixPath(".mycli/index.jsonl")
    layout = with_companions(Related(plain), Related(index, "lines", key="id", values=frozenset({ID})))
    rules = Redaction((LiteralRule("key", SECRET),))
    seen: list[bytes] = []
    real = transcript_capture._place

    def place(*args: Any) -> Any:
        seen.extend(files_below(tmp_path / "host").values())
        return real(*args)

    monkeypatch.setattr(transcript_capture, "_place", place)
    async with scene(tmp_path, layout) as it:
        (it.sandbox_home / plain).write_bytes(b'{"a":"%b"}' % SECRET.encode())
        (it.sandbox_home / index).write_bytes(b'{"id":"%b","x":"%b"}\n' % (ID.encode(), SECRET.encode()))
        content = lines() + b'{"type":"user","text":"%b"}\n' % SECRET.encode() + SECRET.encode()
        record = await it.capture(content, redaction=rules)
        assert record.redactions == {"key": 4}
        assert it.copy.read_bytes() == it.moved(content).replace(SECRET.encode(), b"[redacted:key]")
        again = await it.capture(redaction=rules)
        assert (again.unchanged, again.redactions) == (True, {"key": 4})
        kept = files_below(it.home)
        state = json.loads(kept[STATE])
        assert all(file["parts"] == [] for file in state["files"].values())
        assert not any(SECRET.encode() in data for data in (*kept.values(), *seen))
        (it.sandbox_home / plain).write_bytes(b"\xff")
        with pytest.raises(SessionError) as caught:
            await it.store.capture(ID, replace(it.context, redaction=rules))
        assert caught.value.reason == "redaction_unsupported"
        await it.capture(redaction=replace(rules, binary="pass"))
        assert (it.home / plain).read_bytes() == b"\xff"
        clear = await it.capture()
        assert it.copy.read_bytes() == it.moved(content)
        assert clear.received_bytes > len(content)


FORK = DATA / "codex/0.171.0/fork"


@asynccontextmanager
async def fork(tmp_path: Path) -> AsyncIterator[tuple[Scene, Path, Path]]:
    """Serve the recorded fork of Codex 0.171.0, and give it with the paths of fork and parent below the home."""
    async with scene(tmp_path, CODEX) as it:
        shutil.copytree(FORK / "home/.codex", it.sandbox_home / ".codex")
        parent, child = sorted((it.sandbox_home / ".codex/sessions").rglob("*.jsonl"))
        yield it, child.relative_to(it.sandbox_home), parent.relative_to(it.sandbox_home)


def base_of(path: Path) -> tuple[int, int]:
    """Return where a fork says that its part of the parent ends: by line, and by byte."""
    told = json.loads(path.read_bytes().partition(b"\n")[0])["payload"]["history_base"]
    return told["end_ordinal_exclusive"], told["end_byte_offset"]


def bytes_before(path: Path, ordinal: int) -> int:
    """Return the size of the lines in front of an ordinal."""
    found = path.read_bytes().splitlines(keepends=True)
    return sum(len(line) for line in found if json.loads(line)["ordinal"] < ordinal)


@pytest.mark.parametrize("is_redacted", [False, True])
async def test_fork_points_to_the_same_line_of_its_parent(tmp_path: Path, *, is_redacted: bool) -> None:
    """Relocation and redaction move the place that a fork names in its parent; the number is what is right there."""
    async with fork(tmp_path) as (it, child, parent):
        conversation_id = child.stem[-36:]
        rules = Redaction((LiteralRule("who", "assistant"),)) if is_redacted else None
        record = await it.store.capture(conversation_id, replace(it.context, redaction=rules))
        ordinal, offset = base_of(it.home / child)
        assert offset == bytes_before(it.home / parent, ordinal)
        assert offset != base_of(it.sandbox_home / child)[1]
        assert (record.files_count, "full_capture" in reasons(record)) == (2, False)
        with (it.sandbox_home / child).open("ab") as file:
            file.write(b'{"type":"event_msg","ordinal":99,"payload":{}}\n')
        again = await it.store.capture(conversation_id, replace(it.context, redaction=rules))
        assert base_of(it.home / child) == (ordinal, offset)
        assert (it.home / child).read_bytes().endswith(b'"ordinal":99,"payload":{}}\n')
        if not is_redacted:
            assert again.received_bytes < 100_000
            assert reasons(again) == []


async def test_fork_of_a_rewritten_parent_is_captured_whole(tmp_path: Path) -> None:
    """When the parent is not what it was, everything is captured anew, so that the number fits again."""
    async with fork(tmp_path) as (it, child, parent):
        conversation_id = child.stem[-36:]
        await it.store.capture(conversation_id, it.context)
        path = it.sandbox_home / parent
        path.write_bytes(path.read_bytes().replace(b'"type":"event_msg"', b'"type": "event_msg"'))
        record = await it.store.capture(conversation_id, it.context)
        assert reasons(record) == ["full_capture"]
        # The fork's own number is another line's now; that line is what it still points at.
        number = base_of(it.sandbox_home / child)[1]
        told = path.read_bytes()
        start = told.rfind(b"\n", 0, number) + 1
        origin = json.loads((FORK / "expected.json").read_text())["recorded_workspace"]
        before = relocated(told[:start], str(it.repository), origin)
        assert base_of(it.home / child)[1] == len(before) + number - start


async def test_fork_of_a_parent_that_was_moved_is_captured_whole(tmp_path: Path) -> None:
    """A parent that was archived since the last capture is found where it is now, and the number fits to it."""
    async with fork(tmp_path) as (it, child, parent):
        conversation_id = child.stem[-36:]
        await it.store.capture(conversation_id, it.context)
        archived = Path(".codex/archived_sessions", parent.name)
        for home in (it.sandbox_home, it.home):
            (home / archived).parent.mkdir()
            (home / parent).rename(home / archived)
        record = await it.store.capture(conversation_id, it.context)
        assert reasons(record) == ["full_capture"]
        ordinal, offset = base_of(it.home / child)
        assert offset == bytes_before(it.home / archived, ordinal)


async def test_fork_of_a_compressed_parent(tmp_path: Path) -> None:
    """Offsets count in the unpacked parent, which is packed again; one in which nothing changes keeps its bytes."""
    async with fork(tmp_path) as (it, child, parent):
        conversation_id = child.stem[-36:]
        plain = it.sandbox_home / parent
        packed = plain.with_suffix(".jsonl.zst")
        packed.write_bytes(b"".join(compressed([plain.read_bytes()])) + b"".join(compressed([b""])))
        plain.unlink()
        await it.store.capture(conversation_id, it.context)
        copy = (it.home / parent).with_suffix(".jsonl.zst")
        unpacked = it.home / "unpacked"
        unpacked.write_bytes(b"".join(decompressed([copy.read_bytes()])))
        ordinal, offset = base_of(it.home / child)
        assert offset == bytes_before(unpacked, ordinal)
        again = await it.store.capture(conversation_id, it.context)
        assert again.unchanged
        workspace = Path(json.loads((FORK / "expected.json").read_text())["recorded_workspace"])
        shutil.rmtree(it.home)
        it.home.mkdir()
        same = await it.store.capture(conversation_id, replace(it.context, repository=workspace))
        assert same.files_count == 2
        assert copy.read_bytes() == packed.read_bytes()


async def test_limits_of_the_caller_hold(tmp_path: Path) -> None:
    """More bytes or files than the caller allows are refused, and nothing is placed."""
    async with scene(tmp_path, with_companions(Related(PurePosixPath(".mycli/x")))) as it:
        it.source.write_bytes(lines())
        (it.sandbox_home / ".mycli/x").write_bytes(b"x" * 100)
        for limits, reason in (
            (Limits(max_bytes=len(lines()) - 1), "max_bytes"),
            (Limits(max_bytes=len(it.moved()) + 99), "max_bytes"),
            (Limits(max_files=1), "max_files"),
        ):
            with pytest.raises(LimitError) as caught:
                await it.store.capture(ID, replace(it.context, limits=limits))
            assert caught.value.reason == reason
        assert not it.copy.exists()


async def test_cancelled_capture_leaves_the_host_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cancel in the middle leaves the copy of before and nothing staged."""
    async with scene(tmp_path) as it:
        await it.capture(lines())
        before = files_below(it.home)
        it.source.write_bytes(HUGE)
        loop = asyncio.get_running_loop()
        capture = asyncio.ensure_future(it.store.capture(ID, it.context))
        act_once(monkeypatch, lambda: loop.call_soon_threadsafe(capture.cancel))
        with pytest.raises(asyncio.CancelledError):
            await capture
        assert files_below(it.home) == before
        assert not list(it.home.glob(".outpost-session-*"))


async def test_failure_while_placing_puts_the_old_files_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the last step fails, files that were in place already go back, and so does what was appended."""
    async with scene(tmp_path, with_companions(Related(PurePosixPath(".mycli/x")))) as it:
        (it.sandbox_home / ".mycli/x").write_bytes(b"old")
        await it.capture(lines())
        before = files_below(it.home)
        (it.sandbox_home / ".mycli/x").write_bytes(b"new")
        it.append(lines())

        def full(*_: object, **__: object) -> None:
            raise LimitError("disk_full", "no space is left")

        with monkeypatch.context() as patch:
            patch.setattr(transcript_capture, "save", full)
            with pytest.raises(LimitError):
                await it.store.capture(ID, it.context)
        assert files_below(it.home) == before
        await it.capture()
        assert it.copy.read_bytes() == it.moved()


async def test_host_that_changes_while_placing_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy that the user goes on with in the very last moment is not appended to."""
    async with scene(tmp_path) as it:
        await it.capture(lines())
        it.append(lines())
        real = transcript_placement.Placement.place

        def place(self: transcript_placement.Placement, placing: transcript_placement.Placing) -> Any:
            with it.copy.open("ab") as file:
                file.write(b"theirs\n")
            return real(self, placing)

        monkeypatch.setattr(transcript_placement.Placement, "place", place)
        with pytest.raises(SessionError) as caught:
            await it.store.capture(ID, it.context)
        assert caught.value.reason == "changed"
        assert it.copy.read_bytes() == it.moved(lines()) + b"theirs\n"


async def test_conversation_that_lies_there_already_is_not_touched(tmp_path: Path) -> None:
    """Capturing this host's own conversation to the place where it lies reads it and changes nothing."""
    async with scene(tmp_path) as it:
        it.source.write_bytes(lines())
        context = replace(it.context, conversation_home=it.sandbox_home)
        record = await it.store.capture(ID, context)
        assert (record.unchanged, record.path, record.received_bytes) == (True, it.source, 0)
        assert it.source.read_bytes() == lines()
        assert (await it.store.locate(ID, context)).digest == record.digest


async def test_progress_grows_and_ends_complete(tmp_path: Path) -> None:
    """Reports never go back, and the last one says that all is done."""
    told: list[Progress] = []
    async with scene(tmp_path) as it:
        await it.capture(BIG, progress=told.append)
        await it.capture(progress=told.append)
    assert [progress.is_complete for progress in told][-1]
    assert {(progress.files_count, progress.bytes_count) for progress in told if progress.is_complete} == {
        (1, len(BIG))
    }


async def test_copy_that_was_written_just_now_is_believed_later(tmp_path: Path) -> None:
    """A file that was right already, but so new that a write might not show, is not believed by its times."""
    async with scene(tmp_path) as it:
        it.copy.parent.mkdir(parents=True)
        it.source.write_bytes(lines())
        it.copy.write_bytes(it.moved())
        assert (await it.capture()).unchanged
        state = json.loads((it.home / STATE).read_bytes())
        assert [file["identity"] for file in state["files"].values()] == [[]]
        os.utime(it.copy, (5, 5))
        assert (await it.capture()).unchanged
        state = json.loads((it.home / STATE).read_bytes())
        assert [file["identity"][1] for file in state["files"].values()] == [it.copy.stat().st_ino]


async def test_parent_that_the_user_went_on_with_is_left_alone(tmp_path: Path) -> None:
    """The parent of a fork is another conversation: where the host's has more, it stays, and the fork fits to it."""
    async with fork(tmp_path) as (it, child, parent):
        conversation_id = child.stem[-36:]
        await it.store.capture(conversation_id, it.context)
        with (it.home / parent).open("ab") as file:
            file.write(b'{"type":"event_msg","ordinal":99,"payload":{}}\n')
        theirs = (it.home / parent).read_bytes()
        for _ in range(2):
            with (it.sandbox_home / child).open("ab") as file:
                file.write(b'{"type":"event_msg","ordinal":98,"payload":{}}\n')
            record = await it.store.capture(conversation_id, it.context)
            assert "went_on" in reasons(record)
            assert (await it.store.locate(conversation_id, it.context)).digest == record.digest
        assert reasons(record) == ["went_on"]
        assert (it.home / parent).read_bytes() == theirs
        assert not (it.home / ".outpost/recovery").exists()
        ordinal, offset = base_of(it.home / child)
        assert offset == bytes_before(it.home / parent, ordinal)
        assert (it.home / child).read_bytes().count(b'"ordinal":98') == 2
