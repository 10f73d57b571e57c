"""Restores that go on with what a broken attempt has staged, while the sandbox makes something else of it."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from sandbox_api.errors import ConflictError
from support.broken_restore import (
    BEFORE_LARGE,
    FILES,
    LARGE,
    PART,
    RESTORE_ID,
    break_restore,
    content_of,
    go_on,
    staging_of,
)
from support.restoring import files_of, open_restore, restoring_sandbox, staged
from support.sandbox import ID

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sandbox_agent.core.sandbox import Sandbox


def _link(path: Path, outside: Path) -> None:
    path.unlink()
    path.symlink_to(outside)


def _hard_link(path: Path, outside: Path) -> None:
    outside.write_bytes(path.read_bytes())
    path.unlink()
    path.hardlink_to(outside)


def _fifo(path: Path, _: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _directory(path: Path, _: Path) -> None:
    path.unlink()
    path.mkdir()


def _linked_folder(path: Path, outside: Path) -> None:
    folder = path.parent
    shutil.copytree(folder, outside.parent / "copied")
    shutil.rmtree(folder)
    folder.symlink_to(outside.parent / "copied")


def _nothing(path: Path, _: Path) -> None:
    shutil.rmtree(path.parent)


HOSTILE: dict[str, Callable[[Path, Path], object]] = {
    "other content": lambda path, _: path.write_bytes(b"x" * path.stat().st_size),
    "larger": lambda path, _: path.write_bytes(path.read_bytes() + b"x"),
    "smaller": lambda path, _: os.truncate(path, path.stat().st_size - 1),
    "link": _link,
    "hard link": _hard_link,
    "fifo": _fifo,
    "directory": _directory,
    "linked folder": _linked_folder,
    "nothing": _nothing,
}


@pytest.mark.parametrize("change", HOSTILE)
def test_hostile_staging(tmp_path: Path, change: str) -> None:
    """What is not the file that was staged is sent again; nothing outside changes and the session is right."""
    outside = tmp_path / "outside" / "victim"
    outside.parent.mkdir()
    outside.write_bytes(b"1" * 100)
    home = tmp_path / "home"
    with restoring_sandbox(home) as held:
        break_restore(held, FILES, BEFORE_LARGE)
        [staging] = staging_of(home)
        HOSTILE[change](staging / "a/one", outside)
        before = files_of(outside.parent)
        fed, _ = go_on(held)
        assert fed >= 100 + len(LARGE)
        session = home / ".demo/sessions" / ID
        assert files_of(session) == FILES
        assert (session / "a/one").stat().st_nlink == 1
        assert files_of(outside.parent) == before
    assert staged(home) == []


@pytest.mark.parametrize("kind", ["link", "file", "missing"])
def test_staging_directory_that_is_another(tmp_path: Path, kind: str) -> None:
    """A link or a file under the staging name leads nowhere: all is sent again."""
    home, outside = tmp_path / "home", tmp_path / "outside"
    with restoring_sandbox(home) as held:
        break_restore(held, FILES, BEFORE_LARGE)
        [staging] = staging_of(home)
        staging.rename(outside)
        if kind == "link":
            staging.symlink_to(outside)
        elif kind == "file":
            staging.write_bytes(b"")
        before = files_of(outside)
        fed, _ = go_on(held)
        assert fed == sum(map(len, FILES.values()))
        assert files_of(outside) == before
    assert staged(home) == []


def _feed_after(held: Sandbox, change: Callable[[], object]) -> None:
    with open_restore(held, FILES, restore_id=RESTORE_ID) as restore:
        lacking = restore.begin()
        change()
        restore.feed(content_of(FILES, lacking, restore))


def test_part_that_changes_while_it_is_gone_on_with(tmp_path: Path) -> None:
    """A part that became shorter after it was offered is a refusal that may be repeated, and nothing stays."""
    with restoring_sandbox(tmp_path) as held:
        break_restore(held, FILES, BEFORE_LARGE + PART)
        with pytest.raises(ConflictError) as caught:
            _feed_after(held, lambda: os.truncate(staging_of(tmp_path)[0] / "large", 10))
        assert caught.value.reason == "target_changed"
    assert staged(tmp_path) == []
