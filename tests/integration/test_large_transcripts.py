"""Transcripts as large as they are met in the wild: how much memory either side takes, and that all of it arrives."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from host_client.agents.claude import project_key
from support.daemon import running_daemon

if TYPE_CHECKING:
    from collections.abc import Iterator

S1 = "11111111-0000-4000-8000-000000000000"
MIB = 1 << 20
MAX_DAEMON_BYTES = 96 * MIB
MAX_FLAT_BYTES = 128 * MIB
OUTPOST = """
import sys
from pathlib import Path
from host_client.cli.__main__ import main
ended = main(sys.argv[1:])
print(Path("/proc/self/status").read_text())
sys.exit(ended)
"""


def ordinary(cwd: bytes) -> Iterator[bytes]:
    """Yield 256 MiB of lines of 4 KiB."""
    lines = (b'{"type":"user","cwd":"%b","text":"%b"}\n' % (cwd, b"y" * 4000)) * 256
    for _ in range(256 * MIB // len(lines)):
        yield lines


def one_long(cwd: bytes) -> Iterator[bytes]:
    """Yield a line of 150 MB that names its directory in front of a long text and behind it."""
    yield b'{"type":"user","cwd":"%b","text":"' % cwd
    for _ in range(150):
        yield b"x" * 1_000_000
    yield b'","payload":{"cwd":"%b"}}\n' % cwd


def run(*words: object) -> tuple[dict[str, Any], int, int]:
    """Run `outpost`; return its document, the most memory it took, and how often it told its progress."""
    command = [sys.executable, "-P", "-c", OUTPOST, *map(str, words), "--durability", "none", "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout
    document, status = ended.stdout.split("\n", 1)
    return json.loads(document), peak_bytes(status), ended.stderr.count('"progress"')


def peak_bytes(status: str) -> int:
    """Return the most memory that a process has had, by its status; what it was forked from does not count."""
    return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmHWM"))


def status_of(pid: int) -> str:
    """Return the status of a process."""
    return Path("/proc", str(pid), "status").read_text()


@pytest.mark.parametrize(
    ("make", "max_host_bytes"),
    [(ordinary, MAX_FLAT_BYTES), (one_long, 4.5 * 150_000_000)],
    ids=["ordinary lines", "a line of 150 MB"],
)
def test_memory_does_not_follow_the_size(tmp_path: Path, make: Any, max_host_bytes: int) -> None:
    """There and back: the daemons stay flat whatever is in it, the host within a small multiple of the longest line."""
    for name in ("a", "b", "kept", "repo"):
        (tmp_path / name).mkdir()
    keep = ("--home", tmp_path / "kept", "--repository", tmp_path / "repo")
    with ExitStack() as stack:
        a, b = (stack.enter_context(running_daemon(tmp_path / name)) for name in "ab")
        place = Path(".claude/projects", project_key(str(a.workspace)), f"{S1}.jsonl")
        (a.home / place).parent.mkdir(parents=True)
        with (a.home / place).open("wb") as file:
            for piece in make(os.fsencode(a.workspace)):
                file.write(piece)
        size_bytes = (a.home / place).stat().st_size
        captured, capture_bytes, reports_count = run("capture", a.target, "claude", S1, *keep)
        assert captured["received_bytes"] >= size_bytes
        assert reports_count > 2
        restored, restore_bytes, _ = run("restore", b.target, "claude", S1, *keep)
        assert (captured["files"], captured["notices"]) == (1, [])
        assert max(peak_bytes(status_of(daemon.process.pid)) for daemon in (a, b)) < MAX_DAEMON_BYTES
        assert max(capture_bytes, restore_bytes) < max_host_bytes
        # The workspaces have names of one length, so the transcripts differ in nothing else.
        assert Path(restored["target"]).stat().st_size == size_bytes
        for path in ((a.home / place), Path(captured["path"]), Path(restored["target"])):
            path.unlink()
