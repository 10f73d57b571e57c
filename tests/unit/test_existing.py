"""The session in place while a restore goes on: nothing is said of it that is not so at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sandbox_agent.core.tree import Tree
from sandbox_api.errors import ConflictError, WorkspaceError
from support.restoring import NEW, files_of, open_restore, restore_files, restoring_sandbox, send, staged
from support.sandbox import make_session, write

if TYPE_CHECKING:
    from pathlib import Path

    from sandbox_agent.core.tree import Pin


@pytest.mark.parametrize("change", ["content", "replaced", "removed"])
def test_unchanged_is_said_of_what_is_there(tmp_path: Path, change: str) -> None:
    """A session that held all when the restore began, and holds something else at the end, is a conflict."""
    with restoring_sandbox(tmp_path) as held:
        session = make_session(tmp_path, NEW)
        with open_restore(held, NEW) as restore:
            assert not any(restore.begin())
            if change == "content":
                (session / "log/a.txt").write_bytes(b"SAME")
            else:
                session.rename(tmp_path / "gone")
            if change == "replaced":
                write(session, NEW)
            before = files_of(tmp_path / ".demo")
            with pytest.raises(ConflictError) as caught:
                restore.commit()
        assert caught.value.reason == "target_changed"
        assert files_of(tmp_path / ".demo") == before
        assert staged(tmp_path) == []


def test_file_that_appeared_is_set_aside(tmp_path: Path) -> None:
    """A file more than when the restore began makes it another session: it is replaced, and recovery has it."""
    with restoring_sandbox(tmp_path) as held:
        session = make_session(tmp_path, NEW)
        with open_restore(held, NEW) as restore:
            restore.begin()
            (session / "log/late").write_bytes(b"1")
            result = restore.commit()
        assert not result.unchanged
        assert files_of(tmp_path / ".demo/.outpost-recovery" / result.recovery)["log/late"] == b"1"


def test_file_that_cannot_be_read_is_lacking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of the old session that the system does not give is asked for: it does not keep the session as it is."""
    with restoring_sandbox(tmp_path) as held:
        session = make_session(tmp_path, NEW)
        _break_reading(monkeypatch)
        with open_restore(held, NEW) as restore:
            lacking = restore.begin()
            assert lacking == [False, False, False, True]
            send(restore, NEW, lacking)
            assert restore.commit().recovery
        assert files_of(session) == NEW
        assert restore_files(held, {"state.json": b""}).recovery


def _break_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Tree.open

    def failing(tree: Tree, pin: Pin) -> int:
        if pin.path == b"z":
            raise WorkspaceError("access", "no")
        return real(tree, pin)

    monkeypatch.setattr(Tree, "open", failing)
