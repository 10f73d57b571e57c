"""Transcripts of any size for the bench, as Claude Code writes them, and the two sides they are moved between.

The lines have the sizes, and the `cwd` in each line, of real transcripts; the text is made from a fixed seed.
"""

import base64
import json
import random
import uuid
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache
from itertools import zip_longest
from pathlib import Path

from benchmarks.daemon import Daemon, serving
from benchmarks.harness import BenchError
from benchmarks.scratch import new_place, retire
from host_client.agents.claude import project_key

MIB = 1024 * 1024
CONVERSATION_ID = str(uuid.UUID(int=0x0A7B0577))
_BLOCK_BYTES = 4 * MIB
_SEED = 20_250_101
_FRAME_BYTES = 600
"""About what a line has beside its text."""
_CWD = b"\0cwd\0"
"""Stands in a block where a working directory goes; nothing else of it has a NUL."""


@dataclass(frozen=True)
class TranscriptPlace:
    """Everything of one transcript lies below `directory`, in a part of the disk that is its own.

    Attributes:
        directory: The place.
        size_bytes: About how large the transcript is when it is made: whole blocks of lines.
    """

    directory: Path
    size_bytes: int

    @classmethod
    def build(cls, size_bytes: int, scratch_directory: Path, *, distinct: bool = False) -> "TranscriptPlace":
        """Write the transcript of the sandbox and the empty folders around it.

        Args:
            size_bytes: About how large it is.
            scratch_directory: Where.
            distinct: Whether no block comes twice, for what would store it once.
        """
        place = cls(new_place(scratch_directory), size_bytes)
        place.workspace.mkdir(parents=True)
        place.source.parent.mkdir(parents=True)
        with place.source.open("wb") as file:
            for number in range(size_bytes // _BLOCK_BYTES):
                file.write(_block(number * distinct).replace(_CWD, str(place.workspace).encode()))
        return place

    @property
    def name(self) -> str:
        """Name the transcript as a row names it."""
        return f"transcript of {self.size_bytes // MIB} MiB"

    @property
    def sandbox_home(self) -> Path:
        """Return the agent home of the sandbox."""
        return self.directory / "sandbox-home"

    @property
    def workspace(self) -> Path:
        """Return the workspace of the sandbox, which the transcript names in every line."""
        return self.directory / "sandbox-workspace"

    @property
    def source(self) -> Path:
        """Return the transcript in the sandbox."""
        return (
            self.sandbox_home / ".claude" / "projects" / project_key(str(self.workspace)) / f"{CONVERSATION_ID}.jsonl"
        )

    def host_home(self, name: str) -> Path:
        """Return a folder of the host that stands for a user's home; each subject has its own."""
        path = self.directory / "host" / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def daemon(self) -> AbstractContextManager[Daemon]:
        """Start the daemon of the sandbox."""
        return serving(home=self.sandbox_home, workspace=self.workspace)

    def clear(self, path: Path) -> None:
        """Take what an earlier round left at `path` out of the way."""
        retire(path, self.directory / "retired")

    def check_copy(self, host_home: Path) -> None:
        """Raise BenchError unless the host home holds the transcript as it is now, relocated and byte by byte."""
        self.check_moved(host_home, host_home)

    def check_moved(self, home: Path, workspace: Path) -> None:
        """Raise BenchError unless a home holds the transcript as it is now, relocated there and byte by byte."""
        old, new = (b'"cwd":"%b"' % str(cwd).encode() for cwd in (self.workspace, workspace))
        copy = _path(home, workspace)
        with self.source.open("rb") as lines, copy.open("rb") as copied_lines:
            pairs = zip_longest(lines, copied_lines, fillvalue=b"")
            if any(line.replace(old, new) != copied for line, copied in pairs):
                raise BenchError(f"{copy} is not the {self.name}, relocated")

    def host_copy(self, host_home: Path) -> Path:
        """Return the transcript on the host."""
        return _path(host_home, host_home)


def _path(home: Path, cwd: Path) -> Path:
    return home / ".claude" / "projects" / project_key(str(cwd)) / f"{CONVERSATION_ID}.jsonl"


def append_line(transcript: Path, size_bytes: int) -> None:
    """Let the CLI write a line of about that many bytes to a transcript that has one."""
    with transcript.open("rb") as file:
        cwd = json.loads(file.readline())["cwd"]
    with transcript.open("ab") as file:
        file.write(_line(0, "x" * (size_bytes - _FRAME_BYTES)).replace(_CWD, cwd.encode()))


def append_noise(transcript: Path, size_bytes: int, number: int) -> None:
    """Let the CLI write two lines of that many bytes or so together; their text hardly compresses."""
    with transcript.open("rb") as file:
        cwd = json.loads(file.readline())["cwd"]
    content = random.Random(_SEED - number - 1)  # noqa: S311 - as below
    with transcript.open("ab") as file:
        for _ in range(2):
            text = base64.b64encode(content.randbytes((size_bytes // 2 - _FRAME_BYTES) * 3 // 4)).decode()
            file.write(line(number, text, cwd))


def line(number: int, text: str, cwd: str) -> bytes:
    """Return a line as Claude Code writes it in that working directory."""
    return _line(number, text).replace(_CWD, cwd.encode())


@lru_cache(maxsize=1)
def _block(number: int) -> bytes:
    content = random.Random(_SEED + number)  # noqa: S311 - the same bytes in every run are the point
    lines: list[bytes] = []
    size_bytes = 0
    while size_bytes < _BLOCK_BYTES:
        lines.append(_line(len(lines), content.randbytes(content.randint(100, 1300)).hex()))
        size_bytes += len(lines[-1])
    return b"".join(lines)


def _line(number: int, text: str) -> bytes:
    line = {
        "parentUuid": str(uuid.UUID(int=number)),
        "isSidechain": False,
        "userType": "external",
        "cwd": "CWD",
        "sessionId": CONVERSATION_ID,
        "version": "2.1.332",
        "gitBranch": "main",
        "type": ("assistant", "user")[number % 2],
        "message": {"role": ("assistant", "user")[number % 2], "content": [{"type": "text", "text": text}]},
        "uuid": str(uuid.UUID(int=number + 1)),
        "timestamp": "2026-11-30T12:00:00.000Z",
    }
    return json.dumps(line, separators=(",", ":")).encode().replace(b'"cwd":"CWD"', b'"cwd":"%b"' % _CWD) + b"\n"
