"""Runs turns of one agent: the face of this layer."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Literal

from host_client.agents.adapter import Continuation
from host_client.errors import ConfigurationError
from host_client.turns.execution import Execution
from host_client.turns.known import KnownConversations
from host_client.turns.options import DEFAULT_MAX_OUTPUT_BYTES, TurnOptions
from host_client.turns.plan import TurnPlan
from host_client.turns.turn import Turn

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from host_client.agents.harness import Agent
    from host_client.session.redaction import Redaction
    from host_client.turns.provider import SandboxProvider
    from host_client.turns.result import TurnResult
    from host_client.turns.turn import Observer
    from sandbox_api.limits import Limits


class TurnRunner:
    """Runs turns of one agent, each in a sandbox of a provider. Turns may run at the same time.

    It remembers in which sandbox it worked on which conversation, and nothing else: a conversation of another runner,
    or of another program, is resumed as well, from what the host has of it.

    Args:
        agent: The agent.
        provider: Has the sandboxes.
        repository: Repository on the host: its `.outpost/.env` sets variables, and it keeps the conversations.
        conversation_home: Directory that keeps the conversations instead; see `ConversationContext`.
        deadline_seconds: Longest time for the agent's program; 0: none.
        idle_seconds: Longest time in which it may print nothing; 0: none.
        grace_seconds: From asking it to end to killing it.
        patience_seconds: How long a daemon that is away while the program runs, or is captured, is waited for.
        max_output_bytes: Most that it may print.
        on_event: Told every event of every turn, in the event loop; may be a coroutine function, which is waited for.
        redaction: What must not be saved on the host.
        limits: Limits of one conversation.
        durability: Whether what is written must survive a power loss.
        force: Restore a conversation that is in use in the sandbox, or went on there differently.
        retries: How often a capture starts again when the conversation changed while it was read.

    Raises:
        ConfigurationError: `invalid_argument`: a time or a number that cannot be.
    """

    def __init__(
        self,
        agent: Agent,
        provider: SandboxProvider,
        *,
        repository: Path | None = None,
        conversation_home: Path | None = None,
        deadline_seconds: float = 0.0,
        idle_seconds: float = 0.0,
        grace_seconds: float = 5.0,
        patience_seconds: float = 60.0,
        max_output_bytes: int = DEFAULT_MAX_OUTPUT_BYTES,
        on_event: Observer | None = None,
        redaction: Redaction | None = None,
        limits: Limits | None = None,
        durability: Literal["full", "none"] = "full",
        force: bool = False,
        retries: int = 2,
    ) -> None:
        self._agent = agent
        self._provider = provider
        self._options = TurnOptions(
            repository=repository,
            conversation_home=conversation_home,
            deadline_seconds=deadline_seconds,
            idle_seconds=idle_seconds,
            grace_seconds=grace_seconds,
            patience_seconds=patience_seconds,
            max_output_bytes=max_output_bytes,
            redaction=redaction,
            limits=limits,
            durability=durability,
            force=force,
            retries=retries,
        )
        for name in ("deadline_seconds", "idle_seconds", "grace_seconds", "patience_seconds"):
            seconds = getattr(self._options, name)
            if not 0 <= seconds < float("inf"):
                raise ConfigurationError("invalid_argument", f"{name} cannot be {seconds}")
        if max_output_bytes < 1:
            raise ConfigurationError("invalid_argument", f"max_output_bytes cannot be {max_output_bytes}")
        self._on_event = on_event
        self._known = KnownConversations()

    async def run(self, text: str, *, on_event: Observer | None = None) -> TurnResult:
        """Run a turn of a new conversation.

        However the program ended, its conversation is captured where there is one; the fact `conversation` of a failure
        says which, and it can be resumed. When capturing fails as well, or giving back the sandbox, all failures are
        raised in an `ExceptionGroup`. A cancel ends the program, captures and gives back the sandbox within a limited
        time, then goes on. An observer that raises ends the turn in the same way.

        Args:
            text: What the user says.
            on_event: Told every event, after the runner's observer.

        Raises:
            ConfigurationError: before anything is allocated: `invalid_argument`, `invalid_id`, `not_supported`; then
                `variable_collision`.
            ProcessError: `failed`, `reported_failure`, `unfinished`, `oversized_event`; `no_such_program`,
                `not_executable`, `start_failed`, `install_failed`; `unknown`, `output_lost`. Facts: `status`, `signal`,
                `stderr` (its end), `conversation`.
            DeadlineError: `deadline`, `idle`.
            LimitError: `max_output_bytes`; those of the store.
            SessionError: those of the store: the conversation cannot be captured.
            ConflictError: as above.
            WorkspaceError: as above; a file of variables that cannot be read.
            UnavailableError: the daemon went away.
        """
        return await self._run(text, None, on_event)

    async def resume(self, conversation_id: str, text: str, *, on_event: Observer | None = None) -> TurnResult:
        """Run a turn that goes on with a conversation, in whatever sandbox the provider has.

        Where that has not got the conversation, or less of it, it is restored from the host first; a program is never
        started without it. An agent that announces another conversation is ended.

        Raises:
            SessionError: beside those of `run`: `not_found`: the host has no such conversation. Those of `restore`.
            ConflictError: `busy`: another turn of this runner works on it. `diverged`: sandbox and host went on
                differently. Those of `restore`.
        """
        return await self._run(text, Continuation(id=conversation_id), on_event)

    async def fork(self, conversation_id: str, text: str, *, on_event: Observer | None = None) -> TurnResult:
        """Run a turn that goes on with a copy of a conversation, which stays as it is; as `resume` else."""
        return await self._run(text, Continuation(id=conversation_id, fork=True), on_event)

    @asynccontextmanager
    async def turn(
        self, text: str, *, continuation: Continuation | None = None, on_event: Observer | None = None
    ) -> AsyncIterator[Turn]:
        """Run a turn in the background of a context, to iterate its events.

        The agent waits while nobody takes its events. Leaving the context before the turn is over ends it, as a cancel
        does. A failure that nobody was told is raised then.

        Args:
            text: What the user says.
            continuation: Conversation to go on with; None: a new one.
            on_event: Told every event, after the runner's observer.

        Raises:
            OutpostError: as `run`.
        """
        turn = Turn([observer for observer in (self._on_event, on_event) if observer is not None])
        plan = TurnPlan(
            agent=self._agent,
            adapter=self._agent.bind(),
            provider=self._provider,
            options=self._options,
            known=self._known,
            text=text,
            continuation=continuation,
            emit=turn.emit,
            resume=self._resume,
        )
        async with turn.running(Execution(plan)):
            yield turn

    async def _resume(self, text: str, continuation: Continuation) -> TurnResult:
        return await self._run(text, continuation, None)

    async def _run(self, text: str, continuation: Continuation | None, on_event: Observer | None) -> TurnResult:
        async with self.turn(text, continuation=continuation, on_event=on_event) as turn:
            return await turn.result()
