"""Redact contents as they stream by: JSONL line by line, other files whole.

The one rule: a line leaves only after all of it has been looked at, so a secret is found wherever the input was cut.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from host_client.session.redaction_token import TokenRedactor

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from host_client.session.redaction import Redaction
    from host_client.session.redaction_token import Edit


class Redactor:
    r"""Redacts one JSONL file. Lines end at `\n` and nowhere else; memory is bounded by a line and a piece.

    Lines that are not JSON, such as a torn last one, are redacted as text, with bytes that are not UTF-8 kept.

    Args:
        redaction: The rules.
        cuts: Offsets into the input whose place in the output is asked for.

    Attributes:
        counts: Hits so far of each rule, by its name.
        read_bytes: What was taken.
        written_bytes: What was given.
        line_read_bytes: Offset in the input behind the last line that ended.
        line_written_bytes: The same place in the output.
        cut_positions: Place in the output of each cut that has been passed: of one within something that was
            replaced, the end of what came for it.
    """

    def __init__(self, redaction: Redaction, *, cuts: Sequence[int] = ()) -> None:
        self._counts: dict[str, int] = {rule.name: 0 for rule in redaction.rules}
        self._tokens = TokenRedactor(redaction, self._counts)
        self._reads_all = redaction.reads_all
        self._pending: list[bytes] = []  # a line whose end has not come
        self._cuts = sorted(cuts)
        self.counts: Mapping[str, int] = self._counts
        self.read_bytes = 0
        self.written_bytes = 0
        self.line_read_bytes = 0
        self.line_written_bytes = 0
        self.cut_positions: dict[int, int] = {}
        self._note(0, 0, [], ends_line=False)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take the next piece of the input; yield what is ready of the output.

        The caller must exhaust the iterator before the next call.

        Raises:
            ConfigurationError: `invalid_argument`: a function of the rules failed.
        """
        self.read_bytes += len(data)
        end = data.rfind(b"\n") + 1
        if not end:
            if data:
                self._pending.append(data)
            return
        block = b"".join([*self._pending, data[:end]])
        self._pending = [data[end:]] if end < len(data) else []
        yield from self._lines(block)

    def finish(self) -> Iterator[bytes]:
        """Yield the rest of the output: a last line without its end.

        Raises:
            ConfigurationError: `invalid_argument`: a function of the rules failed.
        """
        line = b"".join(self._pending)
        self._pending = []
        if line:
            yield self._changed(line, self._tokens.edits(line), ends_line=False)

    def _lines(self, block: bytes) -> Iterator[bytes]:
        """Yield whole lines; neighbours that stay as they are go out together."""
        if not self._reads_all and self._tokens.screen.clears(block):
            yield self._changed(block, [], ends_line=True)
            return
        kept = start = 0
        while start < len(block):
            if not self._reads_all:
                place = self._tokens.screen.find(block, start)
                if place < 0:
                    break
                start = block.rfind(b"\n", 0, place) + 1
            end = block.index(b"\n", start) + 1
            if edits := self._tokens.edits(block[start : end - 1]):
                if kept < start:
                    yield self._changed(block[kept:start], [], ends_line=True)
                yield self._changed(block[start:end], edits, ends_line=True)
                kept = end
            start = end
        if kept < len(block):
            yield self._changed(block[kept:], [], ends_line=True)

    def _changed(self, data: bytes, edits: Sequence[Edit], *, ends_line: bool) -> bytes:
        """Return the output of a part of the input and count it."""
        output = _edited(data, edits)
        self._note(len(data), len(output), edits, ends_line=ends_line)
        return output

    def _note(self, read_bytes: int, written_bytes: int, edits: Sequence[Edit], *, ends_line: bool) -> None:
        begin = self.line_read_bytes
        reach = bisect_right(self._cuts, begin + read_bytes)
        for cut in self._cuts[:reach]:
            self.cut_positions[cut] = self.line_written_bytes + _moved(cut - begin, edits)
        del self._cuts[:reach]
        self.written_bytes += written_bytes
        if ends_line:
            self.line_read_bytes += read_bytes
            self.line_written_bytes += written_bytes


class DocumentRedactor:
    """Redacts one file as a whole: `is_json` value by value when it reads as JSON, else as text. Memory is its size.

    The same contract as `Redactor`.

    Args:
        redaction: The rules.
        is_json: Whether the file is meant to be JSON.

    Attributes:
        counts: Hits of each rule, by its name.
        is_binary: After `finish`: the file is not UTF-8 text; it came out unchanged. A NUL makes a file binary as well.
    """

    def __init__(self, redaction: Redaction, *, is_json: bool) -> None:
        self._counts: dict[str, int] = {rule.name: 0 for rule in redaction.rules}
        self._tokens = TokenRedactor(redaction, self._counts)
        self._is_json = is_json
        self._pieces: list[bytes] = []
        self.counts: Mapping[str, int] = self._counts
        self.is_binary = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take the next piece of the input; nothing comes out before `finish`."""
        self._pieces.append(data)
        yield from ()

    def finish(self) -> Iterator[bytes]:
        """Yield the output.

        Raises:
            ConfigurationError: `invalid_argument`: a function of the rules failed.
        """
        data = b"".join(self._pieces)
        self._pieces = []
        self.is_binary = not _is_text(data)
        if not self.is_binary:
            data = _edited(data, (self._tokens.edits if self._is_json else self._tokens.text_edits)(data))
        if data:
            yield data


def redactor_for(path: str, redaction: Redaction) -> Redactor | DocumentRedactor:
    """Return what redacts a file of that name: `.jsonl` by line, `.json` as a JSON document, any other as text."""
    if path.endswith(".jsonl"):
        return Redactor(redaction)
    return DocumentRedactor(redaction, is_json=path.endswith(".json"))


def _edited(data: bytes, edits: Sequence[Edit]) -> bytes:
    if not edits:
        return data
    parts: list[bytes] = []
    at = 0
    for edit in edits:
        parts += [data[at : edit.start], edit.replacement]
        at = edit.end
    return b"".join([*parts, data[at:]])


def _moved(offset: int, edits: Sequence[Edit]) -> int:
    """Return where an offset of the input lies in the output."""
    shift = 0
    for edit in edits:
        if edit.start >= offset:
            break
        grown = len(edit.replacement) - (edit.end - edit.start)
        shift += grown
        if offset < edit.end:
            return edit.end + shift
    return offset + shift


def _is_text(data: bytes) -> bool:
    if b"\0" in data:
        return False
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
