"""Whether a turn ended well, by how its process ended and what its output said.

The one rule: one turn has one failure, the one that says most.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING

from host_client.errors import OutpostError, ProcessError, printable
from host_client.turns.line import Tail
from host_client.turns.winding import joined

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from host_client.agents.adapter import AgentFeatures
    from host_client.sandbox.process_exit import Exit
    from host_client.session.redaction import Redaction
    from host_client.turns.reading import Reading

_MAX_MESSAGE_CHARS = 500


def failure_of(
    features: AgentFeatures, end: Exit, reading: Reading, redaction: Redaction | None = None
) -> OutpostError | None:
    """Return why a turn failed; None: it ended well.

    What ended the process from outside comes first, then what the agent itself says, then its exit status, then what
    it did not say.

    Args:
        features: The agent.
        end: How its process ended.
        reading: What it said.
        redaction: What must not be told of that.
    """
    facts = {"status": str(end.status), "signal": str(end.signal)}
    if end.cause in ("deadline", "idle", "output", "shutdown"):
        return end.failure(features.name)
    if reading.failure is not None:
        said = printable(" ".join(_redacted(reading.failure, redaction).split()))[:_MAX_MESSAGE_CHARS]
        return ProcessError("reported_failure", f"{features.name} says that its turn failed: {said}", facts=facts)
    if not end.ok:
        return end.failure(features.name)
    if features.requires_finished_event and not reading.finished:
        return ProcessError("unfinished", f"{features.name} ended without the event that ends its turns", facts=facts)
    return None


class Failures:
    """What went wrong in a turn, first to last.

    Args:
        redaction: What must not be told of the agent's complaints.

    Attributes:
        conversation_id: The conversation that failures are about, as far as it is known.
        stderr: What the agent complained about.
    """

    def __init__(self, redaction: Redaction | None = None) -> None:
        self._redaction = redaction
        self._error: BaseException | None = None
        self._all: list[Exception] = []
        self.conversation_id = ""
        self.stderr = Tail()

    @property
    def all(self) -> Sequence[Exception]:
        """All failures, in order; cancels are none."""
        return tuple(self._all)

    @property
    def is_empty(self) -> bool:
        """Whether nothing went wrong and nobody cancelled."""
        return self._error is None

    @property
    def is_cancelled(self) -> bool:
        """Whether somebody cancelled."""
        return isinstance(self._error, asyncio.CancelledError)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep what the block raises for `raise_all`; the turn goes on with what must be done all the same."""
        try:
            yield
        except BaseException as error:  # noqa: BLE001  raised by `raise_all`
            failure = error if isinstance(error, Exception) else error.__cause__  # as `completed` raises a cancel
            if isinstance(failure, Exception):
                self._all.append(failure)
            self._error = joined(self._error, error)

    def raise_all(self) -> None:
        """Raise what was kept: the failure, or the cancel, or an `ExceptionGroup` of failures."""
        for error in self._all:
            self._tell(error)
        if self._error is not None:
            raise self._error

    def _tell(self, error: Exception) -> None:
        """Put into the facts which conversation it is about, and the end of what the agent complained about."""
        if not isinstance(error, OutpostError):
            return
        if self.conversation_id:
            error.facts.setdefault("conversation", self.conversation_id)
        if error.code in ("process", "timeout", "limit") and (said := self.stderr.text(self._redact)):
            error.facts.setdefault("stderr", said)

    def _redact(self, text: str) -> str:
        return _redacted(text, self._redaction)


def _redacted(text: str, redaction: Redaction | None) -> str:
    if redaction is None:
        return text
    try:
        return redaction.redact(text, Counter())
    except OutpostError:
        return ""  # a rule failed, so what may be told is not known
