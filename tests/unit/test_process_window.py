"""What is kept of output: in memory, in a ring in a file, on disks that fail."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_agent.core import process_window
from sandbox_agent.core.paths import Directory
from sandbox_agent.core.process_window import MEMORY_BYTES, LostError, Window, open_spool
from sandbox_api.errors import WorkspaceError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KEEP_BYTES = 100_000


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Directory]:
    """Where files of output go."""
    path = os.fsencode(tmp_path)
    with Directory(os.open(path, os.O_RDONLY | os.O_DIRECTORY), path) as held:
        yield held


def filled(window: Window, count: int) -> bytes:
    """Append pieces without regard to what is lost; return all of them."""
    pieces = [bytes([index % 251]) * 9973 for index in range(count)]
    for piece in pieces:
        assert window.append(memoryview(piece), window.end) == len(piece)
    return b"".join(pieces)


def everything(window: Window) -> bytes:
    """Read all that is kept, a little at a time."""
    parts, offset = [], window.start
    while part := window.read(offset, 7919):
        parts.append(part)
        offset += len(part)
    return b"".join(parts)


@pytest.mark.parametrize("count", [0, 1, 6, 7, 10, 11, 50])
def test_last_bytes_are_kept(folder: Directory, count: int) -> None:
    """Whatever was appended, the last bytes of it are there, and what lies before is refused."""
    window = Window(KEEP_BYTES, lambda: open_spool(folder))
    data = filled(window, count)
    assert everything(window) == data[-KEEP_BYTES:]
    assert (window.start, window.end) == (max(0, len(data) - KEEP_BYTES), len(data))
    if window.start:
        with pytest.raises(LostError):
            window.read(window.start - 1, 1)
    assert window.has_spool == (len(data) > MEMORY_BYTES)
    assert not folder.names()
    window.close()


@given(st.lists(st.integers(1, 70_000), max_size=12))
def test_any_pieces(sizes: list[int]) -> None:
    """Pieces of any size are kept alike."""
    window = Window(MEMORY_BYTES + 1, lambda: os.memfd_create("spool"))
    data = b""
    for number, size in enumerate(sizes):
        piece = bytes([number]) * min(size, MEMORY_BYTES)
        data += piece
        assert window.append(memoryview(piece), window.end) == len(piece)
    assert everything(window) == data[-MEMORY_BYTES - 1 :]
    window.close()


def test_room(folder: Directory) -> None:
    """There is room as long as nothing is lost from a floor on."""
    window = Window(KEEP_BYTES, lambda: open_spool(folder))
    data = filled(window, 10)
    assert window.room_bytes(0) == KEEP_BYTES - len(data)
    assert window.room_bytes(len(data) - 10) == KEEP_BYTES - 10
    window.close()


def test_folder_without_unnamed_files(folder: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a file must have a name it loses it at once."""
    real = os.open

    def refuse(path: bytes, flags: int, *arguments: int, **keywords: int) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "")
        return real(path, flags, *arguments, **keywords)

    monkeypatch.setattr(process_window.os, "open", refuse)
    window = Window(KEEP_BYTES, lambda: open_spool(folder))
    data = filled(window, 20)
    assert everything(window) == data[-KEEP_BYTES:]
    assert window.has_spool
    assert not folder.names()
    window.close()


@pytest.mark.parametrize("error", [OSError(errno.EROFS, ""), WorkspaceError("access", "no")])
def test_no_file_at_all(error: Exception) -> None:
    """Without a file what memory keeps is kept, and no more is taken than fits."""

    def refuse() -> int:
        raise error

    window = Window(KEEP_BYTES, refuse)
    assert window.append(memoryview(bytes(MEMORY_BYTES)), 0) == MEMORY_BYTES
    assert window.append(memoryview(b"x" * 100), 0) == 0
    assert window.append(memoryview(b"x" * 100), 60) == 60
    assert everything(window) == bytes(MEMORY_BYTES - 60) + b"x" * 60
    window.close()


def test_disk_that_fills_up(folder: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The window becomes as large as what was written; nothing that was kept is lost, and it goes round from there."""
    real, limit = os.pwrite, 80_000

    def write(fd: int, data: memoryview, at: int) -> int:
        if at >= limit:
            raise OSError(errno.ENOSPC, "")
        return real(fd, data[: limit - at], at)

    monkeypatch.setattr(process_window.os, "pwrite", write)
    window = Window(KEEP_BYTES, lambda: open_spool(folder))
    data = os.urandom(90_000)
    assert window.append(memoryview(data), 0) == limit
    assert everything(window) == data[:limit]
    assert window.room_bytes(0) == 0
    assert window.append(memoryview(data[limit:]), 10_000) == 10_000
    assert everything(window) == data[10_000:]
    window.close()


@pytest.mark.parametrize(
    "sizes", [[80_000, 80_000, 10], [60_000, 20_000, 80_000], [60_000, 20_000], [100, 90_000, 90_000]]
)
def test_hardly_any_room(folder: Directory, monkeypatch: pytest.MonkeyPatch, sizes: list[int]) -> None:
    """A disk without any room leaves what memory keeps."""
    real = os.pwrite
    monkeypatch.setattr(process_window.os, "pwrite", lambda fd, data, at: real(fd, data[: max(0, 1000 - at)], at))
    window = Window(KEEP_BYTES, lambda: open_spool(folder))
    data = os.urandom(KEEP_BYTES)
    taken = 0
    for size in sizes:
        taken += window.append(memoryview(data)[taken : taken + size], 0)
    assert everything(window) == data[:taken]
    assert taken == min(sum(sizes), MEMORY_BYTES)
    assert window.room_bytes(0) == MEMORY_BYTES - taken
    window.close()


def test_disk_that_breaks(folder: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where what is there cannot be written again everything before is refused, not made up."""
    window = Window(KEEP_BYTES, lambda: open_spool(folder))
    filled(window, 20)

    def refuse(*_: object) -> int:
        raise OSError(errno.EIO, "")

    monkeypatch.setattr(process_window.os, "pwrite", refuse)
    end = window.end
    assert window.append(memoryview(b"after"), end) == 0
    assert window.append(memoryview(b"after"), end) == 5
    with pytest.raises(LostError):
        window.read(end - 1, 1)
    assert window.read(end, 100) == b"after"
    window.close()
