"""The copies of archived conversations on a host: shared, claimed, bounded, and swept."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from host_client.errors import LimitError, UnavailableError, WorkspaceError
from host_client.stores import archive_cache
from host_client.stores.archive_cache import ArchiveCache, default_directory


def fill(cache: ArchiveCache, name: str, content: bytes = b"content") -> Path:
    """Add a copy with one file, and return the file."""
    with cache.begin() as private:
        path = private.home / "below/file"
        path.parent.mkdir()
        path.write_bytes(content)
        return private.keep(name, path)


def folders(cache: ArchiveCache) -> list[str]:
    """Name everything in the cache's folders."""
    return sorted(str(path.relative_to(cache.directory)) for path in cache.directory.glob("*/*"))


def test_a_copy_is_kept_and_leased(tmp_path: Path) -> None:
    """What was made in a private folder is found by its name, for nobody but the user."""
    cache = ArchiveCache(tmp_path / "cache")
    path = fill(cache, "one")
    with cache.lease("one") as copy:
        assert copy is not None
        assert (copy.path, copy.path.read_bytes()) == (path, b"content")
        assert path.is_relative_to(copy.home)
    assert cache.lease("two") is None
    assert folders(cache) == ["copies/one"]
    for folder in (cache.directory, cache.directory / "copies", cache.directory / "copies/one"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_private_folder_that_is_not_kept_is_removed(tmp_path: Path) -> None:
    """Nothing is left of what failed."""
    cache = ArchiveCache(tmp_path / "cache")
    with cache.begin() as private:
        (private.home / "file").write_bytes(b"half")
    assert folders(cache) == []


def test_a_copy_is_claimed_by_nobody_while_it_is_read(tmp_path: Path) -> None:
    """Readers share a copy; a claim needs it alone, takes it away, and can put it back or make another of it."""
    cache = ArchiveCache(tmp_path / "cache")
    fill(cache, "one")
    with cache.lease("one") as first, cache.lease("one") as second:
        assert first
        assert second
        assert cache.claim("one") is None
    with cache.claim("one") as claimed:
        assert claimed is not None
        assert claimed.is_claimed
        assert cache.lease("one") is cache.claim("one") is None
        claimed.put_back()
    with cache.claim("one") as claimed:
        assert claimed is not None
        path = claimed.home / "below/file"
        path.write_bytes(b"more")
        claimed.keep("two", path)
    assert folders(cache) == ["copies/two"]
    with cache.lease("two") as copy:
        assert copy is not None
        assert copy.path.read_bytes() == b"more"


def test_a_copy_that_is_there_is_replaced_unless_it_is_read(tmp_path: Path) -> None:
    """Of two of one name the newer one stays, except that a reader's stays for its reader."""
    cache = ArchiveCache(tmp_path / "cache")
    fill(cache, "one", b"old")
    assert fill(cache, "one", b"new").read_bytes() == b"new"
    with cache.lease("one"):
        assert fill(cache, "one", b"newer").read_bytes() == b"new"
    assert folders(cache) == ["copies/one"]


def test_what_was_not_used_for_longest_goes(tmp_path: Path) -> None:
    """Beyond the bound the least recently used copies go; one that is read, and the newest, stay."""
    cache = ArchiveCache(tmp_path / "cache", max_bytes=25)
    for number, name in enumerate(("one", "two", "three")):
        fill(cache, name, bytes(10))
        os.utime(cache.directory / "copies" / name, ns=(number, number))
    assert folders(cache) == ["copies/three", "copies/two"]
    cache_hit = cache.lease("two")
    assert cache_hit is not None
    with cache_hit:
        fill(cache, "four", bytes(20))
        assert folders(cache) == ["copies/four", "copies/two"]
    assert fill(cache, "five", bytes(99)).read_bytes() == bytes(99)
    assert folders(cache) == ["copies/five"]


@pytest.mark.parametrize(("number", "reason"), [(errno.ENOSPC, "disk_full"), (errno.EROFS, "read_only")])
def test_a_disk_that_takes_nothing_is_told_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, reason: str
) -> None:
    """Full or read-only: the failure has a hint."""

    def fails(*_: object, **__: object) -> None:
        raise OSError(number, "")

    cache = ArchiveCache(tmp_path / "cache")
    monkeypatch.setattr(Path, "mkdir", fails)
    with pytest.raises(LimitError) as caught:
        cache.begin()
    assert caught.value.reason == reason
    assert caught.value.hint


