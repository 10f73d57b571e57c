"""Turns of the built-in agents with the real CLIs: told, counted, captured however they ended, and gone on with.

The CLIs are the vendors' own, of the versions that the client's catalogue pins, and talk to the stub model. What the
model was sent is what a conversation remembers; what it says its answers cost is what a turn must be said to have used.
"""

import asyncio
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from e2e.clis.host import Sandbox as Place
from e2e.clis.host import new_sandbox
from e2e.clis.program import Copilot, Kimi, Program
from e2e.clis.transcript_program import Claude, Codex
from host_client import (
    ConnectedSandbox,
    ConversationContext,
    Sandbox,
    TurnRunner,
    Usage,
    builtin_agent,
    builtin_format,
    connect,
)
from host_client.agents.event import ConversationEvent, FinishedEvent, TextEvent, ToolEvent
from host_client.errors import ConfigurationError, ProcessError
from support.stub_model import StubModel
from support.stub_model.conversation import (
    CACHE_READ_TOKENS,
    CACHE_WRITE_TOKENS,
    INPUT_TOKENS,
    OUTPUT_TOKENS,
    Request,
    said_by_user,
)
from support.wait import until, wait_until

pytestmark = [pytest.mark.clis, pytest.mark.timeout(300)]

forking = pytest.mark.parametrize("program", [Kimi, Claude, Codex], indirect=True, ids=lambda program: program.name)
only_copilot = pytest.mark.parametrize("program", [Copilot], indirect=True, ids=["copilot"])
by_standard_input = pytest.mark.parametrize(
    "program", [Copilot, Claude, Codex], indirect=True, ids=lambda program: program.name
)

MAX_ARGUMENT_BYTES = 128 << 10


class User:
    """Whoever runs turns: a repository that keeps conversations, and programs that a sandbox finds in its PATH.

    Args:
        program: Whose agent it is.
        folder: Of both.
    """

    def __init__(self, program: Program, folder: Path) -> None:
        self._program = program
        self._repository = new_sandbox(program, folder / "home", folder / "repository").workspace
        self._programs = folder / "bin"
        self._programs.mkdir()
        if not program.path:  # the others bring the name along
            (self._programs / program.name).symlink_to(program.executable()[0])

    @asynccontextmanager
    async def in_sandbox(self, place: Place) -> AsyncIterator[tuple[TurnRunner, Sandbox]]:
        """Run turns in a place; no runner knows what another did."""
        variables = self._program.environment(place.home)
        variables = {name: value for name, value in variables.items() if name not in ("HOME", "PATH")}
        path = ":".join(map(str, (*self._program.path, self._programs, "/usr/local/bin", "/usr/bin", "/bin")))
        async with connect(place.target, variables={**variables, "PATH": path}) as sandbox:
            agent = builtin_agent(self._program.name)
            yield TurnRunner(agent, ConnectedSandbox(sandbox), repository=self._repository), sandbox


@pytest.fixture
def user(program: Program, tmp_path: Path) -> User:
    """Make a user."""
    return User(program, tmp_path / "user")


def cost(requests: Sequence[Request], program: Program) -> tuple[int, int, int]:
    """Return what the model said that its answers cost: input without caches, output, what caches had."""
    count = len(requests)
    # Anthropic's API alone has a word for what is put into a cache.
    written = CACHE_WRITE_TOKENS if isinstance(program, Claude) else 0
    return count * INPUT_TOKENS, count * OUTPUT_TOKENS, count * (CACHE_READ_TOKENS + written)


def told_cost(usage: Usage | None) -> tuple[int | None, int | None, int]:
    """Return the same as a turn tells it, which must call it complete."""
    assert usage is not None
    assert usage.complete
    return usage.input_tokens, usage.output_tokens, (usage.cache_read_tokens or 0) + (usage.cache_write_tokens or 0)


async def has_session(program: Program, sandbox: Sandbox) -> bool:
    """Tell whether the CLI has kept a conversation that it could resume."""
    sessions = builtin_format(program.name).list_sessions(ConversationContext(sandbox=sandbox))
    return any([session.complete async for session in sessions])


def test_a_turn_is_told_and_counted_and_goes_on_elsewhere(
    program: Program, model: StubModel, user: User, sandboxes: tuple[Place, Place]
) -> None:
    """Text, tools, id and tokens of a new turn, of one that goes on elsewhere, and of one that goes on there again."""
    first, second = sandboxes
    history = ["please remember alpha", "then RUN{pwd; echo two > second.txt}", "and on"]

    async def run() -> None:
        async with user.in_sandbox(first) as (runner, _):
            begun = await runner.run(history[0])
        requests = model.requests()
        assert begun.text == f"I was told 1 things: {history[0]}. Tools answered 0 times."
        assert "".join(event.text for event in begun.events if isinstance(event, TextEvent)) == begun.text
        assert FinishedEvent() in begun.events
        assert told_cost(begun.usage) == cost(requests, program)
        assert begun.conversation_id
        assert begun.record

        async with user.in_sandbox(second) as (runner, _):
            cold = await runner.resume(begun.conversation_id, history[1])
            before, requests = len(requests), model.requests()
            assert said_by_user(requests[-1].messages) == history[:2]
            assert (second.workspace / "second.txt").read_text() == "two\n"
            assert not (first.workspace / "second.txt").exists()
            tools = [event for event in cold.events if isinstance(event, ToolEvent)]
            assert [event.state for event in tools] == ["started", "completed"]
            assert "echo two" in tools[0].input
            assert str(second.workspace) in tools[1].output
            assert told_cost(cold.usage) == cost(requests[before:], program)
            assert cold.conversation_id == begun.conversation_id

            warm = await cold.resume(history[2])
            before, requests = len(requests), model.requests()
            assert said_by_user(requests[-1].messages) == history
            assert told_cost(warm.usage) == cost(requests[before:], program)

    asyncio.run(run())


