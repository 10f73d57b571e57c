"""The layers of an agent's environment, and the file of variables in a repository."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from host_client.errors import ConfigurationError, OutpostError, WorkspaceError
from host_client.turns.environment import FILE, MAX_FILE_BYTES, layered, repository_variables

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def write(repository: Path, content: str | bytes) -> Path:
    """Write the file of variables."""
    path = repository / FILE
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_values_are_what_stands_there(tmp_path: Path) -> None:
    """Quotes, comments and `export` are understood, and nothing is put in for names of other variables."""
    write(tmp_path, "A=1\n# no\nexport B='two words'\nC=\"$A ${A}\"\nD=x # why\n")
    assert repository_variables(tmp_path, {}) == {"A": "1", "B": "two words", "C": "$A ${A}", "D": "x"}


def test_an_empty_value_is_the_hosts(tmp_path: Path) -> None:
    """An empty value is filled from the host's environment, and left out where that has none."""
    write(tmp_path, "KEY=\nGONE=\nBARE\nEMPTY=\n")
    assert repository_variables(tmp_path, {"KEY": "host's", "BARE": "b", "EMPTY": "", "OTHER": "x"}) == {
        "KEY": "host's",
        "BARE": "b",
    }


def test_the_host_is_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a given environment it is that of this process."""
    write(tmp_path, "SOME_KEY=\n")
    monkeypatch.setenv("SOME_KEY", "known")
    assert repository_variables(tmp_path) == {"SOME_KEY": "known"}


def test_no_file_is_no_variable(tmp_path: Path) -> None:
    """A repository needs no such file, and a turn no repository."""
    assert repository_variables(tmp_path, {}) == {}
    (tmp_path / ".outpost").mkdir()
    assert repository_variables(tmp_path, {}) == {}
    assert repository_variables(None, {}) == {}


@pytest.mark.parametrize("linked", [FILE, FILE.parent])
def test_links_are_not_followed(tmp_path: Path, linked: Path) -> None:
    """Neither the file nor its folder may be a link, wherever that leads."""
    other, repository = tmp_path / "other", tmp_path / "repository"
    other.mkdir()
    repository.mkdir()
    write(other, "A=stolen\n")
    (repository / linked).parent.mkdir(exist_ok=True)
    (repository / linked).symlink_to(other / linked)
    with pytest.raises(WorkspaceError) as caught:
        repository_variables(repository, {})
    assert caught.value.reason == "unsafe_path"


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_refused_at_once(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """Nothing hangs, and nothing stays open."""
    write(tmp_path, "").unlink()
    make(tmp_path / FILE)
    with pytest.raises(WorkspaceError) as caught:
        repository_variables(tmp_path, {})
    assert caught.value.reason == "not_a_file"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_a_failure(tmp_path: Path) -> None:
    """Variables that are there and cannot be read are not passed over."""
    write(tmp_path, "A=1\n").chmod(0)
    with pytest.raises(WorkspaceError) as caught:
        repository_variables(tmp_path, {})
    assert caught.value.reason == "access"


@pytest.mark.parametrize(
    "content", [b"A=\xff\n", b"a-b=secret-value\n", b"A='se\0cret'\n", b"A=1\n" * (MAX_FILE_BYTES // 4 + 1)]
)
def test_what_cannot_be_an_environment_is_refused(tmp_path: Path, content: bytes) -> None:
    """No UTF-8, no name of a variable, a NUL or too much: refused, without a value in the message."""
    write(tmp_path, content)
    with pytest.raises(OutpostError) as caught:
        repository_variables(tmp_path, {})
    assert (caught.value.code, caught.value.reason) == ("configuration", "invalid_argument")
    assert "cret" not in str(caught.value)


@pytest.mark.parametrize("line", ["NO NAME=secret", "=secret", "A='secret", "A='secret'x", "se cret"])
def test_a_line_that_means_nothing_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture, line: str) -> None:
    """A variable that was meant to be set is not passed over; the line is named, and nothing that stands there."""
    write(tmp_path, f"# first\n{line}\nB=1\n")
    with pytest.raises(ConfigurationError) as caught:
        repository_variables(tmp_path, {})
    assert (caught.value.reason, caught.value.facts) == ("invalid_argument", {"line": "2"})
    assert "cret" not in str(caught.value)
    assert caplog.records == []


def test_of_one_name_the_last_line_counts(tmp_path: Path) -> None:
    """Also when that has no value."""
    write(tmp_path, "A=1\nA=2\nB=1\nB=\n")
    assert repository_variables(tmp_path, {}) == {"A": "2"}


def test_later_layers_win() -> None:
    """Repository, then provider, then agent."""
    assert layered({"A": "r", "B": "r", "C": "r"}, {"B": "p"}, {"C": "a"}, "mycli") == {"A": "r", "B": "p", "C": "a"}


def test_provider_and_agent_must_not_set_the_same() -> None:
    """A name that both set is refused, whatever the values, and no value is told."""
    with pytest.raises(ConfigurationError) as caught:
        layered({}, {"A": "secret", "B": "1"}, {"A": "secret", "C": "1"}, "mycli")
    assert caught.value.reason == "variable_collision"
    assert caught.value.facts == {"variables": "A"}
    assert "secret" not in str(caught.value)
