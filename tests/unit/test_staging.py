"""Staging: exact modes and owners, exclusive names, bounded descriptors; and how trees are removed and copied."""

from __future__ import annotations

import errno
import inspect
import os
import stat
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sandbox_agent.core import disk
from sandbox_agent.core.copy import copy_tree, holds_all
from sandbox_agent.core.disk import check_room
from sandbox_agent.core.owner import check_owner, give
from sandbox_agent.core.paths import Directory, LinkError
from sandbox_agent.core.removal import remove_tree
from sandbox_agent.core.staging import Staging
from sandbox_api.errors import ConfigurationError, LimitError, SessionError
from support.filesystem import mounted
from support.restoring import files_of, picture
from support.sandbox import write

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = b".outpost-session-x"


def _hold(path: Path) -> Directory:
    return Directory(os.open(path, os.O_RDONLY | os.O_DIRECTORY), os.fsencode(path))


@contextmanager
def _staging(path: Path, owner: tuple[int, int] | None = None) -> Iterator[Staging]:
    with _hold(path) as parent:
        staging = Staging(parent, NAME, owner)
        try:
            yield staging
        finally:
            staging.close()


# Only root can open what was made without any permission.
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777 if os.geteuid() == 0 else 0o077])
def test_modes_are_exact_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    """Files are 0600 and directories 0700, neither wider nor narrower."""
    before = os.umask(umask)
    try:
        with _staging(tmp_path) as staging:
            os.close(staging.create(b"a/b/c"))
            staging.finish()
    finally:
        os.umask(before)
    modes = {path: stat.S_IMODE((tmp_path / path).lstat().st_mode) for path in picture(tmp_path)}
    name = NAME.decode()
    assert modes == {name: 0o700, f"{name}/a": 0o700, f"{name}/a/b": 0o700, f"{name}/a/b/c": 0o600}


def test_set_group_id_of_the_folder_is_not_inherited(tmp_path: Path) -> None:
    """A folder that gives its group on does not widen what is staged in it."""
    tmp_path.chmod(0o2770)
    with _staging(tmp_path) as staging:
        os.close(staging.create(b"a/b"))
    assert stat.S_IMODE((tmp_path / NAME.decode()).stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / NAME.decode() / "a").stat().st_mode) == 0o700


@pytest.mark.parametrize("kind", ["link", "file", "directory"])
def test_name_that_is_taken_is_refused(tmp_path: Path, kind: str) -> None:
    """Whatever the sandbox has put at the name stays as it is, and nothing is written through it."""
    path, outside = tmp_path / NAME.decode(), tmp_path / "outside"
    outside.mkdir()
    if kind == "link":
        path.symlink_to(outside)
    elif kind == "file":
        path.write_bytes(b"1")
    else:
        path.mkdir()
    before = picture(tmp_path)
    with _hold(tmp_path) as parent, pytest.raises(FileExistsError):
        Staging(parent, NAME, None)
    assert picture(tmp_path) == before


