"""A daemon that lies in what it answers about transcripts, homes and files: nothing impossible is passed on."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import pytest

from host_client.errors import UnavailableError
from host_client.sandbox.sandbox import Sandbox, connect
from sandbox_api.lock import LockSign
from sandbox_api.v1 import daemon_pb2, file_pb2, payload_pb2, transcript_pb2
from support.fake_daemon import Exchange, fake_daemon
from support.lie import HANG_SECONDS, refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    Script = Callable[[Exchange], Awaitable[None]]

pytestmark = pytest.mark.anyio

HOME = PurePosixPath("/home/agent/.claude")


def entry(**fields: Any) -> transcript_pb2.TranscriptRecoveryEntry:
    """Return an entry of recovery."""
    proper = {"name": "S1-x", "id": "S1", "files": [b"p/S1.jsonl"], "files_count": 1}
    return transcript_pb2.TranscriptRecoveryEntry(**{**proper, **fields})


async def asked(method: str, answers: Sequence[Any], call: Callable[[Sandbox], Awaitable[Any]]) -> Any:
    """Make a call to a daemon that gives these answers."""

    async def script(exchange: Exchange) -> None:
        await exchange.receive()
        await exchange.send(*answers)

    async with (
        asyncio.timeout(HANG_SECONDS),
        fake_daemon(**{method: script}) as target,
        connect(target) as sandbox,
    ):
        return await call(sandbox)


async def list_s1(sandbox: Sandbox) -> list[Any]:
    """List the recovery of S1."""
    return [item async for item in sandbox.transcripts.list_recovery(HOME, "claude", "S1")]


async def undo_s1(sandbox: Sandbox) -> Any:
    """Undo the newest restore of S1."""
    return await sandbox.transcripts.undo_restore(HOME, "claude", "S1")


async def find_holders(sandbox: Sandbox) -> Any:
    """Find holders of any sign."""
    return await sandbox.transcripts.find_holders(HOME, [LockSign("locks", "S1")])


async def prune(sandbox: Sandbox) -> Any:
    """Prune all recovery."""
    return await sandbox.transcripts.prune_recovery(HOME, "claude", keep_count=0)


async def resolve(sandbox: Sandbox) -> Any:
    """Resolve the home of a CLI."""
    return await sandbox.resolve_home("CLAUDE_CONFIG_DIR", ".claude")


async def head(sandbox: Sandbox) -> Any:
    """Read the first 4 bytes of a file."""
    return await sandbox.files.head(HOME / "a", 4)


def read_answers(size: int, content: bytes, **header: Any) -> list[file_pb2.ReadResponse]:
    """Return the answers of a read of a file of that size."""
    trailer = payload_pb2.Trailer(size=len(content), sha256=hashlib.sha256(content).digest())
    return [
        file_pb2.ReadResponse(
            header=file_pb2.ReadHeader(file=file_pb2.FileInfo(**{"path": b"/x", "size": size, **header}))
        ),
        file_pb2.ReadResponse(chunk=payload_pb2.Chunk(data=content)),
        file_pb2.ReadResponse(trailer=trailer),
    ]


def holder(path: bytes) -> transcript_pb2.FindHoldersResponse:
    """Return an answer that names one process."""
    return transcript_pb2.FindHoldersResponse(holders=[transcript_pb2.Holder(path=path, pid=7)])


def undone(**fields: Any) -> transcript_pb2.TranscriptUndoResponse:
    """Return the answer of an undo."""
    return transcript_pb2.TranscriptUndoResponse(**{"recovery": "S1-y", **fields})


RECOVERY, UNDO, HOLDERS = (f"TranscriptService_{name}" for name in ("ListRecovery", "UndoRestore", "FindHolders"))
PRUNE, RESOLVE, READ = "TranscriptService_PruneRecovery", "DaemonService_ResolveHome", "FileService_Read"
LIES: dict[str, tuple[str, Sequence[Any], Callable[[Sandbox], Awaitable[Any]], str]] = {
    "entry of another": (RECOVERY, [entry(id="S2", name="S2-x")], list_s1, "session/protocol"),
    "entry with another's name": (RECOVERY, [entry(name="S2-x")], list_s1, "session/protocol"),
    "entry with an id that is none": (RECOVERY, [entry(id="../S1", name="../S1-x")], list_s1, "session/protocol"),
    "entry with a slash": (RECOVERY, [entry(name="S1-/x")], list_s1, "session/protocol"),
    "entry with a file outside": (RECOVERY, [entry(files=[b"../x"])], list_s1, "session/protocol"),
    "entry with a file twice": (RECOVERY, [entry(files=[b"x", b"x"], files_count=2)], list_s1, "session/protocol"),
    "entry with too many names": (
        RECOVERY,
        [entry(files=[b"%d" % number for number in range(101)], files_count=101)],
        list_s1,
        "session/protocol",
    ),
    "entry with fewer files than named": (RECOVERY, [entry(files_count=0)], list_s1, "session/protocol"),
    "entry of an impossible time": (RECOVERY, [entry(set_aside={"seconds": 1 << 60})], list_s1, "session/protocol"),
    "undo with recovery of another": (UNDO, [undone(recovery="S2-y")], undo_s1, "session/protocol"),
    "undo with a file outside": (UNDO, [undone(restored=[b"/x"])], undo_s1, "session/protocol"),
    "undo with a file in both": (UNDO, [undone(restored=[b"x"], removed=[b"x"])], undo_s1, "session/protocol"),
    "holder without a path": (HOLDERS, [holder(b"")], find_holders, "session/protocol"),
    "holder elsewhere": (HOLDERS, [holder(b"/home/agent/.claude2/x")], find_holders, "session/protocol"),
    "pruned name with a slash": (
        PRUNE,
        [transcript_pb2.TranscriptPruneResponse(removed=["S1-x", "../x"])],
        prune,
        "session/protocol",
    ),
    "home that is relative": (RESOLVE, [daemon_pb2.ResolveHomeResponse(home=b"x")], resolve, "session/protocol"),
    "home with a step up": (RESOLVE, [daemon_pb2.ResolveHomeResponse(home=b"/x/..")], resolve, "session/protocol"),
    "head that is longer": (READ, read_answers(9, b"12345"), head, "limit/max_bytes"),
    "head that is shorter": (READ, read_answers(9, b"123"), head, "session/incomplete"),
}


@pytest.mark.parametrize("case", LIES)
async def test_lie_in_an_answer_is_refused(case: str) -> None:
    """No name, path, number or time that cannot be is passed on."""
    method, answers, call, reason = LIES[case]
    assert await refusal(asked(method, answers, call)) == reason


async def test_honest_answers_are_told() -> None:
    """The fake daemon of these tests is believed when it does not lie."""
    (item,) = await asked(RECOVERY, [entry(files_count=200)], list_s1)
    assert (item.name, item.conversation_id, item.files) == ("S1-x", "S1", (PurePosixPath("p/S1.jsonl"),))
    assert item.files_count == 200
    done = await asked(UNDO, [undone(restored=[b"a"], removed=[b"b"])], undo_s1)
    assert (done.recovery, done.restored, done.removed) == ("S1-y", (PurePosixPath("a"),), (PurePosixPath("b"),))
    (held,) = await asked(HOLDERS, [holder(b"/home/agent/.claude/x")], find_holders)
    assert (held.path, held.pid) == (HOME / "x", 7)
    assert await asked(PRUNE, [transcript_pb2.TranscriptPruneResponse(removed=["S1-x"])], prune) == ("S1-x",)
    home = await asked(RESOLVE, [daemon_pb2.ResolveHomeResponse(home=b"/h/.claude", exists=True)], resolve)
    assert (home.path, home.exists) == (PurePosixPath("/h/.claude"), True)
    assert await asked(READ, read_answers(9, b"1234"), head) == b"1234"
    assert await asked(READ, read_answers(3, b"123"), head) == b"123"


CALLS: dict[str, Callable[[Sandbox], Awaitable[Any]]] = {
    "restore": lambda sandbox: sandbox.transcripts.restore(HOME, "claude", "S1", []),
    "follow": lambda sandbox: anext(sandbox.transcripts.follow(HOME, held=[], patterns=[])),
    "find_holders": find_holders,
    "list_recovery": list_s1,
    "undo_restore": undo_s1,
    "prune_recovery": prune,
    "resolve_home": resolve,
}


@pytest.mark.parametrize("call", CALLS)
async def test_old_daemon_is_told_to_be_updated(call: str) -> None:
    """A daemon without these calls is `unsupported`, and the hint says what to do."""
    async with asyncio.timeout(HANG_SECONDS), fake_daemon() as target, connect(target) as sandbox:
        with pytest.raises(UnavailableError) as caught:
            await CALLS[call](sandbox)
    assert caught.value.reason == "unsupported"
    assert "update" in caught.value.hint


@pytest.mark.parametrize("conversation_id", ["../S1", "", "a/b"])
async def test_id_that_is_none_is_not_asked_for(conversation_id: str) -> None:
    """An id that breaks the rule is refused before anything is sent."""

    async def script(_: Exchange) -> None:
        pytest.fail("the daemon was asked")

    scripts = {"TranscriptService_Restore": script, "TranscriptService_UndoRestore": script}
    async with fake_daemon(**scripts) as target, connect(target) as sandbox:
        calls = (
            sandbox.transcripts.restore(HOME, "claude", conversation_id, []),
            sandbox.transcripts.undo_restore(HOME, "claude", conversation_id),
        )
        for call in calls:
            assert await refusal(call) == "configuration/invalid_id"
