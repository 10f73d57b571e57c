"""Look at a transcript: what it holds, and what is unusual about it. Nothing is repaired, and nothing is guessed.

The one rule: memory is that of the longest line, of about a hundred bytes for each `uuid`, and a constant; whatever is
listed is bounded, and all of it is counted.
"""

from __future__ import annotations

import codecs
import io
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from host_client.session.failure import named_failures
from host_client.session.line import BYTE_ORDER_MARK, find_directories, is_json, read_string
from host_client.session.line_block import LineBlocks
from host_client.session.line_file import LineFile
from host_client.session.line_header import read_headers

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from host_client.session.line_header import Header

MAX_LISTED_COUNT = 256
"""Different values of one kind, and findings of one word, that are listed."""
_STEP_BYTES = 1 << 20


class TranscriptFinding(NamedTuple):
    """Something unusual about a transcript.

    Attributes:
        word: `torn_tail`: the last line neither ends with a newline nor is JSON. `nul_bytes`, `invalid_utf8`,
            `invalid_json`, `blank_line`: a line has or is that. `several_values`: several JSON values in one line.
            `bom`: a byte order mark in front of a line. `missing_ordinal`: a line without number in a Codex rollout
            whose lines are numbered. `dangling_parent`: `parentUuid` of a line names no `uuid` of the file.
            `no_origin`: no line names a working directory. `empty`: not one byte.
        line_number: The line, from 1; None: it is about the whole.
        offset: Where the line starts, in bytes of the content.
    """

    word: str
    line_number: int | None
    offset: int


@dataclass(frozen=True, slots=True)
class Inspection:
    """What a transcript holds. Of types, directories and ids the first 256 different ones are listed.

    Attributes:
        host_path: The file.
        bytes_count: Size of its content, decompressed.
        lines_count: Its lines, a last one without newline too.
        types: How often each `type`, in Codex `type/payload.type`, was met.
        directories: How often each working directory was met, at any depth.
        session_ids: How many records name each session.
        origin: The first working directory named, which a relocation would replace; None: none is.
        torn_at: Offset of a last line that neither ends with a newline nor is JSON; None: there is none.
        ends_with_newline: Whether the last byte is a newline.
        findings: What is unusual, in the order of lines; at most 256 of each word.
        finding_counts: How often each word was found.
    """

    host_path: Path
    bytes_count: int
    lines_count: int
    types: Mapping[str, int]
    directories: Mapping[str, int]
    session_ids: Mapping[str, int]
    origin: str | None
    torn_at: int | None
    ends_with_newline: bool
    findings: Sequence[TranscriptFinding]
    finding_counts: Mapping[str, int]


def inspect_transcript(host_path: Path) -> Inspection:
    """Read a transcript of Claude Code or Codex once and tell what it holds; a `.zst` one is decompressed. Blocks.

    Raises:
        WorkspaceError: `not_found`, `not_a_file`, `unsafe_path` (it is a link), `access`.
        SessionError: `corrupt`: compressed content is damaged.
        LimitError: `max_bytes`: a line is longer than 512 MiB.
    """
    look = _Look()
    blocks = LineBlocks()
    with LineFile(host_path) as file, named_failures(host_path):
        for piece in file.pieces():
            for block in blocks.feed(piece):
                look.at_block(block)
    torn_at = None
    if blocks.rest:
        torn_at = None if is_json(blocks.rest) else look.bytes_count
        look.at_block(blocks.rest)
    return look.inspection(host_path, torn_at, ends_with_newline=look.bytes_count > 0 and not blocks.rest)


class _Look:
    """What was seen so far."""

    def __init__(self) -> None:
        self.bytes_count = 0
        self._lines_count = 0
        self._types: Counter[str] = Counter()
        self._directories: Counter[str] = Counter()
        self._session_ids: Counter[str] = Counter()
        self._origin: str | None = None
        self._is_paginated = False
        # Of ids their hashes: two of 64 bits are never equal by chance.
        self._uuids: set[int] = set()
        self._awaited: dict[int, list[tuple[int, int]]] = {}
        self._findings: list[TranscriptFinding] = []
        self._finding_counts: Counter[str] = Counter()

    def at_block(self, block: bytes | bytearray) -> None:
        """Look at lines: a block that is a `bytearray` is one."""
        has_nul = b"\0" in block
        has_foreign = not _is_utf8(block)
        for line in io.BytesIO(block) if isinstance(block, bytes) else (block,):
            self._lines_count += 1
            if has_nul and b"\0" in line:
                self._find("nul_bytes")
            if has_foreign and not _is_utf8(line):
                self._find("invalid_utf8")
            self._at_line(line)
            self.bytes_count += len(line)

    def inspection(self, host_path: Path, torn_at: int | None, *, ends_with_newline: bool) -> Inspection:
        """Return the result."""
        for places in self._awaited.values():
            for number, offset in places:
                self._list(TranscriptFinding("dangling_parent", number, offset))
        if not self.bytes_count:
            self._list(TranscriptFinding("empty", None, 0))
        elif self._origin is None:
            self._list(TranscriptFinding("no_origin", None, 0))
        return Inspection(
            host_path=host_path,
            bytes_count=self.bytes_count,
            lines_count=self._lines_count,
            types=dict(self._types),
            directories=dict(self._directories),
            session_ids=dict(self._session_ids),
            origin=self._origin,
            torn_at=torn_at,
            ends_with_newline=ends_with_newline,
            findings=sorted(self._findings, key=lambda finding: finding.offset),
            finding_counts=dict(self._finding_counts),
        )

    def _at_line(self, line: bytes | bytearray) -> None:
        if line.startswith(BYTE_ORDER_MARK):
            self._find("bom")
        headers = read_headers(line)
        if not headers:
            if not line.endswith(b"\n"):
                self._find("torn_tail")
            else:
                self._find("invalid_json" if line.strip(b" \t\r\n") else "blank_line")
            return
        if len(headers) > 1:
            self._find("several_values")
        for header in headers:
            self._at_header(header)
        for _, start in find_directories(line):
            self._count(self._directories, [read_string(line, start)])

    def _at_header(self, header: Header) -> None:
        if self._origin is None:
            self._origin = header.directory
        self._count(self._types, [header.kind])
        self._count(self._session_ids, header.session_ids)
        if self._is_paginated and not header.has_ordinal:
            self._find("missing_ordinal")
        self._is_paginated = self._is_paginated or header.is_paginated
        if header.uuid:
            name = hash(header.uuid)
            self._uuids.add(name)
            self._awaited.pop(name, None)
        if header.parent and (name := hash(header.parent)) not in self._uuids:
            self._awaited.setdefault(name, []).append((self._lines_count, self.bytes_count))

    def _find(self, word: str) -> None:
        self._list(TranscriptFinding(word, self._lines_count, self.bytes_count))

    def _list(self, finding: TranscriptFinding) -> None:
        self._finding_counts[finding.word] += 1
        if self._finding_counts[finding.word] <= MAX_LISTED_COUNT:
            self._findings.append(finding)

    @staticmethod
    def _count(counts: Counter[str], values: Iterable[str | None]) -> None:
        for value in values:
            if value is not None and (value in counts or len(counts) < MAX_LISTED_COUNT):
                counts[value] += 1


def _is_utf8(text: bytes | bytearray) -> bool:
    """Tell whether a text is UTF-8, without a copy of the whole."""
    if text.isascii():
        return True
    decoder = codecs.getincrementaldecoder("utf-8")()
    view = memoryview(text)
    try:
        for start in range(0, len(view), _STEP_BYTES):
            decoder.decode(view[start : start + _STEP_BYTES])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True
