"""What a process remembers of bundle files: believed while they are as they were, and never longer."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from host_client.session import bundle_reader
from host_client.session.bundle import SavedBundle
from host_client.session.bundle_memory import MEMORY, SETTLED_NS, BundleMemory, KnownBundle, file_identity
from sandbox_api.errors import LimitError, SessionError
from sandbox_api.limits import Limits
from sandbox_api.manifest import Entry
from support.saved import FILES, ID, PROFILE, contents, document, opened, places, save, saved_path, write_document

if TYPE_CHECKING:
    from pathlib import Path


def _identity(path: Path) -> tuple[int, ...]:
    with path.open("rb") as file:
        return file_identity(file.fileno())


def _is_believed(directory: Path) -> bool:
    return MEMORY.get(_identity(saved_path(directory))) is not None


def _overwrite(path: Path) -> None:
    """Change one byte of a content in place."""
    at = path.read_bytes().index(b"AAECAw")
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"B")


def test_a_written_file_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What this process wrote opens without a scan and counts as verified; its contents are those written."""
    save(tmp_path, FILES)

    def scan(*_arguments: object) -> None:
        raise AssertionError("the file was read")

    monkeypatch.setattr(bundle_reader, "BundleIndexer", scan)
    with opened(tmp_path, believed=True) as saved:
        monkeypatch.setattr(bundle_reader.SavedBundle, "_checked_blocks", scan)
        saved.verify()
        monkeypatch.undo()
        assert contents(saved) == FILES


def test_what_is_remembered_is_what_a_scan_finds(tmp_path: Path) -> None:
    """Manifest, digest, source and every offset are the same from memory and from the file."""
    save(tmp_path, FILES)
    with opened(tmp_path, believed=True) as known, opened(tmp_path) as scanned:
        assert _is_believed(tmp_path)
        assert places(known) == places(scanned)
        for mine, found in zip(known.extents, scanned.extents, strict=True):
            assert found is None or mine == found
        assert any(scanned.extents)
        assert (known.entries, known.digest, known.source) == (scanned.entries, scanned.digest, scanned.source)


def test_only_who_asks_believes(tmp_path: Path) -> None:
    """Damage that changed no time is found by whoever opens the file as usual, and then nobody believes it any more."""
    save(tmp_path, FILES)
    known = MEMORY.get(_identity(saved_path(tmp_path)))
    assert known is not None
    _overwrite(saved_path(tmp_path))
    damaged = _identity(saved_path(tmp_path))
    MEMORY.note(damaged, known, read_ns=time.time_ns() + SETTLED_NS)
    with opened(tmp_path) as saved, pytest.raises(SessionError) as caught:
        saved.verify()
    assert caught.value.reason == "digest_mismatch"
    assert MEMORY.get(damaged) is None


def test_a_foreign_write_is_noticed(tmp_path: Path) -> None:
    """A write in place of the same size is noticed, also when the old modification time is put back."""
    save(tmp_path, FILES)
    before = saved_path(tmp_path).stat()
    _overwrite(saved_path(tmp_path))
    assert not _is_believed(tmp_path)
    os.utime(saved_path(tmp_path), ns=(before.st_atime_ns, before.st_mtime_ns))
    assert saved_path(tmp_path).stat().st_mtime_ns == before.st_mtime_ns
    assert not _is_believed(tmp_path)
    with opened(tmp_path, believed=True) as saved, pytest.raises(SessionError):
        saved.verify()


def test_a_write_within_a_step_of_the_clock_is_noticed(tmp_path: Path) -> None:
    """A written file has a modification time that no clock can give to a later write, at steps of two seconds."""
    began_ns = time.time_ns()
    save(tmp_path, FILES)
    modified_ns = saved_path(tmp_path).stat().st_mtime_ns
    assert modified_ns // SETTLED_NS < time.time_ns() // SETTLED_NS
    assert modified_ns >= began_ns - 2 * SETTLED_NS


@pytest.mark.parametrize("change", ["replaced", "truncated", "grown"])
def test_another_file_is_not_believed(tmp_path: Path, change: str) -> None:
    """A file that was replaced, even by an equal one, or has another size is read."""
    save(tmp_path, FILES)
    path = saved_path(tmp_path)
    if change == "replaced":
        copy = tmp_path / "copy"
        copy.write_bytes(path.read_bytes())
        os.utime(copy, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
        copy.rename(path)
    elif change == "truncated":
        os.truncate(path, path.stat().st_size - 1)
    else:
        with path.open("ab") as file:
            file.write(b" ")
    assert not _is_believed(tmp_path)


def test_a_verified_file_is_believed_once_its_last_write_is_settled(tmp_path: Path) -> None:
    """A file of another program is remembered after it was verified, unless it was written a moment before."""
    write_document(tmp_path, document(FILES))
    with opened(tmp_path) as saved:
        saved.verify()
    assert not _is_believed(tmp_path)
    os.utime(saved_path(tmp_path), ns=(1, 1))
    with opened(tmp_path, believed=True) as saved:
        assert not _is_believed(tmp_path)
        saved.verify()
    with opened(tmp_path, believed=True) as saved:
        assert _is_believed(tmp_path)
        assert contents(saved) == FILES


def test_another_format_is_not_believed(tmp_path: Path) -> None:
    """What was verified by the rules of one profile says nothing for another, or for another id."""
    save(tmp_path, FILES)
    with pytest.raises(SessionError):
        SavedBundle.open(saved_path(tmp_path), replace(PROFILE, required=("more",)), ID, believed=True)
    with pytest.raises(SessionError):
        SavedBundle.open(saved_path(tmp_path), PROFILE, "S2", believed=True)


def test_limits_hold_for_what_is_believed(tmp_path: Path) -> None:
    """A remembered file that is over the caller's limits is refused as a read one is."""
    save(tmp_path, FILES)
    with pytest.raises(LimitError) as caught:
        opened(tmp_path, Limits(max_files=2), believed=True)
    assert caught.value.reason == "max_files"


def test_the_memory_is_bounded() -> None:
    """The oldest bundles go when there are too many entries; a bundle of too many alone is not remembered."""
    memory = BundleMemory(max_entries_count=10)

    def known(count: int) -> KnownBundle:
        entries = tuple(Entry(b"%d" % number, 0) for number in range(count))
        return KnownBundle(PROFILE, ID, "/s", entries, (), (), b"")

    names = [(0, number, 0, 0, 0) for number in range(5)]
    for name, count in zip(names, (4, 4, 4, 11, 10), strict=True):
        memory.note(name, known(count), read_ns=SETTLED_NS)
        if name != names[-1]:
            assert memory.get(names[0]) is None or name in names[:2]
    assert [memory.get(name) is not None for name in names] == [False, False, False, False, True]
    memory.forget(names[4])
    memory.note(names[0], known(10), read_ns=SETTLED_NS)
    assert memory.get(names[0]) is not None


def test_a_replaced_file_is_forgotten(tmp_path: Path) -> None:
    """The memory of a conversation's old file goes when a capture replaces it."""
    save(tmp_path, FILES)
    old = _identity(saved_path(tmp_path))
    with opened(tmp_path, believed=True) as previous:
        save(tmp_path, {**FILES, "x": b"new"}, previous=previous)
    assert MEMORY.get(old) is None
    assert _is_believed(tmp_path)
