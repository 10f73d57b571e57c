"""Standard output of an agent, cut into lines as it comes.

The one rule: memory is bounded by one line, and a line has a limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from host_client.errors import ProcessError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAX_LINE_BYTES = 16 << 20


class Lines:
    r"""Pieces of output in, lines out. A line ends at `\n` and nowhere else; a `\r` before that is not part of it.

    Bytes that are no UTF-8 are replaced.
    """

    def __init__(self, max_bytes: int = MAX_LINE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[str]:
        """Yield the lines that end in this piece; to be gone through before the next one.

        Raises:
            ProcessError: `oversized_event`: a line is too long. Lines before it were yielded.
        """
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            self._take(data, start, end)
            start = end + 1
            yield self._line()
        self._take(data, start, len(data))

    def end(self) -> Iterator[str]:
        """Yield what follows the last newline, if anything does."""
        if self._rest:
            yield self._line()

    def _take(self, data: bytes, start: int, end: int) -> None:
        if len(self._rest) + end - start > self._max_bytes:
            raise ProcessError(
                "oversized_event",
                f"a line of the agent's output is longer than {self._max_bytes} bytes",
                facts={"max_bytes": str(self._max_bytes)},
            )
        self._rest += memoryview(data)[start:end]

    def _line(self) -> str:
        if self._rest.endswith(b"\r"):
            del self._rest[-1]
        text = self._rest.decode("utf-8", "replace")
        self._rest.clear()
        return text


class Tail:
    """The end of what a process complained about."""

    MAX_BYTES = 64 << 10
    MAX_CHARS = 2048

    def __init__(self) -> None:
        self._data = b""

    def add(self, data: bytes) -> None:
        """Take a piece; what is too much of the beginning is forgotten."""
        self._data = (self._data + data)[-self.MAX_BYTES :]

    def text(self, redact: Callable[[str], str]) -> str:
        """Return the last characters of what may be told; those that are not printable are escaped, except newlines.

        Args:
            redact: Returns what may be told of all that was kept: a secret must not survive by being cut.
        """
        lines = redact(self._data.decode("utf-8", "replace")).splitlines()
        shown = "\n".join(line if line.isprintable() else _escaped(line) for line in lines)
        return shown.strip()[-self.MAX_CHARS :]


def _escaped(line: str) -> str:
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in line)
