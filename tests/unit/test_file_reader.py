"""Reading one file, whatever a sandbox puts in the way or does meanwhile."""

from __future__ import annotations

import hashlib
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from sandbox_agent.core import file_reader
from sandbox_agent.core.file_reader import FileReader
from sandbox_agent.core.paths import LinkError, Roots
from sandbox_api.errors import ConfigurationError, SessionError, WorkspaceError
from sandbox_api.limits import MIB
from support.special import make_special

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root; beside it lies what must not be reached."""
    path = tmp_path / "root"
    path.mkdir()
    return path


@pytest.fixture
def roots(root: Path) -> Iterator[Roots]:
    """The root, held."""
    with closing(Roots([os.fsencode(root)])) as held:
        yield held


def _sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _read(roots: Roots, path: Path, offset: int = 0, prefix_sha256: bytes = b"", max_bytes: int = 0) -> bytes:
    with FileReader(
        roots, os.fsencode(path), offset=offset, prefix_sha256=prefix_sha256, max_bytes=max_bytes
    ) as reader:
        data = b"".join(reader.pieces())
        assert len(data) == reader.payload_bytes
        assert reader.sha256 == _sha256(data)
        return data


@pytest.mark.parametrize(
    ("offset", "max_bytes", "expected"),
    [(0, 0, b"0123456789"), (3, 0, b"3456789"), (10, 0, b""), (0, 4, b"0123"), (8, 4, b"89"), (0, 99, b"0123456789")],
)
def test_read_range(roots: Roots, root: Path, offset: int, max_bytes: int, expected: bytes) -> None:
    """What is read starts at the offset and ends at the file's end or the limit; the digest is of exactly that."""
    (root / "file").write_bytes(b"0123456789")
    assert _read(roots, root / "file", offset, b"", max_bytes) == expected
    assert _read(roots, root / "file", offset, _sha256(b"0123456789"[:offset]), max_bytes) == expected


def test_read_large(roots: Roots, root: Path) -> None:
    """A file of several chunks comes in pieces of at most one."""
    content = os.urandom(5 << 19)
    (root / "file").write_bytes(content)
    with FileReader(roots, os.fsencode(root / "file"), offset=0, prefix_sha256=b"", max_bytes=0) as reader:
        pieces = list(reader.pieces())
    assert b"".join(pieces) == content
    assert [len(piece) for piece in pieces] == [1 << 20, 1 << 20, 1 << 19]


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ((b"01", b"", b"234"), None),
        ((b"01", b"2X4"), "digest_mismatch"),
        ((b"01234", b"56789A"), "digest_mismatch"),
    ],
)
def test_read_checks_the_parts_that_the_caller_holds(
    roots: Roots, root: Path, parts: tuple[bytes, ...], reason: str | None
) -> None:
    """What a caller got in parts is checked part by part, and read from behind the last."""
    (root / "file").write_bytes(b"0123456789")
    held = FileReader(
        roots,
        os.fsencode(root / "file"),
        offset=sum(map(len, parts)),
        prefix_sha256=b"".join(map(_sha256, parts)),
        max_bytes=0,
        prefix_sizes=[len(part) for part in parts],
    )
    if reason is None:
        with held as reader:
            assert b"".join(reader.pieces()) == b"56789"
        return
    with pytest.raises(SessionError) as caught, held:
        pass
    assert caught.value.reason == reason


@pytest.mark.parametrize("damaged", [None, 0, 1, 6, 7])
def test_read_compares_each_part_of_a_large_beginning(roots: Roots, root: Path, damaged: int | None) -> None:
    """Parts are hashed side by side; one wrong byte in any of them is found, and what follows is right all the same."""
    parts = [bytes([number]) * (3 * MIB + number) for number in range(8)]
    (root / "file").write_bytes(b"".join(parts) + b"tail")
    digests = [_sha256(part) for part in parts]
    if damaged is not None:
        digests[damaged] = _sha256(parts[damaged][:-1] + b"x")
    held = FileReader(
        roots,
        os.fsencode(root / "file"),
        offset=sum(map(len, parts)),
        prefix_sha256=b"".join(digests),
        max_bytes=0,
        prefix_sizes=[len(part) for part in parts],
    )
    if damaged is None:
        with held as reader:
            assert b"".join(reader.pieces()) == b"tail"
        return
    with pytest.raises(SessionError, match="digest_mismatch"), held:
        pass


