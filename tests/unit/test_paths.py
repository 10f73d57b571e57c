"""Paths are resolved once, beneath a held root, and no link is followed: with openat2 and without it."""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandbox_agent.core import paths, syscall
from sandbox_agent.core.paths import Directory, LinkError, Roots, check_absolute
from sandbox_api.errors import WorkspaceError

if TYPE_CHECKING:
    from collections.abc import Iterator

SECRET = b"outside"


@pytest.fixture(params=["openat2", "stepwise"], autouse=True)
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run every test with openat2 and with the fallback for kernels without it."""
    if request.param == "stepwise":
        monkeypatch.setattr(paths, "has_openat2", lambda: False)
        monkeypatch.setattr(syscall, "openat2", None)  # a call would fail
    elif not paths.has_openat2():
        pytest.skip("this kernel has no openat2")


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Directory]:
    """Hold a root with `a/b/file`, `link` beside it, and a secret outside."""
    (tmp_path / "secret").write_bytes(SECRET)
    root = tmp_path / "root"
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "b" / "file").write_bytes(b"inside")
    (root / "out").symlink_to(tmp_path)
    (root / "a" / "in").symlink_to("b")
    (root / "a" / "b" / "secret").symlink_to(tmp_path / "secret")
    with Directory(os.open(root, os.O_RDONLY | os.O_DIRECTORY), os.fsencode(root)) as directory:
        yield directory


def read(held: Directory, relative: bytes) -> bytes:
    """Read a file below a directory."""
    fd = held.file(relative)
    try:
        return os.read(fd, 100)
    finally:
        os.close(fd)


def test_opens_below(held: Directory) -> None:
    """Files and directories of any depth below are opened, and know their absolute paths."""
    assert read(held, b"a/b/file") == b"inside"
    with held.directory(b"a/b") as below:
        assert read(below, b"file") == b"inside"
        assert below.path == held.path + b"/a/b"
        assert below.names() == [b"file", b"secret"]


@pytest.mark.parametrize(
    ("relative", "link"),
    [(b"out/secret", b"out"), (b"a/in/file", b"a/in"), (b"a/b/secret", b"a/b/secret"), (b"out", b"out")],
)
def test_follows_no_link(held: Directory, relative: bytes, link: bytes) -> None:
    """A link anywhere on the way, in the middle or at the end, inside or outside, is an error that names it."""
    with pytest.raises(LinkError) as caught:
        held.file(relative)
    assert caught.value.filename == held.path + b"/" + link
    with pytest.raises(LinkError):
        held.directory(relative)


def test_stat_tells_a_link_and_follows_none(held: Directory) -> None:
    """A link in the last place is told as a link; one before it is an error."""
    assert stat.S_ISLNK(held.stat(b"a/b/secret").st_mode)
    with pytest.raises(LinkError):
        held.stat(b"out/secret")
    assert held.stat(b"").st_ino == os.fstat(held.fd).st_ino


@pytest.mark.parametrize("relative", [b"..", b"../secret", b"a/../../secret", b"a/..", b"/etc/passwd", b"/etc"])
def test_never_leaves(held: Directory, relative: bytes) -> None:
    """A step to a parent and an absolute path are refused by every method, before the system gives them a meaning."""
    for method in (held.file, held.directory, held.stat, held.make_directory):
        with pytest.raises(OSError, match=os.strerror(errno.EXDEV)):
            method(relative)


@pytest.mark.parametrize("relative", [b"a\0b", b"a/b\0/c", b"a//b", b"a/", b"./a", b"."])
def test_refuses_paths_with_two_readings(held: Directory, relative: bytes) -> None:
    """A NUL, which would cut the path for the system, an empty or a `.` segment are refused by every method."""
    for method in (held.file, held.directory, held.stat, held.make_directory):
        with pytest.raises(OSError, match=os.strerror(errno.EINVAL)):
            method(relative)


def test_errors_name_the_absolute_path(held: Directory) -> None:
    """What is missing, or no directory, is an error with the absolute path, which becomes the failure's."""
    with pytest.raises(FileNotFoundError) as caught:
        held.file(b"a/none/file")
    assert caught.value.filename == held.path + b"/a/none/file"
    for relative in (b"none", b"a/none"):
        with pytest.raises(FileNotFoundError) as caught:
            held.stat(relative)
        assert caught.value.filename == held.path + b"/" + relative
    with pytest.raises(NotADirectoryError):
        held.directory(b"a/b/file")


def test_opening_a_fifo_does_not_wait(held: Directory) -> None:
    """A FIFO without a writer is opened at once."""
    os.mkfifo(b"fifo", dir_fd=held.fd)
    os.close(held.file(b"fifo"))


def test_names_are_all_there_while_another_thread_lists(held: Directory) -> None:
    """What another thread has read of the same descriptor takes no name away."""
    with os.scandir(held.fd) as others:
        next(others)
        assert held.names() == [b"a", b"out"]


