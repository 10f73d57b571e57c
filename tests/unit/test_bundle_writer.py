"""Saving bundles: whole or not at all, private, incremental, and never a mixture."""

from __future__ import annotations

import fcntl
import hashlib
import os
import random
import stat
import threading
import tracemalloc
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import pytest

from host_client.session import bundle_reader, output
from host_client.session.bundle import BundleWriter, Folder
from sandbox_api.errors import LimitError, OutpostError, SessionError
from sandbox_api.limits import MIB, Limits
from sandbox_api.manifest import Entry, bundle_digest
from support.saved import (
    FILES,
    ID,
    PROFILE,
    SOURCE,
    contents,
    document,
    opened,
    places,
    save,
    saved_path,
    tree_digest,
    tree_entries,
    write_document,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

BIG = random.Random(3).randbytes(300_001)  # noqa: S311 - any bytes


def test_saved_files_are_private(tmp_path: Path) -> None:
    """Folders are created 0700 and the file 0600, whatever the umask; nothing else is left in the folder."""
    old = os.umask(0)
    try:
        with (
            Folder.open(tmp_path, (".outpost", "conversations", "mycli"), create=True) as folder,
            BundleWriter(folder, PROFILE, ID, previous=None, durable=True) as writer,
        ):
            writer.begin(SOURCE, [Entry(b"session.json", 0)])
            writer.end(0, hashlib.sha256().digest())
            assert writer.finish(tree_entries({"session.json": b""}), tree_digest({"session.json": b""}))
    finally:
        os.umask(old)
    steps = [tmp_path / ".outpost", tmp_path / ".outpost/conversations", tmp_path / ".outpost/conversations/mycli"]
    assert [stat.S_IMODE(step.stat().st_mode) for step in steps] == [0o700] * 3
    (saved,) = steps[-1].iterdir()
    assert (saved.name, stat.S_IMODE(saved.stat().st_mode)) == ("S1.json", 0o600)


@pytest.mark.parametrize("link", [".outpost", ".outpost/conversations", ".outpost/conversations/mycli"])
def test_links_below_the_conversation_home_are_refused(tmp_path: Path, link: str) -> None:
    """A link at any step below the directory the caller named is refused, and nothing is written behind it."""
    outside = tmp_path / "outside"
    outside.mkdir()
    place = tmp_path / "home" / link
    place.parent.mkdir(parents=True)
    place.symlink_to(outside)
    with pytest.raises(OutpostError) as caught:
        Folder.open(tmp_path / "home", (".outpost", "conversations", "mycli"), create=True)
    assert (caught.value.code, caught.value.reason) == ("workspace", "unsafe_path")
    assert str(place) in caught.value.message
    assert not list(outside.iterdir())


def test_an_unfinished_capture_leaves_nothing(tmp_path: Path) -> None:
    """Without `finish` the old file stays and no scratch file does."""
    save(tmp_path, FILES)
    before = saved_path(tmp_path).read_bytes()
    with (
        Folder.open(tmp_path, (), create=False) as folder,
        BundleWriter(folder, PROFILE, ID, previous=None, durable=False) as writer,
    ):
        writer.begin(SOURCE, [Entry(b"session.json", 5)])
        writer.data(0, memoryview(b"abc"))
        assert len(list(tmp_path.iterdir())) == 2
        writer.abort()
    assert list(tmp_path.iterdir()) == [saved_path(tmp_path)]
    assert saved_path(tmp_path).read_bytes() == before


def test_what_a_killed_capture_left_is_swept(tmp_path: Path) -> None:
    """A scratch file without a living writer goes at the next capture; a locked one and those of other ids stay."""
    dead, alive, other = (tmp_path / f".{name}.tmp" for name in ("S1.json.dead", "S1.json.alive", "S2.json.x"))
    for path in (dead, alive, other):
        path.touch()
    with alive.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        save(tmp_path, FILES)
    assert set(tmp_path.iterdir()) == {alive, other, saved_path(tmp_path)}


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("one changed", {**FILES, "files/a.bin": b"new"}),
        ("one grown", {**FILES, "files/a.bin": FILES["files/a.bin"] + b"more"}),
        ("empty grown", {**FILES, "empty": b"more"}),
        ("one added", {**FILES, "files/b": b"new"}),
        ("first added", {**FILES, "a": b"new"}),
        ("one removed", {path: data for path, data in FILES.items() if path != "empty"}),
        ("first changed", {**FILES, "big": BIG[:-1]}),
        ("big grown", {**FILES, "big": BIG + BIG}),
        ("all changed", {"session.json": b"other"}),
    ],
)
@pytest.mark.parametrize("spelling", ["ours", "theirs", "escaped"])
def test_what_is_held_is_taken_over(tmp_path: Path, name: str, files: dict[str, bytes], spelling: str) -> None:
    """A capture that was sent only what changed gives the same file, byte for byte, as one that was sent everything."""
    del name
    held = {**FILES, "big": BIG}
    files = {"big": BIG, **files}
    for directory in ("expected", "real"):
        (tmp_path / directory).mkdir()
    save(tmp_path / "expected", files)
    if spelling == "ours":
        save(tmp_path / "real", held)
    else:
        write_document(tmp_path / "real", document(held))
    if spelling == "escaped":
        text = saved_path(tmp_path / "real").read_text()
        saved_path(tmp_path / "real").write_text(text.replace("/", "\\/"))
    with opened(tmp_path / "real") as previous:
        assert save(tmp_path / "real", files, previous=previous)
    assert saved_path(tmp_path / "real").read_bytes() == saved_path(tmp_path / "expected").read_bytes()
    with opened(tmp_path / "real", believed=True) as known, opened(tmp_path / "real") as scanned:
        assert places(known) == places(scanned)