def test_directory_put_in_between_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory with content that the sandbox exchanged for the new one is not taken for it."""
    real = os.mkdir

    def exchanged(name: bytes, mode: int, *, dir_fd: int) -> None:
        real(name, mode, dir_fd=dir_fd)
        (tmp_path / os.fsdecode(name) / "theirs").write_bytes(b"1")

    with _hold(tmp_path) as parent, monkeypatch.context() as patch:
        patch.setattr(os, "mkdir", exchanged)
        with pytest.raises(FileExistsError):
            Staging(parent, NAME, None)


def test_link_inside_staging_is_not_followed(tmp_path: Path) -> None:
    """A directory that the sandbox exchanges for a link while staging goes on is refused, not followed."""
    outside = tmp_path / "outside"
    outside.mkdir()
    with _staging(tmp_path) as staging:
        for number in range(70):  # more than are held, so that the first has to be opened again
            os.close(staging.create(b"d%d/f" % number))
        inside = tmp_path / NAME.decode() / "d0"
        (inside / "f").unlink()
        inside.rmdir()
        inside.symlink_to(outside)
        with pytest.raises(LinkError):
            staging.create(b"d0/g")
    assert list(outside.iterdir()) == []


def test_few_descriptors_for_many_directories(tmp_path: Path) -> None:
    """Hundreds of directories, deep ones among them, are written with a bounded number of descriptors."""
    with _staging(tmp_path) as staging:
        for number in range(300):
            os.close(staging.create(b"d%d/f" % number))
        os.close(staging.create(b"d/" + b"e/" * 90 + b"f"))
        assert len(list(Path("/proc/self/fd").iterdir())) < 120
        os.close(staging.create(b"d0/again"))
        assert staging.directory.stat(b"d/" + b"e/" * 90 + b"f").st_size == 0


def test_remove_finds_what_was_moved(tmp_path: Path) -> None:
    """A staging directory that the sandbox moved elsewhere is emptied, and what it put at the name is left."""
    with _staging(tmp_path) as staging:
        os.close(staging.create(b"a/b"))
        (tmp_path / NAME.decode()).rename(tmp_path / "elsewhere")
        write(tmp_path / NAME.decode(), {"theirs": b"1"})
        staging.remove()
    assert picture(tmp_path) == {"elsewhere": "dir", NAME.decode(): "dir", f"{NAME.decode()}/theirs": b"1"}


def test_remove_tree_does_not_follow_links(tmp_path: Path) -> None:
    """Links are removed, not what they lead to; a link as the top as well."""
    outside = tmp_path / "outside"
    write(outside, {"kept": b"1"})
    write(tmp_path / "tree", {"a/b": b"1"})
    (tmp_path / "tree/link").symlink_to(outside)
    (tmp_path / "top").symlink_to(outside)
    with _hold(tmp_path) as held:
        remove_tree(held, b"tree")
        remove_tree(held, b"top")
        remove_tree(held, b"missing")
    assert picture(tmp_path) == {"outside": "dir", "outside/kept": b"1"}


@contextmanager
def _small_stack() -> Iterator[None]:
    """Allow some calls more than are in progress, for less than a tree's depth."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 100)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def test_remove_tree_of_any_depth(tmp_path: Path) -> None:
    """A tree deeper than descriptors that are held, stack and path lengths allow is removed."""
    top = _hold(tmp_path)
    held = top.make_directory(b"deep")
    # Not as deep as the stack is by default: what is left when this test is killed has to be removed by pytest.
    for _ in range(400):
        below = held.make_directory(b"a-name-of-some-length")
        os.close(below.file(b"f", os.O_CREAT | os.O_WRONLY))
        held.close()
        held = below
    held.close()
    before = len(list(Path("/proc/self/fd").iterdir()))
    with top, _small_stack():
        remove_tree(top, b"deep")
        assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert list(tmp_path.iterdir()) == []


def test_remove_tree_does_not_enter_mounts(tmp_path: Path) -> None:
    """Another file system that is mounted inside a tree is refused, and what it holds stays."""
    write(tmp_path / "tree", {"a/b": b"1"})
    with mounted(tmp_path / "tree/mount", "tmpfs", "size=1m") as inside, _hold(tmp_path) as held:
        write(inside, {"kept": b"1"})
        with pytest.raises(OSError, match="cross-device") as caught:
            remove_tree(held, b"tree")
        assert caught.value.filename == os.fsencode(inside)
        assert files_of(inside) == {"kept": b"1"}


@pytest.mark.parametrize("where", ["tree", "tree/a"])
def test_remove_tree_does_not_enter_directories_mounted_elsewhere(tmp_path: Path, where: str) -> None:
    """A directory of the same file system that is mounted in a tree, or in its place, keeps what it holds."""
    write(tmp_path, {"tree/a/b": b"1", "outside/kept": b"1"})
    with mounted(tmp_path / "probe", "tmpfs", "size=1m"):
        subprocess.run(["mount", "--bind", tmp_path / "outside", tmp_path / where], check=True)
    try:
        with _hold(tmp_path) as held, pytest.raises(OSError, match="cross-device"):
            remove_tree(held, b"tree")
        assert files_of(tmp_path / "outside") == {"kept": b"1"}
    finally:
        subprocess.run(["umount", tmp_path / where], check=True)


def test_remove_tree_of_read_only_directories(tmp_path: Path) -> None:
    """A directory that its owner may not write to is emptied all the same."""
    write(tmp_path / "tree", {"a/b": b"1"})
    (tmp_path / "tree/a").chmod(0o500)
    with _hold(tmp_path) as held:
        remove_tree(held, b"tree")
    assert list(tmp_path.iterdir()) == []


