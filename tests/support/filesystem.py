"""File systems that lack something, for tests: by injection, and real ones where the test may mount."""

from __future__ import annotations

import errno
import os
import subprocess
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

import pytest

from sandbox_agent.core import syscall

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Rename = Callable[[int, bytes, int, bytes, int], None]


def without_exchange(patch: pytest.MonkeyPatch, code: int = errno.EINVAL) -> None:
    """Make exchanging fail as on a file system that cannot."""
    real = syscall.renameat2

    def refuse(old_fd: int, old: bytes, new_fd: int, new: bytes, flags: int) -> None:
        if flags == syscall.RENAME_EXCHANGE:
            raise OSError(code, os.strerror(code))
        real(old_fd, old, new_fd, new, flags)

    patch.setattr(syscall, "renameat2", refuse)


def without_flags(patch: pytest.MonkeyPatch) -> None:
    """Make renameat2 fail as on a file system, or a kernel, that has no flags."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    patch.setattr(syscall, "renameat2", refuse)


def without_moves(patch: pytest.MonkeyPatch, is_stuck: Callable[[bytes], bool]) -> None:
    """Make directories with some names impossible to rename, as those of an overlay's image or another mount are."""
    real = syscall.renameat2

    def refuse(old_fd: int, old: bytes, new_fd: int, new: bytes, flags: int) -> None:
        if is_stuck(old) or (flags == syscall.RENAME_EXCHANGE and is_stuck(new)):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        real(old_fd, old, new_fd, new, flags)

    patch.setattr(syscall, "renameat2", refuse)


def without_moves_across(patch: pytest.MonkeyPatch) -> None:
    """Make recovery another file system than the sessions, which can be exchanged among themselves."""
    real = syscall.renameat2

    def refuse(old_fd: int, old: bytes, new_fd: int, new: bytes, flags: int) -> None:
        if not os.path.samestat(os.fstat(old_fd), os.fstat(new_fd)):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        real(old_fd, old, new_fd, new, flags)

    patch.setattr(syscall, "renameat2", refuse)


@cache
def _may_mount() -> str:
    """Return why this process cannot mount; empty when it can."""
    if os.geteuid() != 0:
        return "mounting needs root"
    tried = subprocess.run(
        ["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False
    )
    return "" if tried.returncode == 0 else "this machine does not allow mounts"


@contextmanager
def mounted(path: Path, kind: str, options: str) -> Iterator[Path]:
    """Mount a file system for a test; skip the test where that is not allowed."""
    if reason := _may_mount():
        pytest.skip(reason)
    path.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", kind, "-o", options, "none", path], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", path], check=True)


@contextmanager
def overlay(tmp_path: Path, image: Path) -> Iterator[Path]:
    """Mount a directory as a container sees what came with its image."""
    # On a file system of its own: an overlay cannot be the upper part of another, as in a container it would be.
    with mounted(tmp_path / "disk", "tmpfs", "size=64m") as disk:
        (disk / "upper").mkdir()
        (disk / "work").mkdir()
        options = f"lowerdir={image},upperdir={disk / 'upper'},workdir={disk / 'work'}"
        with mounted(tmp_path / "merged", "overlay", options) as merged:
            yield merged
