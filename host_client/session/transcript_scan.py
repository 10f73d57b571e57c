"""What must be known of a transcript before it is moved, or told about it: found while it streams by.

The one rule: only what is asked for is looked at, so that a pass over a gigabyte costs little more than reading it.
"""

from __future__ import annotations

import io
import json
import re
from typing import TYPE_CHECKING

import stringzilla

from host_client.session.line import decode_string, is_json
from host_client.session.line_block import LineBlocks
from host_client.session.origin import find_origin

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

MAX_ASKED_COUNT = 1_000_000
"""Lines that are asked about before a transcript counts as one without a record: no CLI begins with so many others."""

MAX_VALUES_COUNT = 256
"""Values of one key that are remembered."""


class TranscriptScan:
    """A transcript that is looked at. Call `feed` with the pieces in their order, then `finish` once.

    Memory is that of the longest line and a constant.

    Args:
        keys: Keys whose text values are collected, at any depth.
        is_record: Tells whether a line is part of what was said; None: nobody asks.

    Attributes:
        origin: The working directory that the first line which names one names; None: none did so far.
        has_record: Whether `is_record` was true of a line so far.
        read_bytes: Input taken.
        nul_at: Offset of the first NUL byte; None: none so far.
        torn_at: After `finish`, offset of a last line that neither ends with a newline nor is JSON; None: no such line.
        ends_with_newline: Whether the last byte was a newline; False for an empty input.
    """

    def __init__(self, *, keys: Sequence[str] = (), is_record: Callable[[bytes], bool] | None = None) -> None:
        self.origin: str | None = None
        self.has_record = False
        self.read_bytes = 0
        self.nul_at: int | None = None
        self.torn_at: int | None = None
        self.ends_with_newline = False
        self._is_record = is_record
        self._asked_count = 0
        self._blocks = LineBlocks()
        self._values: dict[str, set[bytes]] = {key: set() for key in keys}
        self._names = {key: json.dumps(key).encode() for key in keys}
        self._patterns = {
            key: re.compile(re.escape(json.dumps(key).encode()) + rb'[ \t]*:[ \t]*("(?:[^"\\]|\\.){0,4096}")')
            for key in keys
        }

    def resume(
        self,
        *,
        read_bytes: int,
        origin: str | None,
        has_record: bool,
        nul_at: int | None,
        collected: Mapping[str, Collection[str]],
    ) -> None:
        """Go on with a transcript of which that much was looked at before, up to a newline.

        Args:
            read_bytes: How much that was.
            origin: What was found in it, as the rest.
            has_record: As the attribute.
            nul_at: As the attribute.
            collected: As the attribute.
        """
        self.read_bytes = read_bytes
        self.ends_with_newline = read_bytes > 0
        self.origin = origin
        self.has_record = has_record
        self.nul_at = nul_at
        for key, values in self._values.items():
            values.update(json.dumps(value).encode() for value in collected.get(key, ()))

    @property
    def collected(self) -> Mapping[str, frozenset[str]]:
        """The values found so far of each key, at most 256."""
        return {key: frozenset(map(decode_string, raw)) for key, raw in self._values.items()}

    def feed(self, data: bytes) -> None:
        """Look at the next piece of the input."""
        if not data:
            return
        if self.nul_at is None and (at := data.find(b"\0")) >= 0:
            self.nul_at = self.read_bytes + at
        self.read_bytes += len(data)
        self.ends_with_newline = data.endswith(b"\n")
        for block in self._blocks.feed(data):
            self._look(block)

    def finish(self) -> None:
        """Take note that the input has ended."""
        rest = self._blocks.rest
        if rest:
            if not is_json(rest):
                self.torn_at = self.read_bytes - len(rest)
            self._look(rest)

    def _look(self, block: bytes | bytearray) -> None:
        if self.origin is None:
            self.origin = find_origin(block)
        if self._is_record is not None and not self.has_record and self._asked_count < MAX_ASKED_COUNT:
            self.has_record = any(map(self._is_record, self._counted(_lines(block))))
        for key, pattern in self._patterns.items():
            values = self._values[key]
            # Most blocks have none: to look for the name alone, by SIMD, takes a tenth of the time.
            if len(values) < MAX_VALUES_COUNT and stringzilla.find(block, self._names[key]) >= 0:
                # One by one: of a very long line all of them would take several times its memory.
                for found in pattern.finditer(block):
                    values.add(found[1])
                    if len(values) >= MAX_VALUES_COUNT:
                        break

    def _counted(self, lines: Iterator[bytes]) -> Iterator[bytes]:
        for line in lines:
            self._asked_count += 1
            yield line


def _lines(block: bytes | bytearray) -> Iterator[bytes]:
    """Yield the lines of a block without their newlines; of a long one, which comes alone, with a single copy."""
    if isinstance(block, bytearray):
        yield bytes(memoryview(block)[: len(block) - block.endswith(b"\n")])
    else:
        for line in io.BytesIO(block):
            yield line.removesuffix(b"\n")