@pytest.mark.parametrize("step", ["utime", "rename", "samestat"])
def test_a_claim_that_fails_holds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Whatever fails on the way, the copy can be claimed by the next, in the same process."""
    cache = ArchiveCache(tmp_path / "cache")
    fill(cache, "one")
    with monkeypatch.context() as patched:
        owner = Path if step == "rename" else archive_cache.os.path if step == "samestat" else archive_cache.os
        real, calls = getattr(owner, step), []

        def fails(*arguments: object, **options: object) -> object:
            calls.append(step)
            if step == "samestat" and len(calls) == 1:
                return real(*arguments, **options)  # that of the lock
            raise OSError(errno.EIO, "")

        patched.setattr(owner, step, fails)
        with pytest.raises(UnavailableError):
            cache.claim("one")
    if step == "samestat":
        assert len(folders(cache)) == 1  # taken away already: it goes with the next that is begun
        with cache.begin():
            assert len(folders(cache)) == 1
        return
    with cache.claim("one") as claimed:
        assert claimed is not None


def test_a_copy_that_was_made_anew_is_not_claimed_with_the_lock_of_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the lock and the taking another process drops the copy and makes it again: nothing is claimed."""
    cache = ArchiveCache(tmp_path / "cache")
    fill(cache, "one")
    rename = Path.rename

    def late(path: Path, target: Path) -> Path:
        if path.name == "one":
            monkeypatch.undo()
            cache.drop("one")
            fill(cache, "one")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", late)
    assert cache.claim("one") is None
    assert folders(cache) == []


def test_a_copy_goes_where_another_one_just_went(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in the way is removed by somebody else right after it was met: the copy is placed all the same."""
    cache = ArchiveCache(tmp_path / "cache")
    fill(cache, "one", b"old")
    rename = Path.rename

    def meets(path: Path, target: Path) -> Path:
        try:
            return rename(path, target)
        except OSError:
            monkeypatch.undo()
            cache.drop("one")
            raise

    monkeypatch.setattr(Path, "rename", meets)
    assert fill(cache, "one", b"new").read_bytes() == b"new"
    assert folders(cache) == ["copies/one"]


def test_a_dropped_copy_is_gone(tmp_path: Path) -> None:
    """A copy that is not what it should be is removed, also from under its readers."""
    cache = ArchiveCache(tmp_path / "cache")
    fill(cache, "one")
    with cache.lease("one"):
        cache.drop("one")
    cache.drop("one")
    assert folders(cache) == []


def test_what_killed_processes_left_is_removed(tmp_path: Path) -> None:
    """A private folder goes with the next that is begun, when its process is gone; while that lives it stays."""
    cache = ArchiveCache(tmp_path / "cache")
    text = (
        "import os, sys, pathlib; from host_client.stores.archive_cache import ArchiveCache; "
        "private = ArchiveCache(pathlib.Path(sys.argv[1])).begin(); print('begun', flush=True); sys.stdin.read(); "
        "os._exit(1)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", text, str(cache.directory)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"begun\n"
        with cache.begin():
            assert len(folders(cache)) == 2
        child.communicate()
    with cache.begin():
        assert len(folders(cache)) == 1


def test_a_copy_without_its_note_is_none(tmp_path: Path) -> None:
    """A copy whose note is damaged is not used."""
    cache = ArchiveCache(tmp_path / "cache")
    fill(cache, "one")
    (cache.directory / "copies/one/note.json").write_text("{")
    assert cache.lease("one") is None
    assert cache.claim("one") is None
    assert fill(cache, "one", b"again").read_bytes() == b"again"


def test_folders_that_others_may_enter_are_closed(tmp_path: Path) -> None:
    """Copies are plain text: their folders are closed to others, and a link is not followed."""
    (tmp_path / "cache/copies").mkdir(parents=True)
    (tmp_path / "cache/copies").chmod(0o755)
    cache = ArchiveCache(tmp_path / "cache")
    fill(cache, "one")
    assert stat.S_IMODE((tmp_path / "cache/copies").stat().st_mode) == 0o700
    (tmp_path / "other").mkdir()
    (tmp_path / "other/private").symlink_to(tmp_path)
    with pytest.raises(WorkspaceError) as caught:
        ArchiveCache(tmp_path / "other").begin()
    assert caught.value.reason == "unsafe_path"


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever owns the folder could read and change the copies."""
    (tmp_path / "private").mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: (tmp_path / "private").stat().st_uid + 1)
    with pytest.raises(WorkspaceError) as caught:
        ArchiveCache(tmp_path).begin()
    assert caught.value.reason == "access"


def test_the_default_is_the_users_folder_for_caches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`XDG_CACHE_HOME` counts when it is absolute."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_directory() == tmp_path / "outpost/archive"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert default_directory() == tmp_path / "home/.cache/outpost/archive"


def test_a_directory_where_others_may_write_is_refused(tmp_path: Path) -> None:
    """Whoever may rename the folders in it could put others in their place at any moment; a new one below is fine."""
    directory = tmp_path / "shared"
    directory.mkdir()
    directory.chmod(0o777)
    with pytest.raises(WorkspaceError) as caught:
        ArchiveCache(directory).begin()
    assert caught.value.reason == "access"
    assert list(directory.iterdir()) == []
    fill(ArchiveCache(directory / "own"), "one")
    directory.chmod(0o1777)
    fill(ArchiveCache(directory), "one")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_directory_of_somebody_else_is_refused(tmp_path: Path) -> None:
    """Nor may one belong to another user."""
    directory = tmp_path / "theirs"
    directory.mkdir()
    os.chown(directory, 4711, -1)
    with pytest.raises(WorkspaceError) as caught:
        ArchiveCache(directory).begin()
    assert caught.value.reason == "access"
    assert list(directory.iterdir()) == []
