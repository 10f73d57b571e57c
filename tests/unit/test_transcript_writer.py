"""Files of a capture before they have their names: digests on the way, and a folder that nobody else touches."""

from __future__ import annotations

import hashlib
import os
import threading
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_client.errors import LimitError
from host_client.session.folder import Folder
from host_client.session.transcript_writer import HashMemory, LineDigest, Staging, WriteBehind
from support.conversation import files_below

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Folder]:
    """A home, held."""
    with Folder.open(tmp_path, (), create=False) as folder:
        yield folder


@given(st.lists(st.binary(max_size=20).map(lambda data: data.replace(b"a", b"\n")), max_size=8), st.binary(max_size=9))
def test_digest_of_whole_lines_is_known_at_any_time(pieces: list[bytes], before: bytes) -> None:
    """However a stream is cut, both digests are those of what came, and of it up to its last newline."""
    before = before and before + b"\n"
    digest = LineDigest(hashlib.sha256(before), len(before))
    for piece in pieces:
        digest.update(piece)
    whole = before + b"".join(pieces)
    lines = whole[: whole.rfind(b"\n") + 1] if b"\n" in b"".join(pieces) else before
    assert (digest.size_bytes, digest.digest()) == (len(whole), hashlib.sha256(whole).digest())
    assert (digest.line_bytes, digest.line_digest()) == (len(lines), hashlib.sha256(lines).digest())


def test_digest_leaves_its_start_alone() -> None:
    """The object that a digest goes on from can be gone on from again."""
    start = hashlib.sha256(b"a")
    LineDigest(start, 1).update(b"b\n")
    assert start.digest() == hashlib.sha256(b"a").digest()


def test_folder_and_files_are_private_and_go_with_their_writer(home: Folder, tmp_path: Path) -> None:
    """Folder 0700, files 0600, the content as it was written; nothing of it is left afterwards."""
    with Staging(home) as staging:
        file = staging.new()
        for piece in (b"one\n", b"two"):
            file.write(piece)
        file.finish(durable=True)
        path = staging.folder.host_path / file.name
        assert path.read_bytes() == b"one\ntwo"
        assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
        assert file.digest.digest() == hashlib.sha256(b"one\ntwo").digest()
    assert list(tmp_path.iterdir()) == []


def test_names_are_given_once(home: Folder) -> None:
    """Two files of a folder never have one name."""
    with Staging(home) as staging:
        files = [staging.new() for _ in range(3)]
        assert len({staging.new_name(), *(file.name for file in files)}) == 4
        for file in files:
            file.close()


def test_what_a_killed_writer_left_goes_with_the_next(home: Folder, tmp_path: Path) -> None:
    """A folder without a living writer is removed by the next one; that of a living one is not."""
    living, dead = Staging(home), Staging(home)
    file = dead.new()
    file.write(b"left")
    file.finish(durable=False)
    os.close(dead.folder.fd)  # what a kill does: the lock goes, the folder stays
    with Staging(home) as staging:
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
            (living.folder.host_path.name, staging.folder.host_path.name)
        )
    living.close()
    dead.folder.fd = -1
    assert files_below(tmp_path) == {}


def test_others_are_left_alone(home: Folder, tmp_path: Path) -> None:
    """A sweep removes neither what a restore is about to place nor a link with such a name."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/file").write_bytes(b"x")
    (tmp_path / ".outpost-session-0123").mkdir()
    (tmp_path / ".outpost-session-capture-x").symlink_to(tmp_path / "elsewhere")
    with Staging(home):
        pass
    assert (tmp_path / "elsewhere/file").read_bytes() == b"x"
    assert (tmp_path / ".outpost-session-0123").is_dir()


def test_full_disk_is_told(tmp_path: Path) -> None:
    """A write that finds no room is the failure that the table has for it."""
    with Folder.open(tmp_path, (), create=False) as folder, Staging(folder) as staging:
        file = staging.new()
        fd = os.open("/dev/full", os.O_WRONLY)
        os.dup2(fd, file._fd)
        os.close(fd)
        file.write(b"x")
        with pytest.raises(LimitError) as caught:
            file.finish(durable=False)
        file.close()
    assert caught.value.reason == "disk_full"


def test_pieces_are_written_in_order_behind() -> None:
    """All that is handed over is written, in order, before `finish` returns, in a thread that ends."""
    written: list[bytes] = []
    before_count = threading.active_count()
    with WriteBehind(written.append) as behind:
        for number in range(100):
            behind.write(b"%d" % number)
        behind.finish()
        assert written == [b"%d" % number for number in range(100)]
    assert threading.active_count() == before_count


def test_failure_behind_reaches_who_hands_over() -> None:
    """What writing raises is raised at a later piece and at the end; nothing waits for a thread that has given up."""

    def fail(_: bytes) -> None:
        raise LimitError("disk_full", "no space is left")

    def hand_over(behind: WriteBehind) -> None:
        while True:
            behind.write(b"x")

    with WriteBehind(fail) as behind:
        with pytest.raises(LimitError):
            hand_over(behind)
        with pytest.raises(LimitError):
            behind.finish()


def test_what_waits_is_dropped_by_who_gives_up() -> None:
    """After a failure, or a cancel, only the piece that is being written keeps its caller waiting."""
    written: list[bytes] = []
    begun, given_up = threading.Event(), threading.Event()

    def write(data: bytes) -> None:
        begun.set()
        given_up.wait()
        written.append(data)

    class Watched(WriteBehind):
        def _end(self) -> None:
            given_up.set()
            super()._end()

    def give_up() -> None:
        with Watched(write) as behind:
            behind.write(b"first")
            begun.wait()
            behind.write(b"second")
            raise KeyError

    with pytest.raises(KeyError):
        give_up()
    assert written == [b"first"]


def test_hashes_are_remembered_by_their_digests() -> None:
    """What follows lines that were hashed before is hashed without them; the oldest are forgotten first."""
    memory = HashMemory(2)
    digests = []
    for content in (b"one\n", b"two\ntail", b"three\n"):
        digests.append(LineDigest())
        digests[-1].update(content)
        memory.note(digests[-1])
    assert memory.get(hashlib.sha256(b"one\n").digest()) is None
    known = memory.get(hashlib.sha256(b"two\n").digest())
    assert known is not None
    following = LineDigest(known, 4)
    following.update(b"more\n")
    assert following.digest() == hashlib.sha256(b"two\nmore\n").digest()
    assert known.digest() == hashlib.sha256(b"two\n").digest()