def test_makes_directories_with_exact_mode(held: Directory) -> None:
    """What is created has the mode asked for whatever the umask; what is there keeps its own."""
    before = held.stat(b"a").st_mode
    # Only root can open what was made without any permission.
    umask = os.umask(0o777 if os.geteuid() == 0 else 0o077)
    try:
        held.make_directories(b"a/x/y", owner=(os.getuid(), os.getgid())).close()
    finally:
        os.umask(umask)
    held.make_directories(b"a/x/y").close()
    assert stat.S_IMODE(held.stat(b"a/x").st_mode) == stat.S_IMODE(held.stat(b"a/x/y").st_mode) == 0o700
    assert held.stat(b"a").st_mode == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_gives_away_only_what_it_made(held: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory that the sandbox renames to where one was just made keeps its owner, mode and content."""
    held.make_directories(b"root/secret").close()
    real = os.mkdir

    def swapping(name: bytes, mode: int, *, dir_fd: int) -> None:
        real(name, mode, dir_fd=dir_fd)
        os.rename(name, b"away", src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
        os.rename(b"root", name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)

    monkeypatch.setattr(os, "mkdir", swapping)
    with pytest.raises(FileExistsError):
        held.make_directory(b"new", 0o755, owner=(1001, 1001))
    status = held.stat(b"new")
    assert (status.st_uid, stat.S_IMODE(status.st_mode)) == (0, 0o700)
    assert held.stat(b"new/secret")


def test_directory_that_cannot_be_made_right_is_not_left(held: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that cannot get its mode is removed again, and its descriptor closed."""

    def refused(*_: int) -> None:
        raise PermissionError(errno.EPERM, "no")

    monkeypatch.setattr(os, "fchmod", refused)
    before = len([*Path("/proc/self/fd").iterdir()])
    with pytest.raises(PermissionError) as caught:
        held.make_directory(b"new")
    assert caught.value.filename == held.join(b"new")
    assert b"new" not in held.names()
    assert len([*Path("/proc/self/fd").iterdir()]) == before


def test_makes_no_directory_behind_a_link(held: Directory, tmp_path: Path) -> None:
    """A link on the way stops the creation; nothing appears where it leads."""
    with pytest.raises(LinkError):
        held.make_directories(b"out/new")
    assert not (tmp_path / "new").exists()


def test_closing_twice_closes_once(held: Directory) -> None:
    """The second close of a handle does not close whatever has its number by then."""
    below = held.directory(b"a")
    below.close()
    fd = os.open(held.path, os.O_RDONLY)
    below.close()
    os.close(fd)


segments = st.sampled_from([b"a", b"b", b"in", b"out", b"secret", b"file", b"..", b".", b"", b"x\0"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(segments, min_size=1, max_size=5).map(b"/".join))
def test_no_path_reaches_the_outside(held: Directory, relative: bytes) -> None:
    """Whatever segments a path has, what is opened by it is the root or lies below it."""
    try:
        fd = held.file(relative)
    except OSError:
        return
    try:
        opened = os.fsencode(Path(f"/proc/self/fd/{fd}").readlink())
        assert opened == held.path or opened.startswith(held.path + b"/")
    finally:
        os.close(fd)


def test_roots_resolve_once_and_compare_by_component(tmp_path: Path) -> None:
    """A root named through a link is known by both names; a sibling with the root's name as prefix is outside."""
    (tmp_path / "dir" / "sub").mkdir(parents=True)
    (tmp_path / "dir2").mkdir()
    (tmp_path / "alias").symlink_to("dir")
    base = os.fsencode(tmp_path)
    with closing(Roots([base + b"/alias"])) as roots:
        assert roots.paths == [base + b"/dir"]
        for name in (b"/alias/sub", b"/dir/sub", b"//dir//sub/"):
            with roots.directory(base + name) as found:
                assert found.path == base + b"/dir/sub"
        for outside in (base + b"/dir2", base, b"/"):
            with pytest.raises(WorkspaceError) as caught:
                roots.locate(outside)
            assert caught.value.reason == "outside_roots"


def test_the_deepest_root_wins(tmp_path: Path) -> None:
    """With roots in each other a path belongs to the inner one, so that links above that do not matter."""
    (tmp_path / "in" / "x").mkdir(parents=True)
    base = os.fsencode(tmp_path)
    with closing(Roots([base, base + b"/in"])) as roots:
        root, relative = roots.locate(base + b"/in/x")
        assert (root.path, relative) == (base + b"/in", b"x")


def test_a_root_that_cannot_be_opened_leaves_none_open(tmp_path: Path) -> None:
    """The first roots are let go of when a later one is missing."""
    with pytest.raises(FileNotFoundError):
        Roots([os.fsencode(tmp_path), os.fsencode(tmp_path / "none")])


@pytest.mark.parametrize("path", [b"", b"a", b"/a/../b", b"/./a", b"/a\0", b"~/x"])
def test_only_plain_absolute_paths(path: bytes) -> None:
    """What is relative, has a step or a NUL is `unsafe_path`."""
    with pytest.raises(WorkspaceError) as caught:
        check_absolute(path)
    assert caught.value.reason == "unsafe_path"


@pytest.mark.parametrize("code", [errno.EAGAIN, errno.EINTR])
def test_a_disturbed_call_is_made_again(code: int) -> None:
    """A call that a rename elsewhere or a signal disturbed is repeated, and not for ever when a rename always does."""
    results = [-1, -1, 7]

    def call() -> int:
        ctypes.set_errno(code)
        return results.pop(0) if results else -1

    assert syscall._call(call) == 7
    if code == errno.EAGAIN:
        with pytest.raises(BlockingIOError):
            syscall._call(call)


def test_exchange_and_noreplace(held: Directory) -> None:
    """Two directories change places in one step; a rename without replacing fails when the target is there."""
    held.make_directory(b"new").close()
    syscall.renameat2(held.fd, b"new", held.fd, b"a", syscall.RENAME_EXCHANGE)
    assert stat.S_ISDIR(held.stat(b"new/b").st_mode)
    with pytest.raises(FileExistsError):
        syscall.renameat2(held.fd, b"new", held.fd, b"a", syscall.RENAME_NOREPLACE)
    syscall.syncfs(held.fd)
