"""What a turn does in its sandbox, in this order.

1. Variables are put together; the agent's program is installed when it is missing.
2. The conversation is restored unless the sandbox has it (`arrival.py`), and forked where a hook of the adapter does.
3. The program runs, its lines become events.
4. However it ended, the conversation is captured.

The one rule: what ran is captured, and nothing runs on a conversation that is not there.
"""

from __future__ import annotations

import uuid
from contextlib import AsyncExitStack, aclosing
from typing import TYPE_CHECKING

from host_client.agents.adapter import AgentAdapter, Continuation, TurnInput
from host_client.agents.event import ConversationEvent
from host_client.errors import OutpostError, ProcessError, SessionError, UnavailableError
from host_client.sandbox.patience import Patience
from host_client.sandbox.process_request import MAX_INPUT_BYTES
from host_client.sandbox.task import task_group
from host_client.turns.arrival import bring
from host_client.turns.command import Commands, as_bytes, checked_command
from host_client.turns.consumption import SessionUsage, transcript_usage
from host_client.turns.ending import failure_of
from host_client.turns.environment import layered
from host_client.turns.known import LastTurn, SandboxIdentity
from host_client.turns.line import Lines
from host_client.turns.reading import Reading
from host_client.turns.unannounced import Unannounced
from host_client.turns.winding import completed
from sandbox_api.names import check_conversation_id

if TYPE_CHECKING:
    from host_client.agents.adapter import Command
    from host_client.agents.event import AgentEvent
    from host_client.agents.usage import Usage
    from host_client.sandbox.process import Process
    from host_client.sandbox.sandbox import Sandbox
    from host_client.stores.context import ConversationContext
    from host_client.stores.contract import ConversationRecord, Notice
    from host_client.turns.ending import Failures
    from host_client.turns.plan import TurnPlan
    from host_client.turns.preparation import Prepared

_NOT_THERE = ("not_found", "empty")
"""Reasons of a capture that mean: the agent has not kept anything yet."""

_NOT_WHOLE = (*_NOT_THERE, "missing_required")
"""The same of a conversation that was new: Copilot CLI 1.0.102 makes its files one after the other."""


