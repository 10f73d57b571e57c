"""Where the records of a conversation come from that is to be shown, and what could not be read of them.

The one rule: a line that cannot be read costs that line alone, and is counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from host_client.session.bounded_line import bounded_lines, read_objects

if TYPE_CHECKING:
    from collections.abc import Iterator


class MessageSource(Protocol):
    """A transcript that can be read again and again."""

    def pieces(self) -> Iterator[bytes]:
        """Yield its content, decompressed, in pieces of any size; blocks."""

    def other(self, conversation_id: str) -> MessageSource | None:
        """Return the transcript of another conversation that lies with it; None: it is not there."""


@dataclass
class Tally:
    """What a reading left out.

    Attributes:
        skipped_count: Lines that are no record that is known, blank ones not counted.
        has_torn_tail: The last line is cut off.
    """

    skipped_count: int = 0
    has_torn_tail: bool = False


class Record(NamedTuple):
    """One object of a transcript.

    Attributes:
        value: What it holds; None: the line is no record.
        is_broken: Whether the line is no JSON; otherwise, without a value, it is too long.
        line: Number of the line, from 1.
        end: Where the line ends, in bytes of the content, behind its newline.
    """

    value: dict[str, object] | None
    line: int
    end: int
    is_broken: bool = False


def records(source: MessageSource, tally: Tally | None = None) -> Iterator[Record]:
    """Yield what each line holds; a last line that is cut off ends them without a record.

    Args:
        source: What to read.
        tally: Told of what is no record; None: it was told before.
    """
    end = 0
    for number, line in enumerate(bounded_lines(source.pieces()), 1):
        end += line.size_bytes + line.is_ended
        found = None if line.is_given_up else read_objects(line)
        if found is None:
            if not line.is_ended:
                if tally:
                    tally.has_torn_tail = True
                return
            if tally:
                tally.skipped_count += 1
            yield Record(None, number, end, is_broken=not line.is_given_up)
        for value in found or ():
            yield Record(value, number, end)
