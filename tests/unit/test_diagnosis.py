"""The diagnosis: each thing it looks at is found well, and found wrong when it is; nothing is left of the look."""

from __future__ import annotations

import errno
import os
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from sandbox_agent.core import diagnosis
from sandbox_agent.core.diagnosis import Finding, diagnose
from sandbox_agent.core.state import StateJournal
from support.filesystem import mounted, without_exchange
from support.restoring import picture, restoring_sandbox
from support.sandbox import FLAT

if TYPE_CHECKING:
    from pathlib import Path

    from sandbox_agent.core.sandbox import Sandbox


def _look(held: Sandbox, home: Path) -> dict[tuple[str, str], Finding]:
    before = picture(home)
    findings = diagnose(held, [FLAT], {})
    assert picture(home) == before
    return {(finding.format, finding.check): finding for finding in findings}


def test_all_is_well(tmp_path: Path) -> None:
    """With and without a CLI home everything is looked at, and no hint is given where none is needed."""
    with restoring_sandbox(tmp_path) as held:
        found = _look(held, tmp_path)
        assert {finding.level for finding in found.values()} == {"ok"}
        (tmp_path / ".demo/sessions").mkdir(parents=True)
        found = _look(held, tmp_path)
    assert {finding.level for finding in found.values()} == {"ok"}
    assert {finding.hint for finding in found.values()} == {""}
    assert {check for format_name, check in found if format_name} == {
        "place",
        "writable",
        "exchange",
        "same_filesystem",
        "free_space",
        "owner",
    }
    assert {check for format_name, check in found if not format_name} == {"openat2", "home", "state"}


@pytest.mark.parametrize("kind", ["open to others", "file", "missing"])
def test_state_folder(tmp_path: Path, kind: str) -> None:
    """One that cannot be used is a problem, since restores will be refused; one that is not there yet is none."""
    state = tmp_path / "state"
    if kind == "file":
        state.write_text("")
    elif kind == "open to others":
        state.mkdir()
        state.chmod(0o777)
    with restoring_sandbox(tmp_path) as held, closing(StateJournal(os.fsencode(state))) as journal:
        finding = _look(replace(held, journal=journal), tmp_path)["", "state"]
    assert finding.level == ("ok" if kind == "missing" else "problem")
    assert bool(finding.hint) == (kind != "missing")


def test_no_exchange(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that cannot exchange is a drawback, not a problem."""
    without_exchange(monkeypatch)
    with restoring_sandbox(tmp_path) as held:
        finding = _look(held, tmp_path)["demo", "exchange"]
    assert finding.level == "warning"
    assert finding.hint


def test_no_openat2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An old kernel is told."""
    monkeypatch.setattr(diagnosis, "has_openat2", lambda: False)
    with restoring_sandbox(tmp_path) as held:
        assert _look(held, tmp_path)["", "openat2"].level == "warning"


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS, errno.ENOSPC])
def test_not_writable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """A folder that cannot be written is a problem of its format and of the home."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    with restoring_sandbox(tmp_path) as held:
        monkeypatch.setattr(os, "mkdir", refuse)
        found = _look(held, tmp_path)
    assert found["demo", "writable"].level == "problem"
    assert found["", "home"].level == "problem"
    assert found["demo", "writable"].hint


@pytest.mark.parametrize("where", [".demo", ".demo/sessions"])
def test_link_on_the_way(tmp_path: Path, where: str) -> None:
    """A link where none is followed is a problem that names it."""
    home = tmp_path / "home"
    with restoring_sandbox(home) as held:
        (home / where).parent.mkdir(exist_ok=True)
        (home / where).symlink_to(tmp_path)
        problems = [finding for finding in _look(held, home).values() if finding.level == "problem"]
    assert [finding.check for finding in problems] == ["place"]
    assert str(home / where) in problems[0].message


def test_outside_of_the_roots(tmp_path: Path) -> None:
    """A variable that leads outside is a problem with a hint; other formats are looked at all the same."""
    with restoring_sandbox(tmp_path) as held:
        findings = diagnose(held, [FLAT, FLAT], {"DEMO_HOME": "/outside"})
    assert [finding.level for finding in findings if finding.format] == ["problem", "problem"]
    assert "--root" in findings[-1].hint


def test_little_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Less room than the largest session may need is a drawback."""
    with restoring_sandbox(tmp_path) as held:
        monkeypatch.setattr(os, "fstatvfs", lambda _: os.statvfs_result((4096, 4096, 100, 9, 9, 100, 9, 9, 0, 255)))
        assert _look(held, tmp_path)["demo", "free_space"].level == "warning"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_another_owner(tmp_path: Path) -> None:
    """A daemon that is another user than the CLI home's is told to name the owner."""
    with restoring_sandbox(tmp_path) as held:
        (tmp_path / ".demo").mkdir()
        os.chown(tmp_path / ".demo", 1001, 1001)
        finding = _look(held, tmp_path)["demo", "owner"]
    assert finding.level == "warning"
    assert "1001" in finding.hint


def test_sessions_on_another_file_system(tmp_path: Path) -> None:
    """A folder of sessions that is a mount of its own makes each restore copy what it sets aside."""
    with restoring_sandbox(tmp_path) as held:
        (tmp_path / ".demo/sessions").mkdir(parents=True)
        with mounted(tmp_path / ".demo/sessions", "tmpfs", "size=1m"):
            finding = _look(held, tmp_path)["demo", "same_filesystem"]
    assert finding.level == "warning"