def test_read_stops_at_the_first_part_that_is_wrong(roots: Roots, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a beginning that is another one no more is hashed than what is under way when that is seen."""
    (root / "file").write_bytes(bytes(100))
    seen, started = threading.Event(), []

    class Threads(ThreadPoolExecutor):
        def shutdown(self, *, wait: bool = True, cancel_futures: bool = False) -> None:
            super().shutdown(wait=False, cancel_futures=cancel_futures)
            seen.set()
            super().shutdown(wait=wait)

    def digest_at(_: FileReader, at: int, size: int) -> bytes:
        started.append((at, size))
        if at:
            seen.wait()
        return b""

    monkeypatch.setattr(file_reader, "ThreadPoolExecutor", Threads)
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    monkeypatch.setattr(FileReader, "_digest_at", digest_at)
    held = FileReader(
        roots,
        os.fsencode(root / "file"),
        offset=100,
        prefix_sha256=_sha256(bytes(10)) * 10,
        max_bytes=0,
        prefix_sizes=[10] * 10,
    )
    with pytest.raises(SessionError, match="digest_mismatch"), held:
        pass
    assert started in ([(0, 10)], [(0, 10), (10, 10)])


@pytest.mark.parametrize("size", [0, 1, MIB, 2 * MIB, 2 * MIB + 1])
def test_read_tells_the_digest_of_parts(roots: Roots, root: Path, size: int) -> None:
    """The end of the payload is the SHA-256 of those of its parts; the content is the same."""
    content = os.urandom(size)
    (root / "file").write_bytes(content)
    with FileReader(
        roots, os.fsencode(root / "file"), offset=0, prefix_sha256=b"", max_bytes=0, part_bytes=MIB
    ) as reader:
        assert b"".join(reader.pieces()) == content
        digests = [_sha256(content[at : at + MIB]) for at in range(0, size, MIB)]
        assert reader.sha256 == _sha256(b"".join(digests))


def test_read_refuses_parts_that_are_too_many_or_too_small(roots: Roots, root: Path) -> None:
    """Neither a digest for each few bytes nor thousands of parts to compare are worth what they cost."""
    (root / "file").write_bytes(b"")
    for options in (
        {"prefix_sha256": _sha256(b"") * 8193, "prefix_sizes": [0] * 8193},
        {"prefix_sha256": b"", "part_bytes": MIB - 1},
    ):
        held = FileReader(roots, os.fsencode(root / "file"), offset=0, max_bytes=0, **options)  # type: ignore[arg-type]
        with pytest.raises(ConfigurationError) as caught, held:
            pass
        assert caught.value.reason == "invalid_argument"


@pytest.mark.parametrize(("sizes", "digests_count"), [((2, 2), 2), ((2, 3), 1), ((5,), 2), ((), 2)])
def test_read_refuses_parts_that_do_not_fit(
    roots: Roots, root: Path, sizes: tuple[int, ...], digests_count: int
) -> None:
    """Parts that do not add up to the offset, or have not one digest each, are refused."""
    (root / "file").write_bytes(b"0123456789")
    held = FileReader(
        roots,
        os.fsencode(root / "file"),
        offset=5,
        prefix_sha256=bytes(32 * digests_count),
        max_bytes=0,
        prefix_sizes=sizes,
    )
    with pytest.raises(ConfigurationError) as caught, held:
        pass
    assert caught.value.reason == "invalid_argument"


@pytest.mark.parametrize(("offset", "prefix"), [(3, b"01X"), (11, b"0123456789X")])
def test_read_checks_what_the_caller_holds(roots: Roots, root: Path, offset: int, prefix: bytes) -> None:
    """What lies before the offset must be what the caller holds, and must be there."""
    (root / "file").write_bytes(b"0123456789")
    with pytest.raises(SessionError, match="digest_mismatch"):
        _read(roots, root / "file", offset, _sha256(prefix))


def test_read_behind_the_end(roots: Roots, root: Path) -> None:
    """Without a digest an offset behind the end is a mistake of the caller."""
    (root / "file").write_bytes(b"0")
    with pytest.raises(ConfigurationError, match="invalid_argument"):
        _read(roots, root / "file", 2)


@pytest.mark.parametrize("kind", ["directory", "fifo", "socket"])
def test_read_refuses_other_kinds(roots: Roots, root: Path, kind: str) -> None:
    """A directory, FIFO or socket is refused without opening it, and so without hanging."""
    with pytest.raises(WorkspaceError, match="not_a_file"):
        _read(roots, make_special(root / "x", kind))


def test_read_follows_no_link(roots: Roots, root: Path) -> None:
    """Neither the last step nor one on the way may be a link."""
    (root.parent / "secret").write_text("secret")
    (root / "link").symlink_to(root.parent / "secret")
    (root / "directory").symlink_to(root.parent)
    for path in (root / "link", root / "directory" / "secret"):
        with pytest.raises(LinkError):
            _read(roots, path)


def test_read_of_a_file_swapped_for_a_fifo(roots: Roots, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is swapped between the look and the open is found by the descriptor."""
    (root / "file").write_text("")
    make_special(root / "fifo", "fifo")
    opened = os.open

    def swapping(path: Any, *arguments: Any, **keywords: Any) -> int:
        return opened(b"fifo" if path == b"file" else path, *arguments, **keywords)

    monkeypatch.setattr(os, "open", swapping)
    with pytest.raises(WorkspaceError, match="not_a_file"):
        _read(roots, root / "file")


def test_read_ends_at_the_size_of_the_open(roots: Roots, root: Path) -> None:
    """A file that grows while it is read is no error: what was there at the open is what is read."""
    (root / "file").write_bytes(b"old")
    with FileReader(roots, os.fsencode(root / "file"), offset=0, prefix_sha256=b"", max_bytes=0) as reader:
        with (root / "file").open("ab") as growing:
            growing.write(b"new")
        assert b"".join(reader.pieces()) == b"old"
        assert reader.grew


def test_read_of_a_file_that_does_not_grow(roots: Roots, root: Path) -> None:
    """A file that is read in part has not grown for that."""
    (root / "file").write_bytes(b"0123456789")
    with FileReader(roots, os.fsencode(root / "file"), offset=2, prefix_sha256=b"", max_bytes=3) as reader:
        assert b"".join(reader.pieces()) == b"234"
        assert not reader.grew


@pytest.mark.parametrize("change", ["truncate before", "truncate after", "rewrite", "replace", "remove"])
def test_read_finds_changes(roots: Roots, root: Path, change: str) -> None:
    """A file truncated, rewritten, replaced or removed under the reader is `changed`, which may be retried."""
    path = root / "file"
    path.write_bytes(bytes(3 << 19))
    with FileReader(roots, os.fsencode(path), offset=0, prefix_sha256=b"", max_bytes=0) as reader:
        pieces = reader.pieces()
        if change == "truncate before":
            os.truncate(path, 5)
        next(pieces)
        if change == "truncate after":
            os.truncate(path, 1 << 20)
        elif change == "rewrite":
            os.utime(path, ns=(0, 0))
        elif change == "replace":
            (root / "other").write_bytes(bytes(3 << 19))
            (root / "other").rename(path)
        elif change == "remove":
            path.unlink()
        with pytest.raises(WorkspaceError, match="changed") as caught:
            list(pieces)
    assert caught.value.retryable
