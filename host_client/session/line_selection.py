"""The lines of a JSONL file that belong to one conversation, where many conversations share the file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from host_client.session.line_block import LineBlocks

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator


def selected_lines(pieces: Iterable[bytes], key: str, values: Collection[str]) -> Iterator[bytes]:
    """Yield the lines whose top-level key has one of some texts, in their order and byte for byte.

    Each ends with a newline: a last line that has none is given one. Lines that are not JSON objects belong to nobody.

    Args:
        pieces: The file's content, cut anywhere.
        key: The key.
        values: The texts.
    """
    blocks = LineBlocks()
    for piece in pieces:
        for block in blocks.feed(piece):
            yield from (line + b"\n" for line in bytes(block[:-1]).split(b"\n") if _is_selected(line, key, values))
    if blocks.rest and _is_selected(blocks.rest, key, values):
        yield bytes(blocks.rest) + b"\n"


def _is_selected(line: bytes | bytearray, key: str, values: Collection[str]) -> bool:
    try:
        told = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(told, dict) and isinstance(value := told.get(key), str) and value in values
