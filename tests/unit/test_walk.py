"""A walk pins what the profile selects, and names all that a bundle cannot hold."""

from __future__ import annotations

import os
import re
import resource
import socket
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sandbox_agent.core.paths import Directory
from sandbox_agent.core.walk import walk
from sandbox_api.errors import LimitError, SessionError, WorkspaceError
from sandbox_api.limits import MAX_DEPTH_COUNT, Limits
from support.sandbox import FLAT, walked, write

if TYPE_CHECKING:
    from sandbox_api.profile import Profile


def refusal(path: Path, profile: Profile = FLAT, *, limits: Limits | None = None) -> SessionError | LimitError:
    """Return the failure of a walk."""
    with pytest.raises((SessionError, LimitError)) as caught, walked(path, profile, limits=limits):
        pass
    return caught.value


def test_pins_are_in_byte_order_of_paths(tmp_path: Path) -> None:
    """`a-b` comes before `a/b`, which comes before `a0`: by bytes of whole paths, not directory by directory."""
    write(tmp_path, {"a/b": b"1", "a-b": b"22", "a0": b"", "é": b"", "a/b2/c": b"333"})
    with walked(tmp_path) as tree:
        assert [(pin.path, pin.size) for pin in tree.pins] == [
            (b"a-b", 2),
            (b"a/b", 1),
            (b"a/b2/c", 3),
            (b"a0", 0),
            ("é".encode(), 0),
        ]
        assert [b"".join(tree.read(pin)) for pin in tree.pins] == [b"22", b"1", b"333", b"", b""]
        assert [tree.read_whole(pin) for pin in tree.pins] == [b"22", b"1", b"333", b"", b""]
        tree.check_unchanged()


def test_what_is_not_selected_is_passed_over_whatever_it_is(tmp_path: Path) -> None:
    """Links, FIFOs, bad names and unreadable directories that the profile does not select are left out and listed."""
    write(tmp_path, {"keep/file": b"", "logs/a/b": b"", "sub/logs/x": b"", "x.lock": b""})
    (tmp_path / "link.lock").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "fifo.lock")
    (tmp_path / os.fsdecode(b"\xff.lock")).mkdir()
    with walked(tmp_path) as tree:
        assert [pin.path for pin in tree.pins] == [b"keep/file"]
        assert tree.left_out == [
            (path, "not_selected")
            for path in (b"fifo.lock", b"link.lock", b"logs", b"sub/logs", b"x.lock", b"\xff.lock")
        ]
        assert tree.left_out_count == 6


def test_a_directory_is_tested_by_its_own_path(tmp_path: Path) -> None:
    """A directory is tested without a slash at its end, before it is entered: a rule for its content misses it."""
    write(tmp_path, {"a/x.json": b"", "b/x.json": b"", "c.json": b""})
    with walked(tmp_path, replace(FLAT, include=re.compile(r"^a$|\.json$"))) as tree:
        assert [pin.path for pin in tree.pins] == [b"a/x.json", b"c.json"]
        assert tree.left_out == [(b"b", "not_selected")]


def test_left_out_is_bounded(tmp_path: Path) -> None:
    """Of many entries left out 100 are named, and all are counted."""
    for number in range(150):
        (tmp_path / f"{number}.lock").touch()
    with walked(tmp_path) as tree:
        assert (len(tree.left_out), tree.left_out_count) == (100, 150)


def test_all_offenders_of_all_kinds_are_named(tmp_path: Path) -> None:
    """One failure names every entry at fault; its reason is the first kind in the documented order."""
    write(tmp_path, {"a/ok": b"", ".GIT/x": b"", "back\\slash": b"", "s.db": b"x", "s.db-wal": b"x"})
    (tmp_path / "a" / "link").symlink_to("ok")
    (tmp_path / "dangling").symlink_to("none")
    os.mkfifo(tmp_path / "a" / "fifo")
    (tmp_path / os.fsdecode(b"not-utf-8-\xff")).mkdir()
    with closing(socket.socket(socket.AF_UNIX)) as listener:
        listener.bind(str(tmp_path / "socket"))
    error = refusal(tmp_path)
    assert error.reason == "symlink"
    assert {(offender.path, offender.problem) for offender in error.offenders} == {
        (".GIT", "is a git directory name"),
        ("a/fifo", "is a FIFO"),
        ("a/link", "is a symbolic link"),
        ("back\\slash", "has a backslash, a slash or a NUL"),
        ("dangling", "is a symbolic link"),
        ("not-utf-8-\\xff", "is not UTF-8"),
        ("s.db", "has changes in s.db-wal"),
        ("socket", "is a socket"),
    }
    assert error.offender_count == 8


