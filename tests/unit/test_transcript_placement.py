"""The step that makes a capture visible: what it replaces, appends to, sets aside, and puts back when it fails."""

from __future__ import annotations

import hashlib
import os
import time
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import pytest

from host_client.errors import SessionError, WorkspaceError
from host_client.session import placed_file
from host_client.session.bundle_memory import SETTLED_NS, file_identity
from host_client.session.folder import Folder
from host_client.session.placed_file import KnownFile, opened_file
from host_client.session.transcript_placement import Placement, Placing
from host_client.session.transcript_writer import Staging
from support.conversation import files_below
from support.special import make_special

if TYPE_CHECKING:
    from collections.abc import Iterator

PATH = PurePosixPath("projects/key/S1.jsonl")


class Host:
    """A home with a staging folder, and a folder for what is set aside."""

    def __init__(self, tmp_path: Path, staging: Staging) -> None:
        self.home, self.aside = tmp_path / "home", tmp_path / "aside"
        self.staging = staging
        self.path = self.home / PATH

    def placement(self) -> Placement:
        """Return a placement into the home."""
        return Placement(
            lambda steps: Folder.open(self.home, steps, create=True),
            lambda steps: Folder.open(self.aside, steps, create=True),
            self.staging,
            durable=True,
        )

    def staged(self, content: bytes) -> str:
        """Stage a content, and return its name."""
        file = self.staging.new()
        file.write(content)
        file.finish(durable=False)
        return file.name

    def write(self, content: bytes) -> KnownFile:
        """Write the host's file as a capture leaves it."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_bytes(content)
        return self.known()

    def known(self) -> KnownFile:
        """Tell what the host's file is now."""
        content = self.path.read_bytes()
        with self.path.open("rb") as file:
            return KnownFile(len(content), hashlib.sha256(content).digest(), file_identity(file.fileno()))

    def files(self) -> dict[str, bytes]:
        """Return all files of the home but those that are staged."""
        return {path: data for path, data in files_below(self.home).items() if not path.startswith(".outpost")}


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    """A home."""
    for name in ("home", "aside"):
        (tmp_path / name).mkdir()
    with Folder.open(tmp_path / "home", (), create=False) as folder, Staging(folder) as staging:
        yield Host(tmp_path, staging)


def test_new_file_is_private_and_settled(host: Host) -> None:
    """Where nothing was, the file appears, 0600 in folders 0700; its time is so old that it is believed at once."""
    before_ns = time.time_ns()
    with host.placement() as placement:
        placed = placement.place(Placing(PATH, host.staged(b"one\n")))
        placement.keep()
    status = host.path.stat()
    assert (host.path.read_bytes(), status.st_mode & 0o777) == (b"one\n", 0o600)
    assert host.path.parent.stat().st_mode & 0o777 == 0o700
    assert before_ns - SETTLED_NS <= status.st_mtime_ns <= time.time_ns() - SETTLED_NS
    assert (placed.is_changed, placed.set_aside) == (True, None)
    assert placed.identity == host.known().identity


@pytest.mark.parametrize("is_known", [True, False])
def test_equal_content_is_left_alone(host: Host, is_known: bool) -> None:  # noqa: FBT001 - parametrised
    """A file that has the content already keeps its inode and time."""
    known = host.write(b"one\n")
    with host.placement() as placement:
        placed = placement.place(Placing(PATH, host.staged(b"one\n"), known=known if is_known else None))
        placement.keep()
    assert not placed.is_changed
    assert host.known() == known


@pytest.mark.parametrize(
    ("old", "known_as", "is_set_aside"),
    [
        (b"on", None, False),
        (b"other\n", None, True),
        (b"other\n", "it is", False),
        (b"other\n", "with another time", False),
        (b"other\n", "other content", True),
        (b"one\ntwo\nthree\n", None, True),
    ],
)
def test_what_was_somebody_elses_is_set_aside(
    host: Host, old: bytes, known_as: str | None, *, is_set_aside: bool
) -> None:
    """A beginning of the new content, or what a capture left, goes; anything else is kept under its path elsewhere."""
    known = host.write(old)
    if known_as == "with another time":
        os.utime(host.path, (5, 5))
    if known_as == "other content":
        host.path.write_bytes(b"OTHER\n")
    content = host.path.read_bytes()
    with host.placement() as placement:
        placed = placement.place(Placing(PATH, host.staged(b"one\ntwo\n"), known=known if known_as else None))
        placement.keep()
    assert host.files() == {str(PATH): b"one\ntwo\n"}
    assert files_below(host.aside) == ({str(PATH): content} if is_set_aside else {})
    assert placed.set_aside == (host.aside / PATH if is_set_aside else None)


