"""Upload and download of files and whole directories, built on `Files`.

Each file appears as a whole or not at all. Of a directory the regular files are copied; empty directories, times,
groups and the permission bits of others are not. A failed copy of a directory leaves the files that were complete.
"""

from __future__ import annotations

import asyncio
import os
import stat
from contextlib import ExitStack
from io import FileIO
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from host_client.errors import Offender, SessionError, WorkspaceError, printable
from host_client.sandbox.placement import Placement
from host_client.sandbox.progress import Progress, Reporter
from host_client.sandbox.task import in_thread, task_group
from host_client.session.failure import host_failure
from sandbox_api.names import order_problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from host_client.sandbox.file import FileInfo, Files
    from sandbox_api.limits import Limits

MAX_CONCURRENT_COUNT = 8
"""Files of one directory that are copied at the same time."""

_OWNER_BITS = 0o700


class _Tally:
    """Counts what is done of a transfer and reports it."""

    def __init__(self, files_total: int, bytes_total: int, callback: Callable[[Progress], None] | None) -> None:
        self._progress = Progress(0, files_total, 0, bytes_total)
        self._reporter = Reporter(callback)

    def add(self, bytes_count: int, files_count: int = 0) -> None:
        now = self._progress
        self._progress = Progress(
            now.files_count + files_count, now.files_total, now.bytes_count + bytes_count, now.bytes_total
        )
        self._reporter.report(self._progress)

    def finish(self) -> None:
        self._reporter.finish(self._progress)


async def upload(
    files: Files,
    host_path: Path,
    sandbox_path: PurePosixPath,
    *,
    progress: Callable[[Progress], None] | None = None,
) -> None:
    """Copy a file to a path of the sandbox, or all files of a directory below it. The owner's permission bits are kept.

    Links and special files are refused before anything is sent, all of them named.

    Args:
        files: The sandbox's files.
        host_path: What to copy.
        sandbox_path: Where the file, or the directory, goes; missing directories are made.
        progress: Told at most ten times a second, and at the end.

    Raises:
        WorkspaceError: `not_found`: nothing is at the host path; `unsafe_path`: links; `not_a_file`: special files;
            also those of `Files.write`.
    """
    found = await in_thread(_walk, host_path)
    tally = _Tally(len(found), sum(size for _, size in found), progress)
    limiter = asyncio.Semaphore(MAX_CONCURRENT_COUNT)

    async def send(relative: PurePosixPath) -> None:
        async with limiter:
            with ExitStack() as opened:
                file = await in_thread(_open_regular, host_path / relative, opened)
                await files.write(
                    sandbox_path / relative,
                    file,
                    mode=os.fstat(file.fileno()).st_mode & _OWNER_BITS,
                    make_parents=True,
                    after_chunk=tally.add,
                )
            tally.add(0, 1)

    async with task_group() as group:
        for relative, _ in found:
            group.create_task(send(relative))
    tally.finish()


async def download(
    files: Files,
    sandbox_path: PurePosixPath,
    host_path: Path,
    *,
    limits: Limits,
    progress: Callable[[Progress], None] | None = None,
) -> None:
    """Copy a file of the sandbox to a host path, or all files of a directory below it.

    The owner's permission bits are kept. Links and special files in a directory are passed over.

    Args:
        files: The sandbox's files.
        sandbox_path: What to copy.
        host_path: Where the file, or the directory, goes; its parent exists. A file that is there is replaced.
        limits: Most bytes and files to take.
        progress: Told at most ten times a second, and at the end.

    Raises:
        WorkspaceError: `unsafe_path`: the sandbox path is a link; `not_a_file`: it is a special file; `access`: the
            host refuses to write; also those of `Files.read`.
        LimitError: `max_bytes`, `max_files`.
        SessionError: `protocol`: the daemon named a file outside the directory.
    """
    top = await files.stat(sandbox_path)
    if top.kind == "symlink":
        raise WorkspaceError("unsafe_path", f"{printable(str(sandbox_path))} is a symbolic link")
    if top.kind == "other":
        raise WorkspaceError("not_a_file", f"{printable(str(sandbox_path))} is neither a file nor a directory")
    found = [top] if top.kind == "file" else await _find(files, sandbox_path, limits)
    limits.check(bytes_count=sum(info.size for info in found), files_count=len(found))
    base: Path = host_path.parent
    names: list[tuple[str, ...]] = [(host_path.name,)]
    if top.kind == "directory":
        base, names = host_path, _names(sandbox_path, found)
        await in_thread(_make_directory, base)
    tally = _Tally(len(found), sum(info.size for info in found), progress)
    limiter = asyncio.Semaphore(MAX_CONCURRENT_COUNT)

    async def fetch(info: FileInfo, segments: Sequence[str]) -> None:
        placement = Placement(base, segments)

        async with limiter:
            try:
                await in_thread(placement.open)
                read = await files.read(info.path, placement.write, max_bytes=info.size, after_chunk=tally.add)
                await in_thread(placement.commit, read.info.mode & _OWNER_BITS)
            finally:
                await in_thread(placement.close)
            tally.add(0, 1)

    async with task_group() as group:
        for info, segments in zip(found, names, strict=True):
            group.create_task(fetch(info, segments))
    tally.finish()