def test_many_of_one_kind_do_not_hide_another(tmp_path: Path) -> None:
    """Named offenders are bounded, counted, and of every kind."""
    for number in range(50):
        (tmp_path / f"link{number}").symlink_to("x")
    os.mkfifo(tmp_path / "fifo")
    error = refusal(tmp_path)
    assert (error.reason, error.offender_count, len(error.offenders)) == ("symlink", 51, 32)
    assert "is a FIFO" in {offender.problem for offender in error.offenders}


@pytest.mark.parametrize(
    ("reason", "names"),
    [
        ("symlink", ["link", "fifo", ".git", "s.db"]),
        ("special_file", ["fifo", ".git", "s.db"]),
        ("unsafe_name", [".git", "s.db"]),
        ("live_database", ["s.db"]),
    ],
)
def test_the_order_of_reasons(tmp_path: Path, reason: str, names: list[str]) -> None:
    """The reason is the first kind met of: symlink, special_file, unsafe_name, live_database."""
    for name in names:
        if name == "link":
            (tmp_path / name).symlink_to("x")
        elif name == "fifo":
            os.mkfifo(tmp_path / name)
        elif name == ".git":
            (tmp_path / name).mkdir()
        else:
            write(tmp_path, {name: b"x", f"{name}-wal": b"x"})
    assert refusal(tmp_path).reason == reason


def test_links_can_be_left_out(tmp_path: Path) -> None:
    """With `skip_links` a selected link is left out and listed, never followed; other offenders stay."""
    write(tmp_path, {"a": b""})
    (tmp_path / "link").symlink_to("/etc/passwd")
    (tmp_path / "dir").symlink_to("/etc")
    with walked(tmp_path, skip_links=True) as tree:
        assert [pin.path for pin in tree.pins] == [b"a"]
        assert tree.left_out == [(b"dir", "symlink"), (b"link", "symlink")]
        tree.check_unchanged()
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(SessionError) as caught, walked(tmp_path, skip_links=True):
        pass
    assert [offender.path for offender in caught.value.offenders] == ["fifo"]


