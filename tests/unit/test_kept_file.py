"""What a file of the host keeps: told by its head or its place, and never guessed."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from host_client.agents.kept_file import recognise_file
from host_client.errors import ConfigurationError, SessionError
from host_client.stores.context import ConversationContext
from support.recorded import DATA

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

RECORDED = {
    "claude": (DATA / "claude/2.1.332/multiturn/home/.claude", "CLAUDE_CONFIG_DIR", "projects/*/*.jsonl"),
    "codex": (DATA / "codex/0.171.0/multiturn/home/.codex", "CODEX_HOME", "sessions/**/*.jsonl"),
}


def _home(folder: Path, format_name: str) -> Path:
    """Copy a recorded CLI home; return its main transcript."""
    recorded, _, pattern = RECORDED[format_name]
    shutil.copytree(recorded, folder, copy_function=shutil.copyfile)
    (main,) = folder.glob(pattern)
    return main


@pytest.mark.anyio
@pytest.mark.parametrize("format_name", list(RECORDED))
@pytest.mark.parametrize("is_moved", [False, True], ids=["usual", "moved"])
async def test_a_transcript_is_known_by_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_name: str, *, is_moved: bool
) -> None:
    """Below the usual name of a home, or below the home that the CLI's variable names; both can be located."""
    recorded, variable, _ = RECORDED[format_name]
    folder = tmp_path / ("moved" if is_moved else recorded.name)
    main = _home(folder, format_name)
    if is_moved:
        monkeypatch.setenv(variable, str(folder))
    found = recognise_file(main)
    assert (found.store.format, found.home) == (format_name, None if is_moved else tmp_path)
    assert found.conversation_id in main.name
    record, context = await found.locate(ConversationContext())
    assert (record.path, record.conversation_id) == (main, found.conversation_id)
    assert context.conversation_home == found.home


@pytest.mark.parametrize(
    ("place", "format_name", "reason"),
    [
        (lambda home: home.rename(home.with_name("elsewhere")), "", "invalid_argument"),
        (lambda home: home, "codex", "invalid_argument"),
        (lambda home: home, "kimi", "invalid_argument"),
        (lambda home: home, "fortran", "unknown_format"),
    ],
)
def test_a_transcript_that_says_nothing_is_refused(
    tmp_path: Path, place: Callable[[Path], Path], format_name: str, reason: str
) -> None:
    """One that lies in no home, or in that of another CLI than was asked for."""
    main = _home(tmp_path / ".claude", "claude")
    there = place(tmp_path / ".claude") / main.relative_to(tmp_path / ".claude")
    with pytest.raises(ConfigurationError) as caught:
        recognise_file(there, format_name=format_name)
    assert caught.value.reason == reason


def test_what_is_no_bundle_is_refused(tmp_path: Path) -> None:
    """A file of another name has to be a bundle, of a format that is kept in bundles."""
    path = tmp_path / "kept.json"
    path.write_text("[]")
    with pytest.raises(SessionError) as corrupt:
        recognise_file(path)
    assert corrupt.value.reason == "corrupt"
    path.write_text('{"version":1,"format":"claude","id":"S1"}')
    with pytest.raises(ConfigurationError) as mismatch:
        recognise_file(path)
    assert mismatch.value.reason == "format_mismatch"
    with pytest.raises(SessionError) as gone:
        recognise_file(tmp_path / "none.json")
    assert gone.value.reason == "not_found"
