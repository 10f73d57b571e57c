"""The session trees that are moved, made from a fixed seed so every run moves the same bytes.

A tree is a valid session of the bench profile (`benchmarks.client`): `session.json`, which names the
id and the working directory, and below `files/` the data.
"""

import hashlib
import json
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from benchmarks.harness import BenchError

SESSION_ID = "bench-session"
MIB = 1024 * 1024
MAX_BUNDLE_BYTES = 512 * MIB
"""Limit that both sides are given, above the default one, for the largest tree."""
_SEED = 20_250_101
_FILES_PER_DIRECTORY = 100
_CHUNK_BYTES = MIB


@dataclass(frozen=True)
class Tree:
    """How many data files there are, and how many bytes they hold together."""

    file_count: int
    data_bytes: int

    @property
    def name(self) -> str:
        """Name the tree as a row names it."""
        files = "1 file" if self.file_count == 1 else f"{self.file_count} files"
        return f"{files} of {self.data_bytes // MIB} MiB"


MANY_FILES = Tree(file_count=4000, data_bytes=60 * MIB)
FEW_FILES = Tree(file_count=8, data_bytes=60 * MIB)
ONE_FILE = Tree(file_count=1, data_bytes=60 * MIB)
ONE_BIG_FILE = Tree(file_count=1, data_bytes=240 * MIB)


def session_path(home: Path) -> Path:
    """Return where the bench profile keeps the session below an agent's home."""
    return home / ".bench" / "sessions" / SESSION_ID


def data_path(session: Path, number: int) -> Path:
    """Return the path of one data file of a session."""
    return session / "files" / f"{number // _FILES_PER_DIRECTORY:02}" / f"{number:04}.bin"


def write_session(session: Path, tree: Tree, *, cwd: Path) -> None:
    """Write the tree as a new session that was begun in `cwd`."""
    content = random.Random(_SEED)  # noqa: S311 - the same bytes in every run are the point
    write_identity(session, cwd=cwd)
    for number in range(tree.file_count):
        path = data_path(session, number)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            for size_bytes in _chunk_sizes(tree, number):
                file.write(content.randbytes(size_bytes))


def write_identity(session: Path, *, cwd: Path) -> None:
    """Write `session.json` alone: the least session of the bench profile."""
    session.mkdir(parents=True)
    (session / "session.json").write_text(json.dumps({"id": SESSION_ID, "cwd": str(cwd)}))


def check_session(session: Path, tree: Tree, *, cwd: Path, thorough: bool) -> None:
    """Raise BenchError unless the directory holds the tree, and its identity names `cwd`."""
    identity = json.loads((session / "session.json").read_text())
    if identity != {"id": SESSION_ID, "cwd": str(cwd)}:
        raise BenchError(f"{session} holds a wrong identity: {identity}")
    sizes = [
        os.lstat(os.path.join(folder, name)).st_size  # noqa: PTH118 - a path object per file is slow
        for folder, _, names in os.walk(session / "files")
        for name in names
    ]
    if (len(sizes), sum(sizes)) != (tree.file_count, tree.data_bytes):
        raise BenchError(f"{session} holds {len(sizes)} files of {sum(sizes)} bytes, not the {tree.name}")
    if thorough and _digest(session, tree) != _expected_digest(tree):
        raise BenchError(f"{session} holds other bytes than the {tree.name}")


def _chunk_sizes(tree: Tree, number: int) -> Iterator[int]:
    """Yield the sizes in which one file is made: all files are equal, the first ones take the rest."""
    share, rest = divmod(tree.data_bytes, tree.file_count)
    left = share + (1 if number < rest else 0)
    while left:
        size_bytes = min(left, _CHUNK_BYTES)
        yield size_bytes
        left -= size_bytes


def _digest(session: Path, tree: Tree) -> str:
    digest = hashlib.sha256()
    for number in range(tree.file_count):
        with data_path(session, number).open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
    return digest.hexdigest()


@cache
def _expected_digest(tree: Tree) -> str:
    """Return the digest of the tree, made anew from the seed and from no file."""
    content = random.Random(_SEED)  # noqa: S311 - the same bytes in every run are the point
    digest = hashlib.sha256()
    for number in range(tree.file_count):
        for size_bytes in _chunk_sizes(tree, number):
            digest.update(content.randbytes(size_bytes))
    return digest.hexdigest()
