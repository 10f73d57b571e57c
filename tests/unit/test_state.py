"""The daemon's own folder, made when it is first needed; and the words for what the kernel can do."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from sandbox_agent.core import capability, syscall
from sandbox_agent.core.paths import Roots
from sandbox_agent.core.state import StateJournal
from sandbox_api.errors import WorkspaceError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the folder will be."""
    return tmp_path / "state"


@pytest.fixture
def journal(path: Path) -> Iterator[StateJournal]:
    """The journal in it."""
    with closing(StateJournal(os.fsencode(path))) as opened:
        yield opened


def test_folder_is_made_when_it_is_needed(journal: StateJournal, path: Path) -> None:
    """Opening and sweeping make nothing; the first use makes the folder, 0700, and later ones use the same."""
    with closing(Roots([os.fsencode(path.parent)])) as roots:
        assert journal.sweep(roots) == []
    assert not path.exists()
    assert journal.directory.path == os.fsencode(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert journal.directory is journal.directory


@pytest.mark.parametrize("mode", [0o720, 0o702])
def test_folder_others_may_write_is_refused(journal: StateJournal, path: Path, mode: int) -> None:
    """Who may write notes there could make the daemon move what it should not."""
    path.mkdir()
    path.chmod(mode)
    with pytest.raises(WorkspaceError, match="access"):
        _ = journal.directory


def test_folder_of_another_user_is_refused(journal: StateJournal, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So could who owns it."""
    path.mkdir(mode=0o700)
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    with pytest.raises(WorkspaceError, match="access"):
        _ = journal.directory


def test_folder_that_is_a_link_is_refused(journal: StateJournal, path: Path) -> None:
    """A link is not followed."""
    (path.parent / "elsewhere").mkdir(mode=0o700)
    path.symlink_to("elsewhere")
    with pytest.raises(OSError, match=r"."):
        _ = journal.directory
    assert list((path.parent / "elsewhere").iterdir()) == []


def test_read_only_home_refuses_only_what_needs_the_folder(
    journal: StateJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the folder cannot be made, its use fails with the file system's reason, again and again."""

    def refused(*_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "mkdir", refused)
    for _ in range(2):
        with pytest.raises(OSError, match="Read-only"):
            _ = journal.directory


@pytest.mark.parametrize(("number", "expected"), [(errno.ENOENT, True), (errno.ENOSYS, False), (errno.EPERM, False)])
def test_exchange_is_asked_of_the_kernel(monkeypatch: pytest.MonkeyPatch, number: int, *, expected: bool) -> None:
    """A kernel, or a filter, without the call says so; one with it looks for the names."""

    def answering(*_: Any) -> None:
        raise OSError(number, "")

    monkeypatch.setattr(syscall, "renameat2", answering)
    capability.has_exchange.cache_clear()
    try:
        assert capability.has_exchange() is expected
        assert ("fs.exchange" in capability.capabilities()) is expected
    finally:
        capability.has_exchange.cache_clear()


def test_capabilities_of_this_kernel() -> None:
    """The kernels we test on have it all."""
    assert capability.capabilities() == [
        "bundle.capture.held",
        "bundle.restore.id",
        "bundle.restore.negotiate",
        "bundle.restore.stream",
        "fs.exchange",
        "fs.openat2",
        "process",
        "transcript.follow",
        "transcript.restore",
        "transcript.restore.id",
    ]