@forking
def test_a_fork_leaves_its_parent_as_it_was(
    program: Program, model: StubModel, user: User, sandboxes: tuple[Place, Place]
) -> None:
    """Forked cold elsewhere, under an id of its own and with tokens of its own; then both go on."""
    first, second = sandboxes

    async def run() -> None:
        async with user.in_sandbox(first) as (runner, _):
            parent = await runner.run("please remember alpha")
        assert parent.conversation_id
        async with user.in_sandbox(second) as (runner, _):
            before = len(model.requests())
            fork = await runner.fork(parent.conversation_id, "forked")
            requests = model.requests()
            assert said_by_user(requests[-1].messages) == ["please remember alpha", "forked"]
            assert told_cost(fork.usage) == cost(requests[before:], program)
            announced = [event.id for event in fork.events if isinstance(event, ConversationEvent)]
            assert set(announced) == {fork.conversation_id}
            assert fork.conversation_id != parent.conversation_id
            await runner.resume(parent.conversation_id, "went on")
            assert said_by_user(model.requests()[-1].messages) == ["please remember alpha", "went on"]
        async with user.in_sandbox(first) as (runner, _):
            assert fork.conversation_id
            await runner.resume(fork.conversation_id, "and on")
            assert said_by_user(model.requests()[-1].messages) == ["please remember alpha", "forked", "and on"]

    asyncio.run(run())


@only_copilot
def test_an_agent_that_cannot_fork_is_not_asked_to(
    program: Program, model: StubModel, user: User, sandboxes: tuple[Place, Place]
) -> None:
    """It is refused before anything happens."""

    async def run() -> None:
        async with user.in_sandbox(sandboxes[0]) as (runner, _):
            with pytest.raises(ConfigurationError) as refused:
                await runner.fork("aaaaaaaa-0000-4000-8000-000000000001", "forked")
        assert refused.value.reason == "not_supported"
        assert not model.requests(), program.name

    asyncio.run(run())


def test_a_turn_that_the_model_fails_is_captured(
    program: Program, model: StubModel, user: User, sandboxes: tuple[Place, Place]
) -> None:
    """The failure says which conversation it was; that goes on elsewhere, with what a tool had answered before."""
    first, second = sandboxes
    order = "please RUN{echo done > done.txt} FAIL{400}"

    async def run() -> None:
        async with user.in_sandbox(first) as (runner, _):
            with pytest.raises(ProcessError) as failed:
                await runner.run(order)
        assert (first.workspace / "done.txt").read_text() == "done\n"
        # Kimi Code tells it by its status and on standard error alone.
        assert failed.value.reason == ("failed" if isinstance(program, Kimi) else "reported_failure")
        assert "told to fail" in f"{failed.value} {failed.value.facts.get('stderr')}"
        async with user.in_sandbox(second) as (runner, _):
            before = len(model.requests())
            result = await runner.resume(failed.value.facts["conversation"], "and on")
            requests = model.requests()[before:]
        assert told_cost(result.usage) == cost(requests, program)
        assert result.conversation_id == failed.value.facts["conversation"]
        assert result.text == f"I was told 2 things: {order} | and on. Tools answered 1 times."

    asyncio.run(run())


def test_a_turn_that_is_killed_is_captured(
    program: Program, model: StubModel, user: User, sandboxes: tuple[Place, Place]
) -> None:
    """Killed while a tool runs, before most of the CLIs have said their id: all that was told goes on elsewhere."""
    first, second = sandboxes
    order = "please RUN{touch begun; until [ -e over ]; do sleep 0.1; done}"

    async def run() -> None:
        async with user.in_sandbox(first) as (runner, sandbox):
            try:
                async with runner.turn(order) as turn:
                    await asyncio.to_thread(wait_until, (first.workspace / "begun").exists, "the tool to run")
                    # Copilot CLI 1.0.102 writes down what it was told a moment later.
                    await until(lambda: has_session(program, sandbox), "the conversation to be there")
                    (running,) = [state for state in await sandbox.processes.list() if state.exit is None]
                    await sandbox.processes.attach(running.id).signal(signal.SIGKILL)
                    with pytest.raises(ProcessError) as killed:
                        await turn.result()
            finally:
                (first.workspace / "over").touch()
        assert turn.record
        assert killed.value.reason == "failed"
        assert killed.value.facts["signal"] == "9"
        async with user.in_sandbox(second) as (runner, _):
            before = len(model.requests())
            result = await runner.resume(killed.value.facts["conversation"], "and on")
            requests = model.requests()
        assert said_by_user(requests[-1].messages) == [order, "and on"]
        assert told_cost(result.usage) == cost(requests[before:], program)

    asyncio.run(run())


@by_standard_input
def test_a_prompt_may_be_longer_than_an_argument(
    program: Program, model: StubModel, user: User, sandboxes: tuple[Place, Place]
) -> None:
    """It arrives whole."""
    prompt = "x" * MAX_ARGUMENT_BYTES + " and this"

    async def run() -> None:
        async with user.in_sandbox(sandboxes[0]) as (runner, _):
            await runner.run(prompt)
        assert said_by_user(model.requests()[-1].messages) == [prompt], program.name

    asyncio.run(run())
