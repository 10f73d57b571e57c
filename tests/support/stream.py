"""Requests of a stream that a test sends one at a time."""

from __future__ import annotations

from queue import SimpleQueue
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from typing import Self

_T = TypeVar("_T")


class Requests(Generic[_T]):
    """An iterator of messages that waits for the test: `send` some, then `end`."""

    def __init__(self, *messages: _T) -> None:
        self._messages: SimpleQueue[_T | None] = SimpleQueue()
        self.send(*messages)

    def send(self, *messages: _T) -> None:
        """Send messages."""
        for message in messages:
            self._messages.put(message)

    def end(self) -> None:
        """Close the client's side."""
        self._messages.put(None)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> _T:
        message = self._messages.get()
        if message is None:
            raise StopIteration
        return message
