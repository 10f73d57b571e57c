"""Which conversations a runner works on, and in which sandbox it last worked on others.

The one rule: what is not known is restored anew; nothing here is needed for a turn to be right.
"""

from __future__ import annotations

from dataclasses import dataclass

from host_client.errors import ConflictError, printable

MAX_KNOWN_COUNT = 4096


@dataclass(frozen=True, slots=True)
class SandboxIdentity:
    """One start of one daemon, and the home that it serves."""

    instance_id: str
    home: str


@dataclass(frozen=True, slots=True)
class LastTurn:
    """Where a conversation's last turn was.

    Attributes:
        sandbox: The sandbox.
        digest: Digest of what was captured there afterwards; empty: nothing was.
    """

    sandbox: SandboxIdentity
    digest: str = ""


class KnownConversations:
    """The last turn of each conversation; of too many, those that were not worked on for longest are forgotten."""

    def __init__(self) -> None:
        self._turns: dict[str, LastTurn] = {}
        self._worked_on: set[str] = set()

    def begin(self, conversation_id: str) -> None:
        """Begin a turn that goes on with a conversation. Of two at a time each would lose what the other one said.

        Raises:
            ConflictError: `busy`: another turn works on it.
        """
        if conversation_id in self._worked_on:
            raise ConflictError(
                "busy",
                f"another turn of this runner works on {printable(conversation_id)[:140]}",
                hint="wait for its result, or fork the conversation",
            )
        self._worked_on.add(conversation_id)

    def end(self, conversation_id: str) -> None:
        """End the turn."""
        self._worked_on.discard(conversation_id)

    def get(self, conversation_id: str) -> LastTurn | None:
        """Return the last turn of a conversation; None: not known."""
        return self._turns.get(conversation_id)

    def forget(self, conversation_id: str) -> None:
        """Forget a conversation that is not where it was."""
        self._turns.pop(conversation_id, None)

    def note(self, conversation_id: str, turn: LastTurn) -> None:
        """Remember a turn."""
        self._turns.pop(conversation_id, None)
        self._turns[conversation_id] = turn
        if len(self._turns) > MAX_KNOWN_COUNT:
            del self._turns[next(iter(self._turns))]
