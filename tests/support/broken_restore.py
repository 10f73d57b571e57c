"""Restores whose stream breaks after so many bytes of content, in the daemon's core."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from support.restoring import entries_of, open_restore

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from sandbox_agent.core.restore import Restore, Result
    from sandbox_agent.core.sandbox import Place, Sandbox

RESTORE_ID = "attempt_1"

LARGE = bytes(range(256)) * 2000
FILES = {"a/one": b"1" * 100, "a/two": b"2" * 200, "large": LARGE, "state.json": b"{}"}
BEFORE_LARGE = 300
PART = 200_000


class StreamError(Exception):
    """Stands for whatever a broken stream raises."""


def content_of(files: Mapping[str, bytes], lacking: list[bool], restore: Restore | None = None) -> bytes:
    """Return the contents that are lacking, in order; behind the parts that the restore goes on with."""
    offsets = {index: part.size for index, part in restore.parts} if restore else {}
    return b"".join(
        files[entry.path.decode()][offsets.get(index, 0) :]
        for index, (entry, is_lacking) in enumerate(zip(entries_of(files), lacking, strict=True))
        if is_lacking
    )


def break_restore(
    held: Sandbox,
    files: Mapping[str, bytes],
    sent_bytes: int,
    where: Place | None = None,
    *,
    restore_id: str = RESTORE_ID,
    owner: tuple[int, int] | None = None,
) -> None:
    """Begin a restore and break its stream after so many bytes of content."""
    with suppress(StreamError), open_restore(held, files, where, restore_id=restore_id, owner=owner) as restore:
        restore.feed(content_of(files, restore.begin())[:sent_bytes])
        restore.keep()
        raise StreamError


def go_on(held: Sandbox, files: Mapping[str, bytes] = FILES, restore_id: str = RESTORE_ID) -> tuple[int, Result]:
    """Restore with all parts that are offered; return how many bytes were fed."""
    with open_restore(held, files, restore_id=restore_id) as restore:
        lacking = restore.begin()
        content = content_of(files, lacking, restore)
        restore.go_on([index for index, _ in restore.parts])
        assert restore.left_bytes == len(content)
        restore.feed(content)
        return len(content), restore.commit()


def staging_of(home: Path) -> list[Path]:
    """Return the staging directories of the flat format in a home."""
    return sorted((home / ".demo/sessions").glob(".outpost-session-*"))
