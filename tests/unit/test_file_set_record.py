"""What a journal file says of files: a decision counts when all of it is there, and only what a restore could write."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from sandbox_agent.core.file_set_record import FileSetRecord, Move, decision
from support.file_set import FORMAT, ID, OLD, conversation, home_of, make_home
from support.restoring import restoring_sandbox, staged
from support.sandbox import write

if TYPE_CHECKING:
    from pathlib import Path

    from sandbox_agent.core.intent import Intent
    from sandbox_agent.core.sandbox import Sandbox

RECOVERY = f"{ID}-01234567-89ab-cdef-0123-456789abcdef"


def _begin(held: Sandbox, home: Path, **changes: object) -> Intent:
    fields = {"home": os.fsencode(home), "format": FORMAT, "conversation_id": ID, "recovery": RECOVERY, **changes}
    return held.journal.begin(FileSetRecord(**fields), durable=False)  # type: ignore[arg-type]


def test_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Where, what and in which order; a home of any bytes."""
    moves = [Move("é/ü".encode(), 1 << 63, 0), Move(b"a", 0, 7), Move(b"b", 1, 2)]
    with restoring_sandbox(tmp_path) as held:
        for is_undo in (False, True):
            intent = _begin(held, tmp_path / os.fsdecode(b"\xff"), is_undo=is_undo)
            intent.write_lines(decision(moves, [b"shared"]), durable=True)
            record = intent.read()
            intent.end()
            assert record == FileSetRecord(
                os.fsencode(tmp_path) + b"/\xff",
                FORMAT,
                ID,
                RECOVERY,
                is_undo=is_undo,
                is_decided=True,
                moves=moves,
                appends=[b"shared"],
            )


def test_decision_that_was_taken_back(tmp_path: Path) -> None:
    """Cut off, a decision has not been made; another one can follow."""
    with restoring_sandbox(tmp_path) as held:
        intent = _begin(held, tmp_path)
        size = intent.size
        intent.write_lines(decision([Move(b"a", 1, 0)], []), durable=False)
        intent.cut(size, durable=True)
        assert intent.read() == FileSetRecord(os.fsencode(tmp_path), FORMAT, ID, RECOVERY, moves=[], appends=[])
        intent.write_lines(decision([Move(b"b", 2, 0)], []), durable=False)
        record = intent.read()
        assert isinstance(record, FileSetRecord)
        assert (record.is_decided, record.moves) == (True, [Move(b"b", 2, 0)])
        intent.end()


@pytest.mark.parametrize("cut", [-1, -5, -15, -30])
def test_torn_decision_is_none(tmp_path: Path, cut: int) -> None:
    """A decision of which a crash left a part moves nothing: what is staged goes."""
    with restoring_sandbox(tmp_path) as held:
        home = make_home(tmp_path)
        intent = _begin(held, home)
        staging = home / intent.staging_name.decode()
        write(staging, {"plans/S1.md": b"new", "todos/S1.json": b"new"})
        moves = [Move(path.encode(), (staging / path).stat().st_ino, 1) for path in ("plans/S1.md", "todos/S1.json")]
        intent.write_lines(decision(moves, []), durable=False)
        intent.close()
        note = next((tmp_path / ".outpost-agent").iterdir())
        note.write_bytes(note.read_bytes()[:cut])
        assert "the files are the old ones" in held.journal.sweep(held.roots)[0]
        assert conversation(tmp_path) == OLD
        assert staged(tmp_path) == []


def _head(home: Path, changes: str = "") -> str:
    return (
        f'{{"version": 2, "home": "{home}", "format": "{FORMAT}", "conversation_id": "{ID}", '
        f'"recovery": "{RECOVERY}"{changes}}}\n'
    )


@pytest.mark.parametrize(
    "lines",
    [
        '{"file": ["../x", 1, 0]}\n{"decided": 1}\n',
        '{"file": ["/x", 1, 0]}\n{"decided": 1}\n',
        '{"file": [".outpost-recovery/x", 1, 0]}\n{"decided": 1}\n',
        '{"file": ["x", -1, 0]}\n{"decided": 1}\n',
        '{"file": ["x", true, 0]}\n{"decided": 1}\n',
        '{"file": ["x", "1", 0]}\n{"decided": 1}\n',
        '{"file": ["x", 1]}\n{"decided": 1}\n',
        '{"file": "x"}\n{"decided": 1}\n',
        '{"file": 7}\n{"decided": 1}\n',
        '{"file": ["\\ud800", 1, 0]}\n{"decided": 1}\n',
        '{"append": "../x"}\n{"decided": 1}\n',
        '{"append": ["x"]}\n{"decided": 1}\n',
        '{"file": ["x", 1, 0]}\n{"decided": 2}\n',
        '{"file": ["x", 1, 0]}\n{"decided": "1"}\n',
        '{"file": ["x", 1, 0]}\n{"decided": [1]}\n',
        '{"file": ["x", 1, 0]}\n{"decided": true}\n',
        '{"decided": []}\n',
        '{"format": "../x"}\n',
        '{"format": 7}\n',
        '{"conversation_id": "../x"}\n',
        '{"recovery": "../x"}\n',
        '{"recovery": "other-01234567-89ab-cdef-0123-456789abcdef"}\n',
        '{"recovery": ""}\n',
        '{"home": 7}\n',
        '{"home": "/\\ud800"}\n',
        "[]\n",
        "7\n",
        "\n",
    ],
)
def test_note_that_no_restore_wrote_goes(tmp_path: Path, lines: str) -> None:
    """A note with one line that makes no sense is removed, and nothing is done for it."""
    with restoring_sandbox(tmp_path) as held:
        home = make_home(tmp_path)
        write(home, {f".outpost-session-{'0' * 32}/x": b"staged"})
        note = tmp_path / ".outpost-agent" / f"{'0' * 32}.json"
        note.write_text(_head(home_of(tmp_path)) + lines)
        assert held.journal.sweep(held.roots) == []
        assert not note.exists()
        assert (home / f".outpost-session-{'0' * 32}/x").read_bytes() == b"staged"
        assert not (home / "x").exists()


def test_more_files_than_a_restore_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A note of more files than any restore places is none."""
    monkeypatch.setattr("sandbox_agent.core.file_set_record.MAX_FILES_COUNT", 1)
    with restoring_sandbox(tmp_path) as held:
        intent = _begin(held, tmp_path)
        intent.write_lines(decision([Move(b"a", 1, 0)], [b"b"]), durable=False)
        assert intent.read() is None
        intent.end()
