"""A process from the client's side, against a daemon that says what a test writes down."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import grpc
import pytest

from host_client.errors import ConfigurationError, DeadlineError, ProcessError, UnavailableError
from host_client.sandbox.process_exit import Exit, Output
from host_client.sandbox.sandbox import connect
from sandbox_api.v1 import process_pb2
from support.fake_daemon import Exchange, fake_daemon, info
from support.fake_process import (
    collected,
    ended,
    failing,
    in_turn,
    saying,
    served,
    stderr,
    stdout,
    taken,
    told_end,
)

pytestmark = pytest.mark.anyio


async def test_output_comes_in_its_order_and_ends_with_the_process() -> None:
    """Pieces of both streams are passed on as they come; after them the end is known."""
    attach = saying(taken(), stdout(0, b"ab"), stderr(0, b"x"), stdout(2, b"c"), told_end(3, stderr_bytes=1, status=3))
    async with fake_daemon(**served(attach)) as target, connect(target) as sandbox:
        async with sandbox.run(["p"]) as process:
            pieces = [item async for item in process.output()]
            assert process.exit is not None
            assert process.pid == 77
        assert pieces == [Output("stdout", 0, b"ab"), Output("stderr", 0, b"x"), Output("stdout", 2, b"c")]
        assert (process.exit.status, process.exit.shell_status, process.exit.ok) == (3, 3, False)


async def test_an_awaited_run_has_all_output() -> None:
    """Both streams as a whole, the end, and what `check` makes of a bad one; never an argument."""
    attach = saying(
        taken(), stdout(0, b"ab"), stderr(0, b"why"), stdout(2, b"c"), told_end(3, stderr_bytes=3, status=3)
    )
    async with fake_daemon(**served(attach)) as target, connect(target) as sandbox:
        done = await sandbox.run(["/bin/p", "secret"])
    assert (done.stdout, done.stderr, done.ok) == (b"abc", b"why", False)
    with pytest.raises(ProcessError) as caught:
        done.check()
    assert (caught.value.reason, caught.value.message) == ("failed", "p ended with status 3")
    assert caught.value.facts == {"status": "3", "signal": "0", "cause": "itself", "stderr": "why"}


async def test_what_is_asked_for_is_what_was_meant() -> None:
    """Variables of the sandbox are weaker than those of the run; an awaited run is bounded."""
    asked = []

    async def start(call: Exchange) -> None:
        asked.append(process_pb2.StartProcessRequest.FromString(await call.receive() or b""))
        await call.send(process_pb2.StartProcessResponse(pid=1))

    attach = saying(taken(), told_end())
    async with (
        fake_daemon(**served(attach, Start=start)) as target,
        connect(target, variables={"A": "1", "B": "1"}) as sandbox,
    ):
        assert sandbox.variables == {"A": "1", "B": "1"}
        await sandbox.run(["p"], variables={"B": "2"}, idle_seconds=3)
        async with sandbox.run(["p"], process_id="mine"):
            pass
    first, second = asked
    assert {item.name: item.value for item in first.variables} == {b"A": b"1", b"B": b"2"}
    assert (first.max_output_bytes, first.idle_seconds, first.grace_seconds) == (16 << 20, 3.0, 5.0)
    assert (second.max_output_bytes, second.id) == (0, "mine")


async def test_a_broken_connection_is_taken_up_where_it_was() -> None:
    """Each call begins with what is held; nothing comes twice."""
    begins = []

    def from_here(*messages: process_pb2.AttachResponse, breaks: bool) -> object:
        async def script(call: Exchange) -> None:
            begins.append(process_pb2.AttachRequest.FromString(await call.receive() or b"").begin)
            await call.send(*messages)
            if breaks:
                await call.fail(grpc.StatusCode.UNAVAILABLE)

        return script

    attach = in_turn(
        from_here(taken(), stdout(0, b"abc"), breaks=True),
        from_here(taken(), stdout(3, b"d"), stderr(0, b"x"), breaks=False),  # ends without an end
        from_here(breaks=True),
        from_here(taken(), stdout(4, b"e"), told_end(5, stderr_bytes=1), breaks=False),
    )
    async with (
        fake_daemon(**served(attach)) as target,
        connect(target) as sandbox,
        sandbox.run(["p"]) as process,
    ):
        assert b"".join([item.data async for item in process.output() if item.stream == "stdout"]) == b"abcde"
    assert [(begin.stdout_offset, begin.stderr_offset) for begin in begins] == [(0, 0), (3, 0), (4, 1), (4, 1)]


async def test_a_daemon_that_stays_away_is_told() -> None:
    """After the patience the failure comes out."""
    attach = in_turn(saying(taken(), stdout(0, b"abc")), failing(UnavailableError("unreachable", "away")))
    async with fake_daemon(**served(attach)) as target, connect(target) as sandbox:
        with pytest.raises(UnavailableError) as caught:
            async with sandbox.run(["p"], patience_seconds=0.2) as process:
                await collected(process)
    assert caught.value.reason == "unreachable"


async def test_a_daemon_that_was_restarted_knows_no_process() -> None:
    """`process`/`unknown`, at once."""
    attach = in_turn(saying(taken(), stdout(0, b"abc")), failing(ProcessError("unknown", "no such process")))
    async with fake_daemon(**served(attach)) as target, connect(target) as sandbox:
        with pytest.raises(ProcessError) as caught:
            await sandbox.run(["p"])
    assert caught.value.reason == "unknown"


async def test_a_start_without_an_answer_is_not_repeated_elsewhere() -> None:
    """Every attempt names the daemon that was asked first: one that was restarted meanwhile runs nothing again."""
    asked = []

    async def start(call: Exchange) -> None:
        asked.append(process_pb2.StartProcessRequest.FromString(await call.receive() or b"").instance_id)
        if len(asked) == 1:
            await call.fail(grpc.StatusCode.UNAVAILABLE)
        await failing(ProcessError("unknown", "another daemon"), has_received=True)(call)

    scripts = served(saying(), Start=start) | {"DaemonService_GetInfo": in_turn(saying(info(instance_id="first")))}
    async with fake_daemon(**scripts) as target, connect(target) as sandbox:
        with pytest.raises(ProcessError) as caught:
            await sandbox.run(["p"])
    assert (caught.value.reason, asked) == ("unknown", ["first", "first"])


async def test_a_start_at_a_daemon_that_was_restarted_before() -> None:
    """Where no attempt was without an answer, nothing can have run: the present daemon is asked."""

    async def start(call: Exchange) -> None:
        request = process_pb2.StartProcessRequest.FromString(await call.receive() or b"")
        if request.instance_id != "second":
            await failing(ProcessError("unknown", "another daemon"), has_received=True)(call)
        await call.send(process_pb2.StartProcessResponse(pid=1))

    infos = in_turn(saying(info(instance_id="first")), saying(info(instance_id="second")))
    scripts = served(saying(taken(), told_end()), Start=start) | {"DaemonService_GetInfo": infos}
    async with fake_daemon(**scripts) as target, connect(target) as sandbox:
        assert (await sandbox.run(["p"])).ok
        assert (await sandbox.run(["p"])).ok


async def test_lost_output_is_told() -> None:
    """`process`/`output_lost`, with where the rest begins."""
    facts = {"stdout_start": "9", "stderr_start": "0"}
    attach = failing(ProcessError("output_lost", "dropped", facts=facts))
    async with fake_daemon(**served(attach)) as target, connect(target) as sandbox:
        with pytest.raises(ProcessError) as caught:
            await collected(sandbox.processes.attach("p", stdout_offset=3))
    assert (caught.value.reason, caught.value.facts) == ("output_lost", facts)


async def test_a_closed_sandbox_is_not_waited_for() -> None:
    """Whoever reads when the sandbox is closed gets `unavailable`/`cancelled`, long before the patience is over."""
    reads = asyncio.Event()

    async def attach(call: Exchange) -> None:
        await call.send(taken(), stdout(0, b"a"))
        await call.stall()

    async def read() -> None:
        async for _ in process.output():
            reads.set()

    async with fake_daemon(**served(attach)) as target, connect(target) as sandbox:
        process = await sandbox.processes.start(["p"], patience_seconds=1e6)
        reading = asyncio.ensure_future(read())
        await reads.wait()
        await sandbox.close()
        with pytest.raises(UnavailableError) as caught:
            await reading
    assert caught.value.reason == "cancelled"


async def test_an_old_daemon_is_told_as_such() -> None:
    """`unavailable`/`unsupported`, with what to do about it."""
    async with fake_daemon() as target, connect(target) as sandbox:
        with pytest.raises(UnavailableError) as caught:
            await sandbox.run(["p"])
    assert caught.value.reason == "unsupported"
    assert "update" in caught.value.hint


async def test_an_unanswered_start_is_repeated() -> None:
    """With the same request, so that nothing starts twice."""
    asked = []

    async def lost(call: Exchange) -> None:
        asked.append(await call.receive())
        await call.fail(grpc.StatusCode.UNAVAILABLE)

    async def answered(call: Exchange) -> None:
        asked.append(await call.receive())
        await call.send(process_pb2.StartProcessResponse(pid=1))

    scripts = served(saying(taken(), told_end()), Start=in_turn(lost, lost, answered))
    async with fake_daemon(**scripts) as target, connect(target) as sandbox:
        assert (await sandbox.run(["p"])).ok
    assert len(asked) == 3
    assert len(set(asked)) == 1


@pytest.mark.parametrize(("process_id", "is_released"), [("", True), ("theirs", False)])
async def test_a_start_that_is_cancelled_leaves_no_process(process_id: str, *, is_released: bool) -> None:
    """It may have been started: its id is released, unless the caller gave it and so knows it."""
    is_asked, released = asyncio.Event(), []

    async def start(call: Exchange) -> None:
        await call.receive()
        is_asked.set()
        await call.stall()

    async def release(call: Exchange) -> None:
        released.append(await call.receive())
        await call.send(process_pb2.ReleaseProcessResponse())

    scripts = served(saying(), Start=start, Release=release)
    async with fake_daemon(**scripts) as target, connect(target) as sandbox:
        running = asyncio.ensure_future(sandbox.run(["p"], process_id=process_id))
        await is_asked.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert len(released) == is_released


async def test_a_cancel_in_the_middle_ends_the_process() -> None:
    """It is released, and the cancel goes on only then."""
    is_reading, released = asyncio.Event(), asyncio.Event()

    async def attach(call: Exchange) -> None:
        await call.send(taken(), stdout(0, b"a"))
        is_reading.set()
        await call.stall()

    async def release(call: Exchange) -> None:
        await call.send(process_pb2.ReleaseProcessResponse())
        released.set()

    async with fake_daemon(**served(attach, Release=release)) as target, connect(target) as sandbox:
        running = asyncio.ensure_future(sandbox.run(["p"]))
        await is_reading.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert released.is_set()


async def test_an_error_in_the_block_is_not_replaced() -> None:
    """Also when the daemon does not answer the release any more."""
    attach = saying(taken(), told_end())
    release = failing(UnavailableError("internal", "broken"))
    async with fake_daemon(**served(attach, Release=release)) as target, connect(target) as sandbox:
        with pytest.raises(ZeroDivisionError):
            async with sandbox.run(["p"]):
                raise ZeroDivisionError
        assert (await sandbox.run(["p"])).ok  # it was over: nothing is lost
        with pytest.raises(UnavailableError):
            async with sandbox.run(["p"]):
                pass  # it may still run


async def test_the_end_is_waited_for_without_reading() -> None:
    """By a call of its own, again and again while the process runs, and over failures that pass."""
    running = process_pb2.WaitProcessResponse(running=True)
    over = process_pb2.WaitProcessResponse(exit=ended(9))
    away = failing(UnavailableError("unreachable", "away"))
    wait = in_turn(saying(running), away, saying(running), saying(over))
    async with fake_daemon(**served(saying(), Wait=wait)) as target, connect(target) as sandbox:
        process = await sandbox.processes.start(["p"])
        assert await process.wait() == Exit(0, 0, "itself", 0.5, 9, 0)
        assert process.exit == await process.wait()


async def test_a_signal_is_sent_once_and_an_end_twice_if_need_be() -> None:
    """A signal whose answer is lost may have come; an end is asked for until it is answered."""
    signals = []

    async def signal(call: Exchange) -> None:
        request = process_pb2.SignalProcessRequest.FromString(await call.receive() or b"")
        signals.append((request.signal, request.then_kill_seconds))
        if len(signals) in {2, 3}:
            await call.fail(grpc.StatusCode.UNAVAILABLE)
        await call.send(process_pb2.SignalProcessResponse())

    over = saying(process_pb2.WaitProcessResponse(exit=ended(signal=15, cause=process_pb2.ProcessExit.CAUSE_SIGNAL)))
    async with fake_daemon(**served(saying(), Signal=signal, Wait=over)) as target, connect(target) as sandbox:
        process = await sandbox.processes.start(["p"])
        await process.signal(2)
        with pytest.raises(UnavailableError):
            await process.signal(2)
        with pytest.raises(ConfigurationError):
            await process.signal(-1)
        assert (await process.end(grace_seconds=3)).cause == "signal"
        await process.end(grace_seconds=0)  # over already: nothing is sent
        other = await sandbox.processes.start(["p"])
        await other.end(grace_seconds=0)
    assert signals == [(2, 0), (2, 0), (15, 3), (15, 3), (9, 0)]


async def test_a_daemon_that_ends_nothing_is_told() -> None:
    """`end` is bounded."""
    running = saying(process_pb2.WaitProcessResponse(running=True))
    signal = saying(process_pb2.SignalProcessResponse())
    scripts = served(saying(), Signal=signal, Wait=running)
    async with fake_daemon(**scripts) as target, connect(target, stall_seconds=0.2) as sandbox:
        process = await sandbox.processes.start(["p"], patience_seconds=0)
        with pytest.raises(DeadlineError) as caught:
            await process.end(grace_seconds=0)
    assert caught.value.reason == "deadline"


async def test_a_loop_that_is_left_early_loses_nothing() -> None:
    """The next one goes on where it was."""
    attach = saying(taken(), stdout(0, b"a"), stdout(1, b"b"), told_end(2))
    async with (
        fake_daemon(**served(attach)) as target,
        connect(target) as sandbox,
        sandbox.run(["p"]) as process,
    ):
        async with aclosing(process.output()) as output:
            assert (await anext(output)).data == b"a"
        assert await collected(process) == b"b"


async def test_programs_and_processes_are_looked_up() -> None:
    """A path, or None; states with their ends."""
    state = process_pb2.ProcessState(id="x", pid=5, program=b"git", stdout_bytes=4)
    over = process_pb2.ProcessState(id="y", pid=6, program=b"a\x1b", exit=ended(1))
    found = in_turn(
        saying(process_pb2.FindProgramResponse(path=b"/bin/git")), saying(process_pb2.FindProgramResponse())
    )
    scripts = served(
        saying(), List=saying(process_pb2.ListProcessesResponse(processes=[state, over])), FindProgram=found
    )
    async with fake_daemon(**scripts) as target, connect(target) as sandbox:
        assert str(await sandbox.processes.find_program("git")) == "/bin/git"
        assert await sandbox.processes.find_program("nope") is None
        first, second = await sandbox.processes.list()
    assert (first.id, first.pid, first.program, first.exit, first.stdout_bytes) == ("x", 5, "git", None, 4)
    assert (second.program, second.exit) == ("a\\x1b", Exit(0, 0, "itself", 0.5, 1, 0))