def _walk(host_path: Path) -> list[tuple[PurePosixPath, int]]:
    """Return relative path and size of each file at or below a host path, sorted."""
    try:
        mode = host_path.lstat().st_mode
        if not stat.S_ISDIR(mode):
            entries = [(PurePosixPath(), mode, host_path.lstat().st_size)]
        else:
            entries = list(_below(host_path))
    except OSError as error:
        raise host_failure(error, host_path) from error
    for reason, problem, is_bad in (
        ("unsafe_path", "is a symbolic link", stat.S_ISLNK),
        ("not_a_file", "is neither a file nor a directory", lambda mode: not stat.S_ISREG(mode)),
    ):
        bad = [Offender(printable(str(host_path / relative)), problem) for relative, mode, _ in entries if is_bad(mode)]
        if bad:
            raise WorkspaceError(reason, f"{len(bad)} entry(s) of the upload cannot be sent", offenders=bad)
    return [(relative, size) for relative, _, size in entries]


def _below(directory: Path) -> Iterator[tuple[PurePosixPath, int, int]]:
    """Yield relative path, mode and size of everything below that is no directory, sorted."""
    for path in sorted(directory.rglob("*")):
        status = path.lstat()
        if not stat.S_ISDIR(status.st_mode):
            yield PurePosixPath(path.relative_to(directory)), status.st_mode, status.st_size


def _make_directory(host_path: Path) -> None:
    try:
        host_path.mkdir(mode=_OWNER_BITS, exist_ok=True)
    except OSError as error:
        raise host_failure(error, host_path) from error


def _open_regular(host_path: Path, opened: ExitStack) -> FileIO:
    """Open a file; `opened` closes it, also when a cancel drops the result of this thread."""
    try:
        descriptor = os.open(host_path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise host_failure(error, host_path) from error
    file = opened.enter_context(FileIO(descriptor))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise WorkspaceError("not_a_file", f"{printable(str(host_path))} is no regular file any more")
    return file


async def _find(files: Files, directory: PurePosixPath, limits: Limits) -> list[FileInfo]:
    found: list[FileInfo] = []
    async for info in files.find(directory, max_files=limits.max_files):
        found.append(info)
        limits.check(bytes_count=0, files_count=len(found))
    return found


def _names(directory: PurePosixPath, found: Sequence[FileInfo]) -> list[tuple[str, ...]]:
    """Return the path of each file below the directory; `reply.sandbox_path` has refused relative steps."""
    outside = [info for info in found if not info.path.is_relative_to(directory) or info.path == directory]
    if outside:
        raise SessionError("protocol", f"the daemon found {printable(str(outside[0].path))} outside the directory")
    relative = [info.path.relative_to(directory) for info in found]
    if problem := order_problem(os.fsencode(path) for path in sorted(relative, key=os.fsencode)):
        raise SessionError("protocol", f"the daemon's file {printable(problem[0])} {problem[1]}")
    return [path.parts for path in relative]
