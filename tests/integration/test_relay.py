"""A relay streams: what arrives from the source goes on to every target, each at its own pace, all or nothing."""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from host_client.agents.registry import builtin_format
from host_client.errors import OutpostError
from host_client.sandbox.sandbox import connect
from host_client.session.compression import decompressed
from host_client.stores.context import ConversationContext
from host_client.stores.layout import Reference
from host_client.stores.relay import relay
from host_client.stores.relay_spool import Spool
from host_client.stores.transcript import TranscriptConversations
from sandbox_api.lock import LockSign
from support.conversation import files_below, has_files
from support.daemon import running_daemon
from support.gated_proxy import gated_proxy
from support.recorded import DATA
from support.transcript_format import ID, OLD, WITH_SIDECARS, lines, write_transcript
from support.wait import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from host_client.sandbox.progress import Progress
    from host_client.stores.delivery import DeliveryProgress
    from support.daemon import RunningDaemon

pytestmark = pytest.mark.anyio

STORE = TranscriptConversations(WITH_SIDECARS)
SESSIONS = ".mycli/sessions"
MIB = 1 << 20


def long_transcript(size_bytes: int, cwd: str = OLD) -> bytes:
    """Return a transcript of about that size."""
    line = json.dumps({"type": "user", "cwd": cwd, "text": "x" * 60_000}).encode() + b"\n"
    return line * (size_bytes // len(line))


class Scene:
    """Daemons by the names of their folders."""

    def __init__(self, folder: Path, stack: AsyncExitStack) -> None:
        self.folder = folder
        self._stack = stack

    def daemon(self, name: str) -> RunningDaemon:
        """Start a daemon."""
        place = self.folder / name
        place.mkdir()
        return self._stack.enter_context(running_daemon(place))

    def source(self, content: bytes) -> RunningDaemon:
        """Start a daemon with a conversation."""
        daemon = self.daemon("source")
        write_transcript(daemon.home / SESSIONS, content)
        return daemon


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    """Have daemons for one test."""
    async with AsyncExitStack() as stack:
        yield Scene(tmp_path, stack)


def placed(daemon: RunningDaemon) -> Path:
    """Return where the main transcript belongs."""
    return daemon.home / SESSIONS / f"{ID}.jsonl"


def staged_bytes(daemon: RunningDaemon) -> int:
    """Return how much a target has received and not put in place."""
    return sum(path.stat().st_size for path in daemon.home.glob(".outpost-session-*/**/*.jsonl"))


@pytest.fixture
def streamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every relay fail that captures first."""

    async def refuse(*_: object) -> None:
        raise AssertionError("the relay copied first")

    monkeypatch.setattr(TranscriptConversations, "capture", refuse)


@pytest.mark.usefixtures("streamed")
async def test_targets_receive_before_the_source_has_sent_all(scene: Scene) -> None:
    """While the source is held in the middle all targets have much of the transcript, and none of it in place."""
    content = long_transcript(12 * MIB)
    source, targets = scene.source(content), [scene.daemon(name) for name in "bc"]
    async with gated_proxy(source.target, "from", 8 * MIB) as (address, gate), connect(address) as sandbox:

        async def received() -> bool:
            return all(staged_bytes(target) > 4 * MIB for target in targets)

        async with asyncio.TaskGroup() as group:
            running = group.create_task(relay(sandbox, ID, [target.target for target in targets], STORE))
            await gate.held.wait()
            await until(received, "the first bytes")
            assert not any(placed(target).exists() for target in targets)
            gate.opened.set()
    for target, delivery in zip(targets, running.result().outcomes, strict=True):
        assert delivery.error is None
        assert placed(target).read_bytes() == content.replace(OLD.encode(), str(target.workspace).encode())


@pytest.mark.usefixtures("streamed")
async def test_a_source_that_breaks_leaves_every_target_as_it_was(scene: Scene) -> None:
    """The connection to the source ends near the end: the call fails, and the old conversations are in place."""
    source, targets = scene.source(long_transcript(12 * MIB)), [scene.daemon(name) for name in "bc"]
    for target in targets:
        write_transcript(target.home / SESSIONS, lines("/older"))
    before = [files_below(target.home) for target in targets]
    async with gated_proxy(source.target, "from", 11 * MIB) as (address, gate), connect(address) as sandbox:

        async def break_off() -> None:
            await gate.held.wait()
            gate.cut()

        async with asyncio.TaskGroup() as group:
            group.create_task(break_off())
            with pytest.raises(OutpostError) as caught:
                await relay(sandbox, ID, [target.target for target in targets], STORE)
    assert caught.value.code == "unavailable"

    async def are_as_before() -> bool:
        return all(has_files(target.home, files) for target, files in zip(targets, before, strict=True))

    await until(are_as_before, "the daemons to remove what was staged")


@pytest.mark.usefixtures("streamed")
async def test_slow_dead_and_refusing_targets_are_outcomes_of_their_own(scene: Scene) -> None:
    """One target stalls until it is too far behind, one dies in the middle, one refuses, one is not there."""
    layout = replace(WITH_SIDECARS, locks=lambda _: [LockSign("locks", r"^(?P<pid>\d+)$", b"")])
    source = scene.source(long_transcript(40 * MIB))
    good, slow, dying, busy = (scene.daemon(name) for name in ("good", "slow", "dying", "busy"))
    (busy.home / "locks").mkdir()
    (busy.home / "locks" / str(busy.process.pid)).touch()
    async with (
        gated_proxy(slow.target, "to", 2 * MIB) as (slow_address, _),
        gated_proxy(dying.target, "to", 2 * MIB) as (dying_address, dying_gate),
        connect(source.target) as sandbox,
    ):

        async def die() -> None:
            await dying_gate.held.wait()
            dying_gate.cut()

        targets = [slow_address, good.target, f"unix:{scene.folder}/nobody", dying_address, busy.target]
        async with asyncio.TaskGroup() as group:
            group.create_task(die())
            result = await relay(sandbox, ID, targets, TranscriptConversations(layout), max_spool_bytes=8 * MIB)
    failures = [delivery.error and (delivery.error.code, delivery.error.reason) for delivery in result.outcomes]
    assert failures[:3] == [("limit", "max_spool_bytes"), None, ("unavailable", "unreachable")]
    assert failures[3] is not None
    assert failures[3][0] == "unavailable"
    assert failures[4] == ("conflict", "in_use")
    error = result.outcomes[0].error
    assert error is not None
    assert "--max-spool-bytes" in error.hint
    assert placed(good).stat().st_size > 39 * MIB
    assert not any(placed(target).exists() for target in (slow, dying, busy))


@pytest.mark.usefixtures("streamed")
async def test_a_slow_target_within_the_bound_is_waited_for(scene: Scene) -> None:
    """A target that stalls while the other ends is restored as well once it goes on."""
    source, fast, slow = scene.source(long_transcript(8 * MIB)), scene.daemon("fast"), scene.daemon("slow")
    async with gated_proxy(slow.target, "to", MIB) as (address, gate), connect(source.target) as sandbox:

        async def is_there() -> bool:
            return placed(fast).exists()

        async with asyncio.TaskGroup() as group:
            running = group.create_task(relay(sandbox, ID, [address, fast.target], STORE))
            await until(is_there, "the fast target")
            assert not placed(slow).exists()
            gate.opened.set()
    assert [delivery.error for delivery in running.result().outcomes] == [None, None]
    assert placed(slow).stat().st_size > 7 * MIB


@pytest.mark.usefixtures("streamed")
async def test_the_capture_waits_where_all_targets_are_slow(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The only target is never given up: the source is not read on while it stalls, and then all of it arrives."""
    source, slow = scene.source(long_transcript(40 * MIB)), scene.daemon("slow")
    waiting: list[Spool] = []
    real = Spool.pace

    async def pace(self: Spool) -> None:
        waiting.append(self)
        await real(self)
        waiting.remove(self)

    monkeypatch.setattr(Spool, "pace", pace)
    async with gated_proxy(slow.target, "to", MIB) as (address, gate), connect(source.target) as sandbox:

        async def has_paused() -> bool:
            return gate.held.is_set() and bool(waiting)  # what does not wait is never seen in between

        async with asyncio.TaskGroup() as group:
            running = group.create_task(relay(sandbox, ID, [address], STORE, max_spool_bytes=4 * MIB))
            await until(has_paused, "the capture to wait")
            assert MIB < sum(file.size_bytes for file in waiting[0].files) < 30 * MIB
            gate.opened.set()
    assert [delivery.error for delivery in running.result().outcomes] == [None]


@pytest.mark.usefixtures("streamed")
async def test_what_all_targets_have_read_is_freed(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of the host never holds much more than the bound of a longer transcript."""
    source, targets = scene.source(long_transcript(40 * MIB)), [scene.daemon(name) for name in "bc"]
    monkeypatch.setattr(tempfile, "tempdir", str(scene.folder / "tmp"))
    (scene.folder / "tmp").mkdir()
    most_bytes = 0
    real = Spool.grow

    def grow(self: Spool, *arguments: object) -> None:
        nonlocal most_bytes
        real(self, *arguments)  # type: ignore[arg-type]
        blocks = sum(path.stat().st_blocks for path in (scene.folder / "tmp").rglob("*") if path.is_file())
        most_bytes = max(most_bytes, blocks * 512)

    monkeypatch.setattr(Spool, "grow", grow)
    async with connect(source.target) as sandbox:
        result = await relay(sandbox, ID, [target.target for target in targets], STORE, max_spool_bytes=8 * MIB)
    assert [delivery.error for delivery in result.outcomes] == [None, None]
    assert MIB < most_bytes < 24 * MIB


@pytest.mark.usefixtures("streamed")
async def test_a_cancelled_relay_leaves_nothing(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cancelled in the middle it removes its folder, and the targets have what they had."""
    source, target = scene.source(long_transcript(12 * MIB)), scene.daemon("b")
    (scene.folder / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scene.folder / "tmp"))
    async with gated_proxy(source.target, "from", 8 * MIB) as (address, gate), connect(address) as sandbox:

        async def received() -> bool:
            return staged_bytes(target) > MIB

        running = asyncio.ensure_future(relay(sandbox, ID, [target.target], STORE))
        await gate.held.wait()
        await until(received, "the first bytes")
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert not list((scene.folder / "tmp").glob("outpost-relay-*"))

        async def is_empty() -> bool:
            return has_files(target.home, {})

        await until(is_empty, "the daemon to remove what was staged")


@pytest.mark.usefixtures("streamed")
async def test_more_targets_than_slots_are_served_from_what_is_kept(scene: Scene) -> None:
    """Targets that wait for a slot are restored after the others, however small the spool."""
    source, targets = scene.source(long_transcript(20 * MIB)), [scene.daemon(name) for name in "bcd"]
    async with connect(source.target) as sandbox:
        result = await relay(
            sandbox, ID, [target.target for target in targets], STORE, concurrency_count=1, max_spool_bytes=1
        )
    assert [delivery.error for delivery in result.outcomes] == [None, None, None]
    assert all(placed(target).stat().st_size > 19 * MIB for target in targets)


@pytest.mark.usefixtures("streamed")
async def test_restoring_what_is_there_says_so(scene: Scene) -> None:
    """A second relay changes nothing and tells so; each target's progress was told and ends complete."""
    source, target = scene.source(lines()), scene.daemon("b")
    told: list[tuple[object, Progress]] = []
    all_told: list[DeliveryProgress] = []
    async with connect(source.target) as sandbox:
        for _ in range(2):
            result = await relay(
                sandbox,
                ID,
                [target.target],
                STORE,
                target_progress=lambda *progress: told.append(progress),
                progress=all_told.append,
            )
    assert [delivery.outcome and delivery.outcome.unchanged for delivery in result.outcomes] == [True]
    assert {name for name, _ in told} == {target.target}
    assert told[-1][1].is_complete
    assert [one.ended for one in all_told if one.ended][1:] == list(result.outcomes)
    assert all_told[-1].share == 1.0
    assert placed(target).read_bytes() == lines(str(target.workspace))


_finish = Spool.finish


@asynccontextmanager
async def recorded(scene: Scene, name: str) -> AsyncIterator[tuple[TranscriptConversations, str, RunningDaemon]]:
    """Serve a recording; yield its store, its id and the daemon."""
    source = scene.daemon("source")
    shutil.copytree(DATA / name / "home", source.home, dirs_exist_ok=True, copy_function=shutil.copyfile)
    store = builtin_format(name.partition("/")[0])
    assert isinstance(store, TranscriptConversations)
    yield store, json.loads((DATA / name / "expected.json").read_text())["session_id"], source


@pytest.mark.parametrize(
    ("name", "is_streamed"),
    [
        ("claude/1.0.128/tool", True),
        ("claude/2.1.197/rich", True),
        ("claude/2.1.332/subagent", True),
        ("codex/0.55.0/multiturn", True),
        ("codex/0.171.0/tool", True),
        ("codex/0.171.0/compressed", False),
        ("codex/0.171.0/fork", False),
        ("codex/0.171.0/subagent", False),
    ],
)
async def test_recordings_arrive_as_a_capture_and_a_restore_bring_them(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, *, is_streamed: bool
) -> None:
    """Both ways give the same files, apart from the workspace's name; what can be is streamed."""
    finished: list[object] = []
    monkeypatch.setattr(Spool, "finish", lambda spool, record: finished.append(_finish(spool, record)))
    async with recorded(scene, name) as (store, conversation_id, source):
        relayed, restored = scene.daemon("relayed"), scene.daemon("restore")
        async with connect(source.target) as sandbox, connect(restored.target) as other:
            result = await relay(sandbox, conversation_id, [relayed.target], store)
            context = ConversationContext(conversation_home=tmp_path, sandbox=sandbox)
            record = await store.capture(conversation_id, context)
            outcome = await store.restore(record, replace(context, sandbox=other))
    assert len(finished) == is_streamed
    (delivery,) = result.outcomes
    assert delivery.error is None
    assert delivery.outcome is not None
    assert result.record.files_count == record.files_count
    told = replace(
        delivery.outcome,
        target=outcome.target,
        digest=outcome.digest,
        duration_seconds=outcome.duration_seconds,
        bytes_count=outcome.bytes_count,
        sent_bytes=outcome.sent_bytes,
        relocated=outcome.relocated,
    )
    assert told == outcome
    assert len(delivery.outcome.relocated) == len(outcome.relocated)
    assert _neutral(relayed) == _neutral(restored)


async def test_transcripts_that_refer_to_others_are_copied_first(scene: Scene) -> None:
    """Where one needs another to be whole, also found out late, all arrive as ever."""
    layout = replace(
        WITH_SIDECARS,
        collected_keys=("type",),
        reference=lambda line, path, _: Reference(path, 0, (0, 1)) if b"refers" in line else None,
    )
    source, target = scene.source(lines()), scene.daemon("b")
    child = placed(source).with_suffix("") / "subagents/agent-x.jsonl"
    child.write_bytes(b'{"refers":1,"cwd":"/old"}\n')
    async with connect(source.target) as sandbox:
        with pytest.raises(OutpostError) as caught:
            await relay(sandbox, ID, [target.target], TranscriptConversations(layout))
        assert caught.value.reason == "corrupt"  # it refers to itself, which only a copy finds out
        child.write_bytes(b'{"cwd":"/old"}\n')
        result = await relay(sandbox, ID, [target.target], TranscriptConversations(layout))
    assert [delivery.error for delivery in result.outcomes] == [None]


def _neutral(daemon: RunningDaemon) -> dict[str, bytes]:
    """Return the files of a home, with the names of its folder taken out."""
    folder = str(daemon.home.parent)
    dashed = "".join(char if char.isalnum() else "-" for char in folder)
    return {
        name.replace(dashed, "FOLDER"): _unpacked(name, data).replace(folder.encode(), b"FOLDER")
        for name, data in files_below(daemon.home).items()
    }


def _unpacked(name: str, data: bytes) -> bytes:
    return b"".join(decompressed([data])) if name.endswith(".zst") else data
