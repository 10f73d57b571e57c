"""What an agent's command line is to the runner of turns: how to start it, and what its output means.

An adapter is pure: it returns commands and events and touches neither sandbox nor host.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from pathlib import PurePosixPath

    from host_client.agents.event import AgentEvent
    from host_client.agents.usage import Usage
    from host_client.stores.contract import ConversationStore

UsageMode = Literal["events", "session", "unavailable"]

_NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True, slots=True)
class Continuation:
    """The conversation that a turn goes on with.

    Attributes:
        id: Its id.
        fork: Leave it as it is and go on with a copy, whose id the agent announces.
    """

    id: str
    fork: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnInput:
    """What a turn is asked to do, for `AgentAdapter.request`.

    Attributes:
        text: What the user says.
        continuation: The conversation to go on with; None: a new one.
        conversation_id: Id that a new conversation, or a fork, should get where the CLI lets its caller choose.
        workspace: Directory the CLI runs in, in the sandbox.
        home: The agent home, in the sandbox.
    """

    text: str
    continuation: Continuation | None = None
    conversation_id: str = ""
    workspace: PurePosixPath
    home: PurePosixPath


@dataclass(frozen=True, slots=True)
class Command:
    """A program to run in the sandbox, without a shell.

    Attributes:
        executable: Name looked for in PATH of the process, or an absolute path.
        arguments: Its arguments.
        stdin: What it reads; empty: nothing.
        variables: Environment of this command alone; wins over every other layer.
    """

    executable: str
    arguments: Sequence[str] = ()
    stdin: str | bytes = b""
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a command of an adapter's hook ended.

    Attributes:
        status: Exit status; negative: the number of the signal that ended it.
        stdout: What it printed.
        stderr: What it complained about.
    """

    status: int
    stdout: bytes
    stderr: bytes


class AgentFeatures:
    """What an agent can do. Set as attributes of a class that derives from `AgentAdapter`.

    Attributes:
        name: Native name of the agent in events and errors.
        bootstrap: Tool of the catalogue that is installed in a sandbox that has not the executable; None: it must be
            there.
        requires_finished_event: Without the agent's own `FinishedEvent` a turn fails, whatever its exit status.
        usage: `events`: tokens are counted from the output; `session`: asked for by `usage_command` when the process
            has ended; `unavailable`: not recorded. In the first two, missing counters mark the usage incomplete. None:
            what events tell is counted without that check.
        variables: Environment of every command of the agent, over `.outpost/.env`; a name that the sandbox's provider
            sets as well is refused.
        storage: Store of the agent's conversations; None: they are not portable.
        capture: Whether conversations are stored after each turn; None: when there is a storage.
        resumable: False refuses to continue a conversation before anything is allocated.
        forkable: False refuses a fork before anything is allocated; None: `fork`, or else `request`, is tried.
    """

    name: str
    bootstrap: str | None = None
    requires_finished_event: bool = False
    usage: UsageMode | None = None
    variables: Mapping[str, str] = _NOTHING
    storage: ConversationStore | None = None
    capture: bool | None = None
    resumable: bool | None = None
    forkable: bool | None = None

    def transcript_usage(self, text: str) -> Usage | None:  # noqa: ARG002  what an agent without one has
        """Return the last turn's tokens by the captured transcript, in place of those of events; None keeps these.

        Called in a thread, since it may take its time: a transcript can be long.
        """
        return None


class AgentAdapter(AgentFeatures, ABC):
    """One agent's command line. A new one is made for every turn, so it may remember what earlier lines said."""

    @abstractmethod
    def request(self, turn: TurnInput) -> Command:
        """Return the command that runs a turn.

        With `turn.continuation.fork`, and no `fork` hook, the command forks and announces the new id.
        """

    @abstractmethod
    def events(self, line: str) -> Sequence[AgentEvent]:
        """Return what a line of standard output means; empty: nothing worth telling.

        An error that this raises is taken for a line that nobody understands.
        """

    async def fork(self, conversation_id: str, run: Callable[[Command], Awaitable[CommandResult]]) -> str:
        """Fork a conversation by commands of their own and return the new id, which the turn then resumes.

        Optional; without it `request` is asked to fork.
        """
        raise NotImplementedError

    def usage_command(self, conversation_id: str) -> Command | None:  # noqa: ARG002
        """Return the command that prints all tokens a conversation has used so far; for `usage = "session"`."""
        return None

    def usage_result(self, text: str) -> Usage | None:  # noqa: ARG002
        """Return the tokens that `usage_command` printed; None: it did not say."""
        return None