def test_what_is_held_is_copied_while_the_daemon_still_works(tmp_path: Path) -> None:
    """When the last sent entry has ended the scratch file has all contents: `finish` has nothing left to copy."""
    held = {**FILES, "big": BIG, "z": BIG}
    save(tmp_path, held)
    files = {**held, "c": b"new"}
    whole = tree_entries(files)
    with (
        opened(tmp_path) as previous,
        Folder.open(tmp_path, (), create=False) as folder,
        BundleWriter(folder, PROFILE, ID, previous=previous, durable=False) as writer,
    ):
        writer.begin(SOURCE, [entry if entry.path != b"c" else Entry(b"c", 3) for entry in whole])
        (scratch,) = tmp_path.glob(".S1.json.*")
        assert len(BIG) < scratch.stat().st_size < 2 * len(BIG)
        index = [entry.path for entry in whole].index(b"c")
        writer.whole(index, memoryview(b"new"), whole[index].sha256)
        copied_bytes = scratch.stat().st_size
        assert writer.finish(whole, bundle_digest(whole))
    assert saved_path(tmp_path).stat().st_size - copied_bytes == len(b'],"digest":""}') + 64


def test_a_file_that_only_went_away_is_noticed(tmp_path: Path) -> None:
    """A capture that is sent nothing, but lacks a file, still replaces the saved one."""
    save(tmp_path, FILES)
    less = {path: content for path, content in FILES.items() if path != "empty"}
    with opened(tmp_path) as previous:
        assert save(tmp_path, less, previous=previous)
    with opened(tmp_path) as saved:
        assert contents(saved) == less


@pytest.mark.parametrize(
    ("path", "reason"), [("cache/x", "protocol"), ("x.lock", "protocol"), ("another", "missing_required")]
)
def test_what_is_not_of_the_format_is_not_saved(tmp_path: Path, path: str, reason: str) -> None:
    """A daemon that sends what its profile does not select, or lacks what it requires, is refused at the manifest."""
    files = {path: b"x"} if reason == "missing_required" else {"session.json": b"", path: b"x"}
    with pytest.raises(SessionError) as caught:
        save(tmp_path, files)
    assert caught.value.reason == reason
    assert not list(tmp_path.iterdir())