def test_set_aside_where_no_second_name_can_be_given(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a file system has no hard links, or it is another one, a copy is kept instead."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(placed_file.errno.EXDEV, "another file system")

    host.write(b"other\n")
    monkeypatch.setattr(placed_file.os, "link", refuse)
    with host.placement() as placement:
        placement.place(Placing(PATH, host.staged(b"one\n")))
        assert files_below(host.aside) == {str(PATH): b"other\n"}
    assert host.files() == {str(PATH): b"other\n"}


@pytest.mark.parametrize("is_far", [False, True])
@pytest.mark.parametrize("is_kept", [False, True])
def test_old_form_gives_way_to_the_new_one(
    host: Host, monkeypatch: pytest.MonkeyPatch, *, is_kept: bool, is_far: bool
) -> None:
    """What a capture left goes elsewhere before the new file comes, and back when that fails; to other disks, too."""
    known, new = host.write(b"one\n"), PurePosixPath("archived/S1.jsonl")
    real = os.rename

    def rename(*names: str, src_dir_fd: int, dst_dir_fd: int) -> None:
        if is_far and names == (PATH.name, PATH.name):
            raise OSError(placed_file.errno.EXDEV, "another file system")
        real(*names, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    monkeypatch.setattr(placed_file.os, "rename", rename)
    with host.placement() as placement:
        assert placement.set_aside(PATH, known) == host.aside / PATH
        assert host.files() == {}
        placement.place(Placing(new, host.staged(b"one\n")))
        assert files_below(host.aside) == {str(PATH): b"one\n"}
        if is_kept:
            placement.keep()
    assert host.files() == ({str(new): b"one\n"} if is_kept else {str(PATH): b"one\n"})
    assert files_below(host.aside) == ({str(PATH): b"one\n"} if is_kept else {})


def test_old_form_that_is_gone_or_went_on(host: Host) -> None:
    """In the very last moment, too: what is not what a capture left stays, and what is gone is no failure."""
    known = host.write(b"one\n")
    host.write(b"one\nuser\n")
    with host.placement() as placement:
        with pytest.raises(SessionError) as caught:
            placement.set_aside(PATH, known)
        assert caught.value.reason == "changed"
        assert host.files() == {str(PATH): b"one\nuser\n"}
        host.path.unlink()
        assert placement.set_aside(PATH, known) is None
    assert files_below(host.aside) == {}


def test_old_form_does_not_come_back_over_another_file(host: Host) -> None:
    """Where somebody wrote a file in its place meanwhile, that stays, and the old form is still set aside."""
    known = host.write(b"one\n")
    with host.placement() as placement:
        placement.set_aside(PATH, known)
        host.write(b"user\n")
    assert host.files() == {str(PATH): b"user\n"}
    assert files_below(host.aside) == {str(PATH): b"one\n"}


@pytest.mark.parametrize("left", [b"", b"tw", b"two\nthr"])
def test_append_goes_on_where_the_file_ends(host: Host, left: bytes) -> None:
    """What is new comes behind what is kept, in the same file, also when a killed capture has left a part of it."""
    known = host.write(b"one\n" + left)
    with host.placement() as placement:
        placed = placement.place(Placing(PATH, host.staged(b"two\nthree\n"), 4, known))
        placement.keep()
    assert host.path.read_bytes() == b"one\ntwo\nthree\n"
    assert host.path.stat().st_ino == known.identity[1]
    assert placed.identity == host.known().identity
    assert host.path.stat().st_mtime_ns <= time.time_ns() - SETTLED_NS


@pytest.mark.parametrize("now", [b"one\nuser\n", b"one\ntwo\nthree\nfour", b"on", None])
def test_append_is_refused_where_the_file_went_on(host: Host, now: bytes | None) -> None:
    """A file that ends otherwise than it may is changed, and stays as it is."""
    host.write(b"one\n")
    if now is None:
        host.path.unlink()
    else:
        host.path.write_bytes(now)
    with pytest.raises(SessionError) as caught, host.placement() as placement:
        placement.place(Placing(PATH, host.staged(b"two\nthree\n"), 4))
    assert caught.value.reason == "changed"
    assert host.files() == ({} if now is None else {str(PATH): now})


def test_failure_puts_everything_back(host: Host) -> None:
    """Without `keep` new files go, replaced ones come back with their inode, and what was appended is cut off."""
    known = host.write(b"one\n")
    (host.home / "tail").write_bytes(b"one\n")
    (host.home / "index").write_bytes(b"a\n")
    before = host.files()
    with suppress(ZeroDivisionError), host.placement() as placement:
        placement.place(Placing(PurePosixPath("new/file"), host.staged(b"x")))
        placement.place(Placing(PATH, host.staged(b"other\n"), known=known))
        placement.place(Placing(PurePosixPath("tail"), host.staged(b"two\n"), 4))
        placement.add_lines(PurePosixPath("index"), [b"b\n"])
        assert len(host.files()) == 4
        raise ZeroDivisionError
    assert host.files() == before
    assert host.path.stat().st_ino == known.identity[1]


def test_failure_leaves_what_another_has_appended(host: Host) -> None:
    """A file that somebody else appended to meanwhile is not cut: nothing of theirs is lost."""
    host.write(b"one\n")
    with suppress(ZeroDivisionError), host.placement() as placement:
        placement.place(Placing(PATH, host.staged(b"two\n"), 4))
        with host.path.open("ab") as file:
            file.write(b"theirs\n")
        raise ZeroDivisionError
    assert host.path.read_bytes() == b"one\ntwo\ntheirs\n"


@pytest.mark.parametrize(
    ("old", "expected"),
    [
        (None, b"b\nc\n"),
        (b"", b"b\nc\n"),
        (b"a\nc\n", b"a\nc\nb\n"),
        (b"a\nb", b"a\nb\nc\n"),
        (b"a", b"a\nb\nc\n"),
        (b"c\nb\n", b"c\nb\n"),
    ],
)
def test_lines_are_added_where_they_are_missing(host: Host, old: bytes | None, expected: bytes) -> None:
    """Lines that are there already are not added again, and a last line without a newline is ended first."""
    if old is not None:
        (host.home / "index").write_bytes(old)
    with host.placement() as placement:
        is_changed = placement.add_lines(PurePosixPath("index"), [b"b\n", b"c\n", b"b\n"])
        placement.keep()
    assert (host.home / "index").read_bytes() == expected
    assert is_changed == (expected != (old or b""))


@pytest.mark.parametrize("kind", ["link", "fifo", "directory"])
@pytest.mark.parametrize("step", ["replace", "append", "lines", "left"])
def test_what_is_no_file_is_refused(host: Host, tmp_path: Path, kind: str, step: str) -> None:
    """Neither a link nor what is no file is followed, opened to wait, or replaced."""
    outside = tmp_path / "outside"
    outside.write_bytes(b"one\n")
    host.path.parent.mkdir(parents=True)
    if kind == "link":
        host.path.symlink_to(outside)
    elif kind == "fifo":
        make_special(host.path, "fifo")
    else:
        host.path.mkdir()
    staged = "" if step == "left" else host.staged(b"two\n")
    placing = Placing(PATH, staged, 4 if step == "append" else None)
    with host.placement() as placement, pytest.raises(WorkspaceError) as caught:
        placement.add_lines(PATH, [b"x\n"]) if step == "lines" else placement.place(placing)
    assert caught.value.reason == ("unsafe_path" if kind == "link" else "not_a_file")
    assert outside.read_bytes() == b"one\n"


def test_link_on_the_way_is_refused(host: Host, tmp_path: Path) -> None:
    """No folder below the home is reached through a link."""
    (tmp_path / "outside").mkdir()
    (host.home / "projects").symlink_to(tmp_path / "outside")
    with pytest.raises(WorkspaceError) as caught, host.placement() as placement:
        placement.place(Placing(PATH, host.staged(b"x")))
    assert caught.value.reason == "unsafe_path"
    assert list((tmp_path / "outside").iterdir()) == []


def test_file_that_is_right_is_only_looked_at(host: Host) -> None:
    """Where nothing is staged, the identity of what is there is told."""
    known = host.write(b"one\n")
    with host.placement() as placement:
        placed = placement.place(Placing(PATH, ""))
        placement.keep()
    assert (placed.identity, placed.is_changed) == (known.identity, False)
    with Folder.open(host.path.parent, (), create=False) as folder, opened_file(folder, host.path.name) as fd:
        assert os.pread(fd, 9, 0) == b"one\n"


@pytest.mark.parametrize("is_staged", [True, False])
def test_an_old_file_that_is_right_becomes_recent(host: Host, *, is_staged: bool) -> None:
    """What was not written to for a month would be deleted by the CLI: its content stays, its time does not."""
    host.write(b"one\n")
    month_ago_ns = time.time_ns() - 31 * 24 * 3600 * 10**9
    os.utime(host.path, ns=(month_ago_ns, month_ago_ns))
    inode = host.path.stat().st_ino
    with host.placement() as placement:
        placed = placement.place(Placing(PATH, host.staged(b"one\n") if is_staged else ""))
        placement.keep()
    assert (host.path.read_bytes(), host.path.stat().st_ino) == (b"one\n", inode)
    assert time.time_ns() - host.path.stat().st_mtime_ns < 60 * 10**9
    assert (placed.identity, placed.is_changed) == (host.known().identity, False)


def test_an_old_file_whose_time_cannot_be_set_is_right(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has the content already needs no right to be changed."""
    host.write(b"one\n")
    os.utime(host.path, (5, 5))
    known = host.known()

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "utime", refuse)
    with host.placement() as placement:
        placed = placement.place(Placing(PATH, ""))
        placement.keep()
    assert (placed.identity, placed.is_changed) == (known.identity, False)