@pytest.mark.parametrize(
    ("sidecar", "content", "is_live"),
    [
        ("s.db-wal", b"x", True),
        ("s.db-wal", b"", False),
        ("s.db-journal", b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7", True),
        ("s.db-journal", b"", False),
        ("s.db-journal", bytes(512), False),
        ("other.db-wal", b"x", False),
        ("s.db-journal-wal", b"x", False),
    ],
)
def test_live_databases(tmp_path: Path, sidecar: str, content: bytes, *, is_live: bool) -> None:
    """A write-ahead log with content, or a journal that was not finished, makes its main file `live_database`.

    It does so although the profile does not select the log itself.
    """
    write(tmp_path, {"s.db": b"x", sidecar: content})
    profile = replace(FLAT, exclude=re.compile(r"-(wal|journal)$"))
    if is_live:
        error = refusal(tmp_path, profile)
        assert (error.reason, error.offenders[0].path) == ("live_database", "s.db")
    else:
        with walked(tmp_path, profile) as tree:
            assert [pin.path for pin in tree.pins] == [b"s.db"]


def test_a_linked_log_is_live_without_a_look_at_it(tmp_path: Path) -> None:
    """A log that is a link may hold changes; where it leads to is not looked at."""
    write(tmp_path, {"s.db": b"x"})
    (tmp_path / "s.db-wal").symlink_to("none")
    assert refusal(tmp_path, replace(FLAT, exclude=re.compile(r"-wal$"))).reason == "live_database"


def test_a_real_database_with_a_hot_log(tmp_path: Path) -> None:
    """A database that SQLite holds open with uncheckpointed changes is refused; once closed, it is not."""
    with closing(sqlite3.connect(tmp_path / "s.db")) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("CREATE TABLE t (x)")
        database.commit()
        assert refusal(tmp_path).reason == "live_database"
    with walked(tmp_path) as tree:
        assert [pin.path for pin in tree.pins] == [b"s.db"]


def test_limits_of_number_and_size(tmp_path: Path) -> None:
    """One file or byte over the limit is refused, exactly the limit is not; the largest files are named."""
    write(tmp_path, {"a": b"12345", "b/c": b"1", "d": b""})
    with walked(tmp_path, limits=Limits(max_bytes=6, max_files=3)):
        pass
    assert refusal(tmp_path, limits=Limits(max_bytes=6, max_files=2)).reason == "max_files"
    error = refusal(tmp_path, limits=Limits(max_bytes=5, max_files=3))
    assert error.reason == "max_bytes"
    assert str(error.offenders[0]) == "a: has 5 bytes"


def test_a_huge_sparse_file_is_refused_by_its_size(tmp_path: Path) -> None:
    """Ten GiB of nothing are refused without a byte being read."""
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(10 << 30)
    assert refusal(tmp_path).reason == "max_bytes"


@pytest.mark.parametrize("kind", ["directories", "links", "logs"])
def test_entries_that_are_no_files_are_bounded(tmp_path: Path, kind: str) -> None:
    """A tree of directories or links without files, or of databases' logs, is refused before it fills the memory."""
    for number in range(80):
        if kind == "directories":
            (tmp_path / f"{number}").mkdir()
        elif kind == "links":
            (tmp_path / f"{number}").symlink_to("x")
        else:
            (tmp_path / f"{number}.lock-wal").touch()
    profile = replace(FLAT, exclude=re.compile("-wal$"))
    with (
        pytest.raises(LimitError) as caught,
        walked(tmp_path, profile, limits=Limits(max_files=1), skip_links=True),
    ):
        pass
    assert caught.value.reason == "max_files"


def test_depth_is_limited(tmp_path: Path) -> None:
    """A path of as many segments as allowed is taken; one more is `max_depth`, and what is below is not entered."""
    deepest = tmp_path.joinpath(*["d"] * (MAX_DEPTH_COUNT - 1))
    write(deepest, {"file": b""})
    with walked(tmp_path) as tree:
        assert len(tree.pins) == 1
    write(deepest, {"one/too/deep": b""})
    write(deepest, {"one/deep": b""})
    error = refusal(tmp_path)
    assert error.reason == "max_depth"
    assert error.offender_count == 2


def test_a_path_over_the_limit_is_unsafe(tmp_path: Path) -> None:
    """Paths longer than a bundle's are refused by name, directory or file, not by an error of the system."""
    held = os.open(tmp_path, os.O_RDONLY)
    for _ in range(16):
        os.mkdir(b"d" * 255, dir_fd=held)
        below = os.open(b"d" * 255, os.O_RDONLY, dir_fd=held)
        os.close(held)
        held = below
    os.close(os.open(b"file", os.O_CREAT, dir_fd=held))
    os.close(held)
    error = refusal(tmp_path)
    assert error.reason == "unsafe_name"
    assert "longer than 4096" in error.offenders[0].problem


def test_few_descriptors_for_many_directories(tmp_path: Path) -> None:
    """A walk, a read and a check of hundreds of directories, each deep, need no more than a few descriptors."""
    write(tmp_path, {f"{number}/a/b/file": b"x" for number in range(200)})
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = max(int(link.name) for link in Path("/proc/self/fd").iterdir()) + 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 8, hard))
    try:
        with walked(tmp_path) as tree:
            assert all(tree.read_whole(pin) == b"x" for pin in tree.pins)
            tree.check_unchanged()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_no_descriptor_left_is_a_limit(tmp_path: Path) -> None:
    """When no descriptor is left the failure says so."""
    write(tmp_path, {"a/file": b"x"})
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with Directory(os.open(tmp_path, os.O_RDONLY), os.fsencode(tmp_path)) as session:
        resource.setrlimit(resource.RLIMIT_NOFILE, (session.fd, hard))
        try:
            with pytest.raises(LimitError) as caught:
                walk(session, FLAT, Limits(), skip_links=False)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert caught.value.reason == "descriptors"


def test_what_cannot_be_read_is_access(tmp_path: Path) -> None:
    """A directory without permission is `access` with its path, not a raw error."""
    write(tmp_path, {"a/file": b"x"})
    (tmp_path / "a").chmod(0)
    tmp_path.chmod(0o755)
    user = os.geteuid()
    with Directory(os.open(tmp_path, os.O_RDONLY), os.fsencode(tmp_path)) as session:
        os.seteuid(user or 65534)  # root may read everything
        try:
            with pytest.raises(WorkspaceError) as caught:
                walk(session, FLAT, Limits(), skip_links=False)
        finally:
            os.seteuid(user)
            (tmp_path / "a").chmod(0o700)
    assert caught.value.reason == "access"
    assert str(tmp_path / "a") in caught.value.message
