"""Installing the real CLIs: whole or not at all, and a reason when it cannot be done."""

import shutil
from pathlib import Path

import pytest

from e2e.clis import install


@pytest.fixture
def npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a program called npm on the PATH, alone, and the cache into a fresh folder; the test writes what it does."""
    program = tmp_path / "bin" / "npm"
    program.parent.mkdir()
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setattr(install, "CACHE", tmp_path / "cache")
    return program


def write(program: Path, script: str) -> None:
    """Make it an executable."""
    program.write_text("#!/bin/sh\n" + script)
    program.chmod(0o755)


def test_an_installation_is_made_once(npm: Path) -> None:
    """The lock file decides what is installed; a second run finds it there."""
    write(npm, 'test -f package-lock.json && mkdir node_modules && echo "$@" > node_modules/arguments\n')
    place = install.installed("kimi")
    assert "ci --ignore-scripts" in (place / "node_modules" / "arguments").read_text()
    write(npm, "exit 9\n")
    assert install.installed("kimi") == place
    assert list(install.CACHE.iterdir()) == [place]


def test_a_failed_installation_leaves_nothing(npm: Path) -> None:
    """The reason is npm's own, and no half of a CLI can be mistaken for one."""
    write(npm, "mkdir node_modules; echo no route to the registry >&2; exit 1\n")
    with pytest.raises(install.UnavailableError, match="ended with 1: no route to the registry"):
        install.installed("copilot")
    assert list(install.CACHE.iterdir()) == []


def test_what_finishes_an_installation_belongs_to_it(npm: Path) -> None:
    """It is done before the CLI is in place, and a failure leaves nothing either."""
    write(npm, "mkdir node_modules\n")

    def fail(folder: Path) -> None:
        assert not list(install.CACHE.glob("kimi-*"))
        (folder / "half").touch()
        raise RuntimeError

    with pytest.raises(RuntimeError):
        install.installed("kimi", fail)
    assert list(install.CACHE.iterdir()) == []
    place = install.installed("kimi", lambda folder: (folder / "whole").touch())
    assert (place / "whole").exists()


def test_a_machine_without_npm_is_told_apart(npm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing npm is a reason of its own."""
    monkeypatch.setenv("PATH", str(npm.parent))
    with pytest.raises(install.UnavailableError, match="npm is not installed"):
        install.installed("copilot")


def test_an_installation_that_hangs_is_given_up(npm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The registry may be there and not answer."""
    write(npm, "exec sleep 60\n")
    monkeypatch.setattr(install, "INSTALL_SECONDS", 0.2)
    with pytest.raises(install.UnavailableError, match="did not finish"):
        install.installed("copilot")
    assert list(install.CACHE.iterdir()) == []


def test_of_two_runs_at_once_either_may_win(npm: Path) -> None:
    """Whoever comes second uses what the first put in place."""
    write(npm, "mkdir node_modules\n")
    place = install.installed("kimi")
    shutil.rmtree(place)
    write(npm, f'mkdir node_modules "{place}"; touch "{place}/first"\n')
    assert (install.installed("kimi") / "first").exists()