def test_copy_keeps_everything_and_follows_nothing(tmp_path: Path) -> None:
    """Content, links, modes and times of a copy are those of the original."""
    source, target = tmp_path / "source", tmp_path / "target"
    target.mkdir()
    write(source, {"a/b": b"x" * 3_000_000, "a/empty": b"", "c": b"1"})
    (source / "d").mkdir()
    (source / "link").symlink_to("/etc/passwd")
    (source / "c").chmod(0o640)
    os.utime(source / "c", ns=(1, 2))
    (source / "a").chmod(0o500)
    with _hold(source) as original, _hold(target) as copy:
        copy_tree(original, copy)
        assert holds_all(copy, original)
    assert picture(source) == picture(target)
    for path in picture(source):
        before, after = (source / path).lstat(), (target / path).lstat()
        assert before.st_mode == after.st_mode
        if path != "link":
            assert before.st_mtime_ns == after.st_mtime_ns


def test_copy_can_fill_up(tmp_path: Path) -> None:
    """Only what is missing is added when asked so; what is there keeps its content."""
    write(tmp_path / "source", {"a/b": b"1", "c": b"2"})
    write(tmp_path / "target", {"c": b"other"})
    with _hold(tmp_path / "source") as source, _hold(tmp_path / "target") as target:
        with pytest.raises(FileExistsError):
            copy_tree(source, target)
        copy_tree(source, target, only_missing=True)
    assert files_of(tmp_path / "target") == {"a/b": b"1", "c": b"other"}


def test_copy_names_what_it_cannot_copy(tmp_path: Path) -> None:
    """A FIFO is refused by name and not opened."""
    (tmp_path / "source").mkdir()
    (tmp_path / "target").mkdir()
    os.mkfifo(tmp_path / "source/pipe")
    with (
        _hold(tmp_path / "source") as source,
        _hold(tmp_path / "target") as target,
        pytest.raises(SessionError) as caught,
    ):
        copy_tree(source, target)
    assert caught.value.reason == "special_file"
    assert caught.value.offenders[0].path.endswith("source/pipe")


@pytest.mark.parametrize(
    ("copy", "is_all"),
    [
        ({"a/b": b"1", "more": b""}, True),
        ({"a/b": b"2"}, False),
        ({"a/b": b"12"}, False),
        ({"a/b/c": b"1"}, False),
        ({"a": b"1"}, False),
        ({}, False),
    ],
)
def test_holds_all_means_byte_for_byte(tmp_path: Path, copy: dict[str, bytes], *, is_all: bool) -> None:
    """A copy holds a tree when every entry of it is there with the same kind and content."""
    (tmp_path / "copy").mkdir()
    write(tmp_path / "copy", copy)
    write(tmp_path / "original", {"a/b": b"1"})
    with _hold(tmp_path / "copy") as copied, _hold(tmp_path / "original") as original:
        assert holds_all(copied, original) is is_all


def test_owner_that_may_not_be_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the privilege only the own ids are accepted; the failure names both sides."""
    monkeypatch.setattr("sandbox_agent.core.owner._may_give_away", lambda: False)
    check_owner(None)
    check_owner((os.geteuid(), os.getegid()))
    with pytest.raises(ConfigurationError) as caught:
        check_owner((os.geteuid() + 1, os.getegid()))
    assert caught.value.reason == "owner"


def test_owner_that_the_kernel_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that knows no such user is an owner failure, not an I/O one."""

    def refuse(*_: int) -> None:
        raise OSError(errno.EINVAL, "no such user here")

    monkeypatch.setattr(os, "fchown", refuse)
    with _hold(tmp_path) as held, pytest.raises(ConfigurationError) as caught:
        give(held.fd, (5, 5))
    assert caught.value.reason == "owner"


@pytest.mark.parametrize(("blocks", "inodes", "fits"), [(10, 10, True), (1, 10, False), (10, 0, False), (0, 0, True)])
def test_room_is_counted_in_blocks_and_inodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, blocks: int, inodes: int, *, fits: bool
) -> None:
    """Two files of one block each need two blocks and two inodes; a file system that counts neither has room."""
    status = os.statvfs_result((4096, 4096, blocks, blocks, blocks, inodes or bool(blocks), inodes, inodes, 0, 255))
    monkeypatch.setattr(disk.os, "fstatvfs", lambda _: status)
    with _hold(tmp_path) as held:
        if fits:
            check_room(held, [1, 4096])
        else:
            with pytest.raises(LimitError) as caught:
                check_room(held, [1, 4096])
            assert caught.value.reason == "disk_full"
