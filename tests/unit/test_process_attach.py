"""One call of `Attach` between a client that misbehaves, or says nothing, and its process."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from sandbox_agent.core.process_plan import Plan
from sandbox_agent.services.process_stream import AttachCall
from sandbox_api.errors import SessionError
from sandbox_api.v1 import process_pb2 as pb
from support.process_sandbox import processes_in
from support.wait import MAX_SECONDS

if TYPE_CHECKING:
    from pathlib import Path


class Context:
    """A stream whose client sends two messages, the second of which breaks the rules, and takes its time to receive."""

    def __init__(self, process_id: str) -> None:
        self.has_read_all = asyncio.Event()
        self.may_write = asyncio.Event()
        self.written: list[object] = []
        self._messages = [pb.AttachRequest(begin=pb.AttachBegin(id=process_id)), pb.AttachRequest()]

    async def read(self) -> pb.AttachRequest:
        """Return the next message."""
        message = self._messages.pop(0)
        if not self._messages:
            self.has_read_all.set()
        return message

    async def write(self, message: object) -> None:
        """Send a message, as soon as that is allowed."""
        await self.may_write.wait()
        self.written.append(message)


def test_failure_does_not_break_into_a_write(tmp_path: Path) -> None:
    """A write that has begun is let finish before the call fails: after half a write no failure could be told."""
    with processes_in(tmp_path) as processes, ThreadPoolExecutor(1) as executor:
        processes.start("p", Plan(argv=(b"sleep", b"1000")), b"").result(MAX_SECONDS)

        async def attach() -> list[object]:
            context = Context("p")
            call = asyncio.ensure_future(AttachCall(context, processes).run(executor))  # type: ignore[arg-type]
            await context.has_read_all.wait()
            for _ in range(5):  # whatever follows from what was read has followed
                await asyncio.sleep(0)
            context.may_write.set()
            with pytest.raises(SessionError):
                await call
            return context.written

        assert len(asyncio.run(attach())) == 1


class QuietContext:
    """A stream whose client sends its beginning and waits."""

    def __init__(self, process_id: str) -> None:
        self.parts: list[str | None] = []
        self.has_beats = asyncio.Event()
        self._messages = [pb.AttachRequest(begin=pb.AttachBegin(id=process_id))]

    async def read(self) -> pb.AttachRequest:
        """Return the beginning, then nothing any more."""
        if not self._messages:
            await asyncio.Event().wait()
        return self._messages.pop()

    async def write(self, message: pb.AttachResponse | bytes) -> None:
        """Note what kind of part it is."""
        data = message if isinstance(message, bytes) else message.SerializeToString()
        self.parts.append(pb.AttachResponse.FromString(data).WhichOneof("part"))
        if self.parts[-2:] == ["beat", "beat"]:
            self.has_beats.set()


def test_silence_is_full_of_beats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client tells a process that prints nothing from a daemon that is gone: every so often it hears something."""
    monkeypatch.setattr("sandbox_agent.services.process_stream.BEAT_SECONDS", 0.01)
    with processes_in(tmp_path) as processes, ThreadPoolExecutor(1) as executor:
        processes.start("p", Plan(argv=(b"sleep", b"1000")), b"").result(MAX_SECONDS)

        async def attach() -> list[str | None]:
            context = QuietContext("p")
            call = asyncio.ensure_future(AttachCall(context, processes).run(executor))  # type: ignore[arg-type]
            await asyncio.wait_for(context.has_beats.wait(), MAX_SECONDS)
            call.cancel()
            await asyncio.wait([call])
            return context.parts

        first, *others = asyncio.run(attach())
    assert first == "input_taken"
    assert set(others) == {"beat"}
