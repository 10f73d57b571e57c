"""One transcript on its way from the sandbox to the host's file: unpacked, redacted, relocated, packed.

The one rule: what has no newline yet waits in front of all steps, so that it can be dropped when the CLI is still
writing it, and so that the place in the output of any line's start is known when the line is reached.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from host_client.session.compression import Decompressor, compressor
from host_client.session.line_block import check_whole
from sandbox_api.limits import CHUNK_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from host_client.session.redactor import Redactor
    from host_client.session.relocate import Relocator
    from host_client.session.transcript_scan import TranscriptScan


@dataclass(frozen=True, slots=True)
class Digits:
    """New digits for a number in the first line: where the old ones start and end, and what comes for them."""

    start: int
    end: int
    digits: bytes

    @property
    def growth_bytes(self) -> int:
        """How much longer the line becomes."""
        return len(self.digits) - (self.end - self.start)

    def put(self, head: bytes) -> bytes:
        """Return a beginning of the transcript, up to behind the number at least, with the new digits."""
        return head[: self.start] + self.digits + head[self.end :]


class TranscriptStream:
    """The steps of one transcript. Call `feed` with the pieces in their order, then `finish` once. Methods block.

    Args:
        write: Takes the output.
        relocator: Moves it.
        redactor: Takes secrets out; None: there are no rules.
        scan: Looks at the output, unpacked; None: nobody asks.
        digits: What becomes of a number in its first line; None: nothing.
        cuts: Offsets into the unpacked input whose places in the output are asked for; the relocator must know the
            origin then, so that it holds no line back.
        is_compressed: Whether input and output are Zstandard frames.
        check: Told how much input there was so far, unpacked, and may refuse it: a few bytes may stand for very many.
        start: Offset of the input that what is fed begins at, and its place in the output.

    Attributes:
        cut_positions: For each of `cuts` that was reached its place in the unpacked output: of one within a line, as
            far behind the line's start as in the input.
        is_changed: After `finish`, whether the output differs from the input, unpacked.
    """

    def __init__(
        self,
        write: Callable[[bytes], object],
        relocator: Relocator,
        *,
        redactor: Redactor | None = None,
        scan: TranscriptScan | None = None,
        digits: Digits | None = None,
        cuts: Iterable[int] = (),
        is_compressed: bool = False,
        check: Callable[[int], object] | None = None,
        start: tuple[int, int] = (0, 0),
    ) -> None:
        self.cut_positions: dict[int, int] = {}
        self.is_changed = digits is not None
        self._write = write
        self._relocator = relocator
        self._redactor = redactor
        self._scan = scan
        self._digits = digits
        self._first = b""
        self._cuts = deque(sorted(set(cuts)))
        self._read_bytes, self._written_bytes = start
        self._open_bytes = 0  # of a line whose end the steps have not been given
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._check = check
        self._taken_bytes = 0
        self._decompressor = Decompressor() if is_compressed else None
        self._compressor = compressor() if is_compressed else None

    def feed(self, data: bytes) -> None:
        """Take the next piece of the input.

        Raises:
            SessionError: `corrupt`: the frames are damaged.
            LimitError: `max_bytes`: a line is longer than 512 MiB.
            OutpostError: what redaction, relocation or writing raise.
        """
        for piece in (data,) if self._decompressor is None else self._decompressor.feed(data):
            for start in range(0, len(piece), CHUNK_BYTES):  # what is unpacked may be large
                self._take(piece[start : start + CHUNK_BYTES])

    def finish(self, *, whole_lines: bool) -> int:
        """Take note that the input has ended.

        Args:
            whole_lines: Drop a last line that has no newline.

        Returns:
            How many bytes were dropped.

        Raises:
            OutpostError: those of `feed`.
        """
        if self._decompressor is not None:
            self._decompressor.finish()
        dropped_bytes = self._waiting_bytes if whole_lines else 0
        if not whole_lines:
            while self._waiting:
                self._pass(self._waiting.popleft())
        if self._digits is not None and self._first:
            self._relocate((self._first,))  # a first line that ends before the number
        if self._redactor is not None:
            self._relocate(self._redactor.finish(), is_redacted=True)
            self.is_changed |= any(self._redactor.counts.values())
        self._give(self._relocator.finish())
        self.is_changed |= self._relocator.changed_count > 0
        for cut in self._cuts:
            # Behind the end it stays as far behind: who reads it is to see what is wrong.
            self.cut_positions[cut] = self._written_bytes + cut - self._read_bytes
        if self._scan is not None:
            self._scan.finish()
        if self._compressor is not None:
            self._write(self._compressor.flush())
        return dropped_bytes

    def _take(self, data: bytes) -> None:
        self._taken_bytes += len(data)
        if self._check is not None:
            self._check(self._taken_bytes)
        end = data.rfind(b"\n") + 1
        if end:
            while self._waiting:
                self._pass(self._waiting.popleft())
            self._pass(data[:end])
            self._waiting_bytes = 0
        if end < len(data):
            self._waiting.append(data[end:])
            self._waiting_bytes += len(data) - end
            check_whole(self._waiting_bytes)

    def _pass(self, data: bytes) -> None:
        """Take a part of the unpacked input, stopping at the cuts."""
        while self._cuts and self._cuts[0] <= self._read_bytes + len(data):
            cut = self._cuts.popleft()
            at = cut - self._read_bytes
            line_start = data.rfind(b"\n", 0, at) + 1
            self._step(data[:line_start])
            # What the steps hold back is nothing but the line that the cut lies in.
            self.cut_positions[cut] = self._written_bytes + self._open_bytes + at - line_start
            data = data[line_start:]
        self._step(data)

    def _step(self, data: bytes) -> None:
        self._read_bytes += len(data)
        end = data.rfind(b"\n") + 1
        self._open_bytes = len(data) - end + (0 if end else self._open_bytes)
        if self._digits is None:
            self._relocate((data,))
            return
        self._first += data
        if len(self._first) < self._digits.end:
            return
        first, self._first, digits, self._digits = self._first, b"", self._digits, None
        self._relocate((digits.put(first),))

    def _relocate(self, pieces: Iterable[bytes], *, is_redacted: bool = False) -> None:
        for piece in pieces:
            if self._redactor is None or is_redacted:
                self._give(self._relocator.feed(piece))
            else:
                self._relocate(self._redactor.feed(piece), is_redacted=True)

    def _give(self, pieces: Iterator[bytes]) -> None:
        for piece in pieces:
            self._written_bytes += len(piece)
            if self._scan is not None:
                self._scan.feed(piece)
            if self._compressor is None:
                self._write(piece)
            elif data := self._compressor.compress(piece):
                self._write(data)
