"""The claim on a followed conversation: one at a time, gone with whoever has it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from host_client.errors import ConflictError
from host_client.session import transcript_claim
from host_client.session.folder import Folder
from host_client.session.transcript_claim import Claim

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    """A folder of states."""
    with Folder.open(tmp_path, (), create=False) as held:
        yield held


def test_one_has_it_at_a_time(folder: Folder) -> None:
    """A second one is refused, others are not, and nothing is left when it ends."""
    with Claim(folder, "S1"), Claim(folder, "S2"):
        for _ in range(2):
            with pytest.raises(ConflictError) as caught:
                Claim(folder, "S1")
            assert caught.value.reason == "busy"
    with Claim(folder, "S1"):
        assert [path.name for path in folder.host_path.iterdir()] == [".S1.follow"]
    assert list(folder.host_path.iterdir()) == []


def test_killed_one_leaves_it_to_the_next(folder: Folder) -> None:
    """The file that a killed process left is no claim."""
    script = """
import os, signal, sys
from pathlib import Path
from host_client.session.folder import Folder
from host_client.session.transcript_claim import Claim
with Folder.open(Path(sys.argv[1]), (), create=False) as folder, Claim(folder, "S1"):
    os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", script, folder.host_path], check=False)
    assert done.returncode == -signal.SIGKILL
    assert (folder.host_path / ".S1.follow").exists()
    with Claim(folder, "S1"):
        pass
    assert list(folder.host_path.iterdir()) == []


def test_file_that_goes_before_it_is_locked(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who opens the file just before its owner takes it away gets another: a lock on no file claims nothing."""
    real, opened = os.open, []

    def open_late(*args: object, **options: object) -> int:
        fd = real(*args, **options)  # type: ignore[arg-type]
        opened.append(fd)
        if len(opened) == 1:
            (folder.host_path / ".S1.follow").unlink()
        return fd

    monkeypatch.setattr(transcript_claim.os, "open", open_late)
    with Claim(folder, "S1"):
        assert len(opened) == 2
        with pytest.raises(ConflictError):
            Claim(folder, "S1")


def test_link_is_not_followed(folder: Folder, tmp_path: Path) -> None:
    """A link of that name is no file of ours."""
    (tmp_path / ".S1.follow").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Exception, match="unsafe_path"):
        Claim(folder, "S1")
    assert not (tmp_path / "elsewhere").exists()