def test_copying_works_without_the_kernels_help(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the kernel cannot copy between the two files the text is copied all the same, also by short writes."""

    def refuse(*_arguments: object, **_named: object) -> int:
        raise OSError(18, "cross-device")

    real = os.writev
    monkeypatch.setattr(output.os, "copy_file_range", refuse)
    monkeypatch.setattr(output.os, "writev", lambda fd, parts: real(fd, [parts[0][:1000]]))
    save(tmp_path, {**FILES, "big": BIG})
    with opened(tmp_path) as previous:
        save(tmp_path, {**FILES, "big": BIG, "x": b"new"}, previous=previous)
    with opened(tmp_path) as saved:
        assert contents(saved) == {**FILES, "big": BIG, "x": b"new"}


def test_an_equal_capture_leaves_the_file_untouched(tmp_path: Path) -> None:
    """The same content again, sent or held, changes neither the file nor its times, and the writer says so."""
    save(tmp_path, FILES)
    before = saved_path(tmp_path).stat()
    with opened(tmp_path) as previous:
        assert not save(tmp_path, FILES, previous=previous)
    after = saved_path(tmp_path).stat()
    assert (before.st_ino, before.st_mtime_ns, before.st_ctime_ns) == (
        after.st_ino,
        after.st_mtime_ns,
        after.st_ctime_ns,
    )
    assert list(tmp_path.iterdir()) == [saved_path(tmp_path)]


def test_the_last_capture_wins_over_one_that_came_between(tmp_path: Path) -> None:
    """A capture that found nothing changed still saves its content when another has replaced the file meanwhile."""
    save(tmp_path, FILES)
    with opened(tmp_path) as previous:
        save(tmp_path, {"session.json": b"between"})
        assert save(tmp_path, FILES, previous=previous)
    with opened(tmp_path) as saved:
        assert contents(saved) == FILES


def test_captures_at_once_never_mix(tmp_path: Path) -> None:
    """Of captures of one id at the same time the file ends as exactly one, and no scratch file is left."""
    trees = [{"session.json": bytes([number]) * 50_000, f"f{number}": b"x" * number} for number in range(6)]
    start = threading.Barrier(len(trees))

    def run(tree: dict[str, bytes]) -> None:
        start.wait(30)
        save(tmp_path, tree, piece_bytes=1000)

    threads = [threading.Thread(target=run, args=(tree,)) for tree in trees]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with opened(tmp_path) as saved:
        assert contents(saved) in trees
    assert list(tmp_path.iterdir()) == [saved_path(tmp_path)]


def _refused(
    tmp_path: Path, entries: list[Entry], *steps: tuple[str, int, bytes], promised: Sequence[Entry] = ()
) -> SessionError:
    """Play a daemon that breaks its word; return the refusal and assert that nothing is left."""
    save(tmp_path, FILES)
    before = saved_path(tmp_path).read_bytes()
    with (  # noqa: PT012 - any step may be the one that is refused
        opened(tmp_path) as previous,
        Folder.open(tmp_path, (), create=False) as folder,
        BundleWriter(folder, replace(PROFILE, required=()), ID, previous=previous, durable=False) as writer,
        pytest.raises(SessionError) as caught,
    ):
        writer.begin(SOURCE, entries)
        for step, index, value in steps:
            if step == "whole":
                writer.whole(index, memoryview(value), _ABC)
            elif step == "data":
                writer.data(index, memoryview(value))
            else:
                writer.end(index, value)
        writer.finish(promised, bundle_digest(promised))
    assert list(tmp_path.iterdir()) == [saved_path(tmp_path)]
    assert saved_path(tmp_path).read_bytes() == before
    return caught.value


_NONE = hashlib.sha256().digest()
_ABC = hashlib.sha256(b"abc").digest()


@pytest.mark.parametrize(
    ("entries", "steps", "reason"),
    [
        ([Entry(b"a", 3)], [("data", 0, b"abx"), ("end", 0, _ABC)], "digest_mismatch"),
        ([Entry(b"a", 3)], [("data", 0, b"abc"), ("end", 0, _ABC)], "digest_mismatch"),
        ([Entry(b"a", 3)], [("data", 0, b"abcd")], "protocol"),
        ([Entry(b"a", 3)], [("data", 0, b"ab"), ("end", 0, _ABC)], "protocol"),
        ([Entry(b"a", 3)], [("data", 0, b"ab")], "incomplete"),
        ([Entry(b"a", 3)], [], "incomplete"),
        ([Entry(b"a", 3)], [("whole", 0, b"abx")], "digest_mismatch"),
        ([Entry(b"a", 3), Entry(b"b", 3)], [("whole", 0, b"abc"), ("whole", 1, b"abx")], "digest_mismatch"),
        ([Entry(b"a", 3), Entry(b"b", 4)], [("whole", 0, b"abc"), ("whole", 1, b"abc")], "protocol"),
        ([Entry(b"a", 3), Entry(b"b", 3)], [("whole", 0, b"abc"), ("whole", 0, b"abc")], "protocol"),
        ([Entry(b"a", 3)], [("whole", 0, b"abc"), ("whole", 1, b"abc")], "protocol"),
        (
            [Entry(b"a", 3), Entry(b"b", 3)],
            [("whole", 0, b"abc"), ("data", 1, b"ab"), ("whole", 1, b"abc")],
            "protocol",
        ),
        ([Entry(b"a", 3), Entry(b"b", 3)], [("data", 1, b"abc"), ("end", 1, _ABC)], "protocol"),
        ([Entry(b"a", 3), Entry(b"b", 3)], [("data", 0, b"ab"), ("data", 1, b"abc")], "protocol"),
        ([Entry(b"a", 3)], [("data", 7, b"abc")], "protocol"),
        ([Entry(b"empty", 0, _NONE, 0)], [("data", 0, b"")], "protocol"),
        ([Entry(b"unknown", 3, _ABC, 3)], [], "protocol"),
        ([Entry(b"session.json", 3, _ABC, 3)], [], "protocol"),
        ([Entry(b"session.json", 30, b"", 5)], [], "protocol"),
        ([Entry(b"unknown", 30, b"", 5)], [], "protocol"),
    ],
)
def test_a_daemon_that_breaks_its_word_is_refused(
    tmp_path: Path, entries: list[Entry], steps: list[tuple[str, int, bytes]], reason: str
) -> None:
    """Wrong digests, sizes, orders and claims about what is held are refused; the old file stays."""
    assert _refused(tmp_path, entries, *steps).reason == reason


def test_a_damaged_old_file_is_not_taken_over(tmp_path: Path) -> None:
    """What is copied from the old file has been verified: a capture that counts on a damaged one fails."""
    save(tmp_path, FILES)
    text = saved_path(tmp_path).read_text()
    saved_path(tmp_path).write_text(text.replace("AAECAw", "AAECBw"))
    with opened(tmp_path) as previous, pytest.raises(SessionError) as caught:
        save(tmp_path, {**FILES, "x": b"new"}, previous=previous)
    assert caught.value.reason == "digest_mismatch"
    assert list(tmp_path.iterdir()) == [saved_path(tmp_path)]


def test_an_old_file_written_to_meanwhile_is_not_taken_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When somebody writes into the old file after it was verified, nothing is saved from it."""
    save(tmp_path, FILES)

    def meddle(self: bundle_reader.SavedBundle) -> None:
        with saved_path(tmp_path).open("r+b") as file:
            file.write(b" ")
        os.utime(saved_path(tmp_path), ns=(1, 1))
        real(self)

    real = bundle_reader.SavedBundle.check_unchanged
    monkeypatch.setattr(bundle_reader.SavedBundle, "check_unchanged", meddle)
    with opened(tmp_path) as previous, pytest.raises(SessionError) as caught:
        save(tmp_path, {**FILES, "x": b"new"}, previous=previous)
    assert caught.value.reason == "changed"


def test_a_full_disk_is_told_and_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No space left is `limit`/`disk_full`; the scratch file is gone and the old file as it was."""
    save(tmp_path, FILES)

    def full(*_arguments: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(output.os, "writev", full)
    with pytest.raises(LimitError) as caught:
        save(tmp_path, {**FILES, "big": BIG})
    assert caught.value.reason == "disk_full"
    assert list(tmp_path.iterdir()) == [saved_path(tmp_path)]


def test_durability_full_forces_file_and_folder_before_and_after_the_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With durability `full` the file is synced before it gets its name, the folder after; with `none` neither."""
    seen: list[str] = []
    real = os.rename
    monkeypatch.setattr("os.fsync", lambda fd: seen.append("folder" if stat.S_ISDIR(os.fstat(fd).st_mode) else "file"))
    monkeypatch.setattr("os.rename", lambda *names, **fds: (seen.append("rename"), real(*names, **fds)))
    save(tmp_path, FILES, durable=True)
    assert seen == ["file", "rename", "folder"]
    seen.clear()
    save(tmp_path, FILES)
    assert seen == ["rename"]


@pytest.mark.parametrize("files_count", [1, 4096])
def test_memory_does_not_grow_with_the_bundle(tmp_path: Path, files_count: int) -> None:
    """A bundle of 256 MiB, in one file or in many, is written, read and copied in a few MiB beside its index."""
    total_bytes = 256 * MIB
    piece = random.Random(4).randbytes(MIB)  # noqa: S311 - any bytes
    each_bytes = total_bytes // files_count
    digest = hashlib.sha256()
    for start in range(0, each_bytes, MIB):
        digest.update(piece[: min(MIB, each_bytes - start)])
    limits = Limits(2 * total_bytes, files_count + 1)
    whole = [Entry(b"f%05d" % number, each_bytes, digest.digest()) for number in range(files_count)]
    whole.append(Entry(b"session.json", 0, _NONE))
    with Folder.open(tmp_path, (), create=False) as folder:
        tracemalloc.start()
        try:
            with BundleWriter(folder, PROFILE, ID, previous=None, durable=False) as writer:
                writer.begin(SOURCE, [Entry(entry.path, entry.size) for entry in whole])
                for index, entry in enumerate(whole):
                    for start in range(0, entry.size, MIB):
                        writer.data(index, memoryview(piece)[: min(MIB, entry.size - start)])
                    writer.end(index, entry.sha256)
                writer.finish(whole, bundle_digest(whole))
            with opened(tmp_path, limits) as previous:
                previous.verify()
                assert list(previous.entries) == whole
                with BundleWriter(folder, PROFILE, ID, previous=previous, durable=False) as writer:
                    changed = Entry(whole[0].path, 3, _ABC)
                    writer.begin(
                        PurePosixPath("/s"),
                        [Entry(changed.path, 3), *(Entry(e.path, e.size, e.sha256, e.size) for e in whole[1:])],
                    )
                    writer.data(0, memoryview(b"abc"))
                    writer.end(0, _ABC)
                    changed_whole = [changed, *whole[1:]]
                    writer.finish(changed_whole, bundle_digest(changed_whole))
            peak_bytes = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak_bytes < 8 * MIB + files_count * 2048
    saved_path(tmp_path).unlink()


def test_the_manifest_of_a_saved_tree_is_that_of_the_tree(tmp_path: Path) -> None:
    """What a capture would name as held is exactly what was saved."""
    save(tmp_path, FILES)
    with opened(tmp_path) as saved:
        assert (list(saved.entries), saved.format) == (tree_entries(FILES), PROFILE.format)