class Stay:
    """A turn's time in its sandbox.

    Args:
        plan: The turn.
        sandbox: Its sandbox.
        prepared: What was found out on the host.
        last_turn: Where the conversation was worked on last.
        failures: Told what goes wrong.

    Attributes:
        reading: What the output said so far.
        record: What was captured.
        usage: Tokens, when the turn ended well.
        notices: What should be known of it.
    """

    def __init__(
        self, plan: TurnPlan, sandbox: Sandbox, prepared: Prepared, last_turn: LastTurn | None, failures: Failures
    ) -> None:
        self._plan, self._sandbox, self._prepared, self._last_turn = plan, sandbox, prepared, last_turn
        self._failures = failures
        self._features, self._adapter = plan.agent.features, plan.adapter
        self._continuation = plan.continuation
        self._chosen_id = str(uuid.uuid4())
        self._has_run = False
        self.reading = self._new_reading()
        self.record: ConversationRecord | None = None
        self.usage: Usage | None = None
        self.notices: list[Notice] = []

    @property
    def conversation_id(self) -> str:
        """The conversation that the agent worked on; empty: none that is known, or it was never started."""
        return self.reading.conversation_id if self._has_run else ""

    async def run(self) -> None:
        """Do all of it. What goes wrong when something of the agent ran already is left to `failures`."""
        adapter, continuation, features = self._adapter, self._continuation, self._features
        sandbox = self._sandbox
        variables = layered(self._prepared.variables, sandbox.variables, features.variables, features.name)
        commands = Commands(self._plan.agent, sandbox, variables)
        here = SandboxIdentity((await sandbox.info()).instance_id, str(sandbox.home))
        has_hook = continuation is not None and continuation.fork and type(adapter).fork is not AgentAdapter.fork
        command = None if has_hook else self._request()
        if command is not None:
            await commands.argv(command)  # what cannot be installed is known before anything is restored
        context = self._plan.options.context(sandbox, commands.environment(command))
        session_usage = SessionUsage(adapter, commands, is_new=continuation is None)
        if continuation is not None:
            conversation_id, last_turn = continuation.id, self._last_turn
            self.notices += await bring(
                features.storage, self._prepared, context, here, last_turn, conversation_id=conversation_id
            )
            if features.usage == "session":
                await session_usage.start(continuation.id)
        unannounced = Unannounced(features.storage, context, self._chosen_id)
        with self._failures.kept():
            await self._work(commands, command, unannounced)
            if features.usage == "session":
                self.usage = await session_usage.end(self.conversation_id)
            else:
                self.usage = self.reading.account.usage(features.usage)
        if self._has_run:
            with self._failures.kept():
                await completed(self._capture(context, here, unannounced), is_cancelled=self._failures.is_cancelled)
        if self._failures.is_empty:
            self.usage = await transcript_usage(adapter, self.record, self.usage)

    async def _work(self, commands: Commands, command: Command | None, unannounced: Unannounced) -> None:
        """Fork, where that is left to a hook (there is no command yet), and run the program."""
        if command is None and self._continuation is not None:
            self._continuation = await self._fork(self._continuation, commands)
        command = command or self._request()
        if not self.reading.conversation_id:
            await unannounced.look(command)
        await self._process(commands, command)

    async def _fork(self, continuation: Continuation, commands: Commands) -> Continuation:
        """Fork by the adapter's hook, announce the child and return what the turn goes on with."""
        child_id: object = await self._adapter.fork(continuation.id, commands.run)
        if not isinstance(child_id, str) or check_conversation_id(child_id) == continuation.id:
            raise ProcessError(
                "reported_failure",
                f"{self._features.name} was told to fork {continuation.id} and did not",
                facts={"resumed": continuation.id},
            )
        self._has_run = True
        self._continuation = Continuation(id=child_id)
        self.reading = self._new_reading()
        await self._tell(ConversationEvent(child_id), len(child_id))
        return self._continuation

    async def _process(self, commands: Commands, command: Command) -> None:
        """Run the program to its end; when this raises, the process has ended as well."""
        options, given = self._plan.options, as_bytes(command.stdin)
        is_large = len(given) > MAX_INPUT_BYTES
        running = self._sandbox.run(
            await commands.argv(command),
            cwd=self._sandbox.root,
            variables=commands.environment(command),
            input=b"" if is_large else given,
            open_input=is_large,
            deadline_seconds=options.deadline_seconds,
            idle_seconds=options.idle_seconds,
            grace_seconds=options.grace_seconds,
            patience_seconds=options.patience_seconds,
            max_output_bytes=options.max_output_bytes,
        )
        async with AsyncExitStack() as stack:
            try:
                process = await stack.enter_async_context(running)
            except OutpostError as error:
                # Without an answer nobody knows whether it was started: what it may have said is looked for.
                self._has_run = self._has_run or error.code in ("unavailable", "timeout") or error.reason == "unknown"
                raise
            self._has_run = True
            async with task_group() as group:
                if is_large:
                    group.create_task(_write(process, given))
                await self._read(process)
            end = await process.wait()
        failure = failure_of(self._features, end, self.reading, options.redaction)
        if failure is not None:
            raise failure

    async def _read(self, process: Process) -> None:
        lines = Lines()
        async with aclosing(process.output()) as outputs:
            async for output in outputs:
                if output.stream == "stderr":
                    self._failures.stderr.add(output.data)
                    continue
                for line in lines.feed(output.data):
                    await self._line(line)
        for line in lines.end():
            await self._line(line)

    async def _line(self, line: str) -> None:
        for event in self.reading.line(line):
            await self._tell(event, len(line))

    async def _tell(self, event: AgentEvent, size_bytes: int) -> None:
        try:
            self.reading.take(event, size_bytes)
        except ProcessError:
            await self._plan.emit(event)  # whoever watches sees what the failure is about
            raise
        await self._plan.emit(event)

    async def _capture(self, context: ConversationContext, here: SandboxIdentity, unannounced: Unannounced) -> None:
        """Keep what the turn left, also over a connection that breaks, and note where it was."""
        self.notices += self.reading.notices
        # A daemon that was waited for in vain already is not waited for again.
        is_away = any(isinstance(failure, UnavailableError) for failure in self._failures.all)
        patience = Patience(0.0 if is_away else self._plan.options.patience_seconds)
        while True:
            try:
                await self._try_capture(context, here, unannounced)
            except OutpostError as error:
                if is_away and isinstance(error, UnavailableError):
                    return  # which is what the turn failed with already
                await patience.bear(error)
            else:
                return

    async def _try_capture(self, context: ConversationContext, here: SandboxIdentity, unannounced: Unannounced) -> None:
        reading, features, known = self.reading, self._features, self._plan.known
        has_failed = not self._failures.is_empty
        if not reading.conversation_id and has_failed:
            reading.conversation_id = await unannounced.find()
        if not (conversation_id := reading.conversation_id):
            return
        known.note(conversation_id, LastTurn(here))
        if features.storage is None or features.capture is False:
            return
        try:
            self.record = await features.storage.capture(conversation_id, context)
        except SessionError as error:
            # Also one that an agent began which was told to resume another.
            is_new = self._plan.continuation is None or conversation_id != self._plan.continuation.id
            if not has_failed or error.reason not in (_NOT_WHOLE if is_new else _NOT_THERE):
                raise
            known.forget(conversation_id)
            if is_new:
                reading.conversation_id = ""  # an id that nothing is kept under cannot be resumed
            return
        self.notices += self.record.notices
        known.note(conversation_id, LastTurn(here, self.record.digest))

    def _request(self) -> Command:
        return checked_command(self._adapter.request(self._input()), self._features.name)

    def _input(self) -> TurnInput:
        continuation = self._continuation
        return TurnInput(
            text=self._plan.text,
            continuation=continuation,
            conversation_id=self._chosen_id if continuation is None or continuation.fork else "",
            workspace=self._sandbox.root,
            home=self._sandbox.home,
        )

    def _new_reading(self) -> Reading:
        continuation = self._continuation
        if continuation is None:
            return Reading(self._adapter)
        return Reading(self._adapter, continuation.id, is_fork=continuation.fork)


async def _write(process: Process, data: bytes) -> None:
    await process.write(data)
    await process.close_input()
