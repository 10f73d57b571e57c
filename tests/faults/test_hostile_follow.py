"""A sandbox that works against a follower: nothing outside is sent, nothing hangs, and no file is lost for good."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from sandbox_agent.core import paths
from sandbox_agent.core.follow_file import Data
from support.following import append, following

if TYPE_CHECKING:
    from pathlib import Path

CANARY = b"CANARY" * 100
SWAP_COUNT = 3000

# Exchanges a name with another, over and over, each in one atomic step.
SWAP = """
import os, sys
from sandbox_agent.core.syscall import RENAME_EXCHANGE, renameat2
folder = os.open(sys.argv[1], os.O_RDONLY)
name, other = (os.fsencode(text) for text in sys.argv[2:4])
for _ in range(int(sys.argv[4])):
    renameat2(folder, name, folder, other, RENAME_EXCHANGE)
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with a file to follow; beside it files of the same names that must not be sent."""
    for top, content in (("home", b"file"), ("outside", CANARY)):
        (tmp_path / top / "p/q").mkdir(parents=True)
        (tmp_path / top / "p/q/a").write_bytes(content)
        (tmp_path / top / "q").mkdir()
        (tmp_path / top / "q/a").write_bytes(content)
        (tmp_path / top / "a").write_bytes(content)
    return tmp_path / "home"


@pytest.mark.parametrize("way", ["openat2", "stepwise"])
@pytest.mark.parametrize("told", [False, True])
@pytest.mark.parametrize(
    ("name", "target"), [("p", "outside"), ("p/q", "outside"), ("p/q/a", "outside/a"), ("p", "outside/p")]
)
def test_names_that_are_swapped_for_links(
    home: Path, monkeypatch: pytest.MonkeyPatch, name: str, target: str, *, told: bool, way: str
) -> None:
    """Whatever is a link in whatever moment: what it leads to is never sent, and the file is found again at the end."""
    if way == "stepwise":
        monkeypatch.setattr(paths, "has_openat2", lambda: False)
    (home / "link").symlink_to(home.parent / target)
    command = [sys.executable, "-c", SWAP, str(home), name, "link", str(SWAP_COUNT)]
    with following(home, told=told) as client, subprocess.Popen(command) as swapping:
        is_over = False
        while not is_over:
            is_over = swapping.poll() is not None
            assert not any(isinstance(part, Data) and b"CANARY" in part.data for part in client.catch_up())
        assert swapping.returncode == 0
        if not told:  # else it may be found only when it is time to look at everything, which is never here
            append(home / "p/q/a", b", more")
            client.catch_up()
            assert client.contents == {b"p/q/a": b"file, more"}


@pytest.mark.parametrize("kind", ["fifo", "directory"])
def test_a_file_that_is_swapped_for_something_else(home: Path, kind: str) -> None:
    """Nothing waits for a FIFO's other end or reads a directory; while it is a file it is sent."""
    command = {"fifo": ["mkfifo", str(home / "other")], "directory": ["mkdir", str(home / "other")]}
    subprocess.run(command[kind], check=True)
    swap = [sys.executable, "-c", SWAP, str(home), "p/q/a", "other", str(SWAP_COUNT)]
    with following(home) as client, subprocess.Popen(swap) as swapping:
        while swapping.poll() is None:
            client.catch_up()
        assert swapping.returncode == 0
        client.catch_up()
        assert client.contents == {b"p/q/a": b"file"}


def test_a_file_that_is_truncated_and_written_without_end(home: Path) -> None:
    """Whatever is sent is marked by a digest of exactly that, or begins again."""
    program = """
import sys
for number in range(3000):
    with open(sys.argv[1], "w" if number % 3 == 0 else "a") as file:
        file.write(f"{number}\\n" * (number % 400 + 1))
"""
    with following(home) as client, subprocess.Popen([sys.executable, "-c", program, str(home / "p/q/a")]) as writing:
        while writing.poll() is None:
            batch = next(client.batches)
            for part in batch.parts:
                client.take(part)
        assert writing.returncode == 0
        client.catch_up()
        assert client.contents[b"p/q/a"] == (home / "p/q/a").read_bytes()
