"""Redact contents as they stream by: JSONL line by line, other files whole.

The one rule: a line leaves only after all of it has been looked at, so a secret is found wherever the input was cut.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from host_client.session.line_block import check_whole
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

    Attributes:
        counts: Hits so far of each rule, by its name.
    """

    def __init__(self, redaction: Redaction) -> None:
        self._counts: dict[str, int] = {rule.name: 0 for rule in redaction.rules}
        self._tokens = TokenRedactor(redaction, self._counts)
        self._reads_all = redaction.reads_all
        self._pending: list[bytes] = []  # a line whose end has not come
        self._pending_bytes = 0
        self.counts: Mapping[str, int] = self._counts

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take the next piece of the input; yield the output of all lines that have ended.

        The caller must exhaust the iterator before the next call.

        Raises:
            ConfigurationError: `invalid_argument`: a function of the rules failed.
            LimitError: `max_bytes`: a line is longer than 512 MiB.
        """
        end = data.rfind(b"\n") + 1
        if not end:
            if data:
                self._pending.append(data)
                self._pending_bytes += len(data)
                check_whole(self._pending_bytes)
            return
        block = b"".join([*self._pending, data[:end]])
        self._pending = [data[end:]] if end < len(data) else []
        self._pending_bytes = len(data) - end
        yield from self._lines(block)

    def finish(self) -> Iterator[bytes]:
        """Yield the rest of the output: a last line without its end.

        Raises:
            ConfigurationError: `invalid_argument`: a function of the rules failed.
        """
        line = b"".join(self._pending)
        self._pending = []
        if line:
            yield _edited(line, self._tokens.edits(line))

    def _lines(self, block: bytes) -> Iterator[bytes]:
        """Yield whole lines; neighbours that stay as they are go out together."""
        if not self._reads_all and self._tokens.screen.clears(block):
            yield block
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
                    yield block[kept:start]
                yield _edited(block[start:end], edits)
                kept = end
            start = end
        if kept < len(block):
            yield block[kept:]


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
        self._size_bytes = 0
        self.counts: Mapping[str, int] = self._counts
        self.is_binary = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take the next piece of the input; nothing comes out before `finish`.

        Raises:
            LimitError: `max_bytes`: the file has more than 512 MiB.
        """
        self._pieces.append(data)
        self._size_bytes += len(data)
        check_whole(self._size_bytes, "a file that is to be redacted")
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
    parts: list[bytes] = []
    at = 0
    for edit in edits:
        parts += [data[at : edit.start], edit.replacement]
        at = edit.end
    return b"".join([*parts, data[at:]])


def _is_text(data: bytes) -> bool:
    if b"\0" in data:
        return False
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
