"""Directories that were missing go again, and no others."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from sandbox_agent.core.missing import Missing
from sandbox_agent.core.mount import mount_id
from sandbox_agent.core.paths import Directory
from support.filesystem import mounted
from support.restoring import picture
from support.sandbox import write

if TYPE_CHECKING:
    from pathlib import Path


def _open(path: Path) -> Directory:
    return Directory(os.open(path, os.O_RDONLY), os.fsencode(path))


def test_only_what_was_missing_and_is_empty_goes(tmp_path: Path) -> None:
    """Of several paths, what was there stays, and so does what somebody has put something into."""
    write(tmp_path, {"there/file": b""})
    (tmp_path / "empty").mkdir()
    with _open(tmp_path) as top:
        missing = Missing(top, [b"there/a/b", b"there/a/c", b"empty", b"x/y", b""])
        for path in (b"there/a/b", b"there/a/c", b"x/y"):
            top.make_directories(path).close()
        write(tmp_path, {"x/kept": b""})
        missing.remove()
    assert picture(tmp_path) == {"there": "dir", "there/file": b"", "empty": "dir", "x": "dir", "x/kept": b""}


def test_removal_follows_no_link(tmp_path: Path) -> None:
    """A directory that was swapped for a link keeps what it leads to."""
    write(tmp_path, {"outside/kept/x": b""})
    (tmp_path / "outside/empty").mkdir()
    (tmp_path / "home").mkdir()
    with _open(tmp_path / "home") as top:
        missing = Missing(top, [b"a/empty"])
        (tmp_path / "home/a").symlink_to(tmp_path / "outside")
        missing.remove()
    assert (tmp_path / "outside/empty").is_dir()


def test_mounts_differ(tmp_path: Path) -> None:
    """What is on one mount has one number, also by a descriptor that reads nothing; another mount has another."""
    (tmp_path / "file").write_bytes(b"")
    with mounted(tmp_path / "disk", "tmpfs", "size=1m") as disk, _open(tmp_path) as top, _open(disk) as other:
        fd = os.open(tmp_path / "file", os.O_PATH)
        try:
            assert mount_id(fd) == mount_id(top.fd) != 0
        finally:
            os.close(fd)
        assert mount_id(other.fd) != mount_id(top.fd)
