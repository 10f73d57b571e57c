"""Run a format's own functions: `validate`, `bucket`, `relocate`.

They come as source text and run in an interpreter of their own (`hook_child`), within a time and memory limit. The rule
of this module: whatever a hook does, the daemon goes on, and the caller learns which hook did it.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Protocol, Self

from sandbox_agent.core.copy import write_all
from sandbox_agent.core.hook_child import PIECE_BYTES
from sandbox_agent.core.hook_process import HookProcess
from sandbox_api.errors import ConfigurationError, printable
from sandbox_api.hook import MAX_ERROR_CHARACTERS
from sandbox_api.limits import HOOK_MEMORY_BYTES, HOOK_SECONDS
from sandbox_api.names import name_problem

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from sandbox_agent.core.hook_process import Head
    from sandbox_api.profile import Profile

_OWN_PREFIX = ".outpost-"  # names of staging and recovery directories


class HookFiles(Protocol):
    """The files of a session as `validate` and `relocate` may see them."""

    def paths(self) -> list[str]:
        """Return the paths of all files."""
        ...

    def open(self, path: str) -> int | None:
        """Return a descriptor of one of `paths`, a regular file, which the caller closes; None: it is not there."""
        ...


class HookRunner:
    """Runs the hooks of one profile during one call, all in one process, started by the first if not before.

    Blocks; for one thread at a time. A context manager: leaving it ends the process. A failure ends it as well; a hook
    after that starts another.

    Every hook raises:
        SessionError: `hook_failed` (it raised an error, in `facts["error"]`, or returned the wrong type),
            `hook_timeout`, `hook_memory`, `hook_crashed`; the message names the hook.
        ConfigurationError: `invalid_hook`: its source does not compile in this Python.
        ProcessError: `start_failed`.

    Args:
        profile: Its hooks are run.
        seconds: For each hook, from the request to the end of its result, with the process's start and all transfers.
        memory_bytes: Address space of the process: interpreter, text and all.
    """

    def __init__(
        self, profile: Profile, *, seconds: float = HOOK_SECONDS, memory_bytes: int = HOOK_MEMORY_BYTES
    ) -> None:
        self._sources = {"validate": profile.validate, "bucket": profile.bucket, "relocate": profile.relocate}
        self._seconds = seconds
        self._memory_bytes = memory_bytes
        self._process: HookProcess | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process when there is one."""
        if self._process is not None:
            self._process.end()
            self._process = None

    def start(self) -> None:
        """Start the process now, in a call that will run a hook, so that it gets ready while the call does its work.

        Raises:
            ProcessError: `start_failed`.
            LimitError: `descriptors`.
        """
        self._started()

    def validate(self, conversation_id: str, files: HookFiles) -> str | None:
        """Return what is wrong with a session, printable, at most 1,000 characters; None: nothing, or no such hook.

        What `files.open` raises comes out as it is.

        Raises:
            OSError: of reading a file.
        """
        if not self._sources["validate"]:
            return None
        with self._call("validate", {"id": conversation_id}) as process:
            problem = process.result(_serve(process, files))
            if problem is None:
                return None
            if not isinstance(problem, str) or not problem:
                process.garbled()
            return printable(problem[:MAX_ERROR_CHARACTERS])[:MAX_ERROR_CHARACTERS]

    def bucket(self, cwd: bytes) -> bytes:
        """Return the name of a workspace's folder.

        Raises:
            ConfigurationError: `invalid_bucket`: it is not one plain path segment.
        """
        with self._call("bucket", {"cwd": _text(cwd)}) as process:
            name = process.result(process.receive()[0])
            if not isinstance(name, str):
                process.garbled()
        encoded = name.encode("utf-8", "surrogatepass")
        problem = name_problem(encoded)
        if encoded.startswith(_OWN_PREFIX.encode()):
            problem = f"names that begin with {_OWN_PREFIX} are ours"
        if problem:
            raise ConfigurationError(
                "invalid_bucket",
                f"the bucket hook returned '{printable(name[:200])}': {problem}",
                hint="return one plain directory name",
                facts={"hook": "bucket"},
            )
        return encoded

    def relocate(
        self,
        path: str,
        source_fd: int,
        target_fd: int,
        *,
        conversation_id: str,
        cwd: bytes,
        target: bytes,
        files: HookFiles | None = None,
    ) -> None:
        """Write the new text of one file.

        The text goes to the process and comes back in pieces: the daemon never holds it. After a failure the target may
        have a part of the text, to be thrown away.

        Args:
            path: Of the file in the session.
            source_fd: A regular file, read from its beginning; its offset does not matter and stays.
            target_fd: Written from its offset on.
            conversation_id: Of the session.
            cwd: The workspace that the session moves to.
            target: The session's final directory.
            files: The session before any of its files was relocated, to look things up in; None: the hook sees none.

        Raises:
            OSError: of reading the source or writing the target.
        """
        request: Head = {"path": path, "id": conversation_id, "cwd": _text(cwd), "target": _text(target)}
        with self._call("relocate", request, path=path) as process:
            _send_content(process, source_fd)
            process.result(_serve(process, files))
            written_bytes = 0
            while True:
                head, piece = process.receive()
                if "end" in head:
                    break
                written_bytes += len(piece)
                # A text does not outgrow the memory it was made in.
                if not piece or written_bytes > self._memory_bytes:
                    process.garbled()
                write_all(target_fd, piece)

    def _started(self) -> HookProcess:
        if self._process is None:
            self._process = HookProcess(self._sources, self._memory_bytes)
        return self._process

    @contextlib.contextmanager
    def _call(self, hook: str, request: Head, *, path: str = "") -> Iterator[HookProcess]:
        process = self._started()
        try:
            process.begin(hook, self._seconds, request, path=path)
            yield process
        except BaseException:
            # Whatever went wrong, the two are no longer at the same frame.
            self.close()
            raise


def _text(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")


def _serve(process: HookProcess, files: HookFiles | None) -> Head:
    """Answer what a hook asks about the session's files; return the frame with its result."""
    known: dict[str, None] | None = None
    while (head := process.receive()[0]) and "ask" in head:
        known = dict.fromkeys(files.paths() if files else ()) if known is None else known
        path = head.get("path")
        if head["ask"] == "paths":
            _send_all(process, "\0".join(known).encode("utf-8", "surrogateescape"))
        elif isinstance(path, str):
            # Only a path that was listed reaches the file system.
            _send_file(process, files.open(path) if files and path in known else None)
        else:
            process.garbled()
    return head


def _send_file(process: HookProcess, descriptor: int | None) -> None:
    if descriptor is None:
        process.send({"missing": True})
        return
    try:
        process.send({"found": True})
        _send_content(process, descriptor)
    finally:
        os.close(descriptor)


def _send_content(process: HookProcess, descriptor: int) -> None:
    offset = 0
    while piece := os.pread(descriptor, PIECE_BYTES, offset):
        process.send({"piece": True}, piece)
        offset += len(piece)
    process.send({"end": True})


def _send_all(process: HookProcess, content: bytes) -> None:
    view = memoryview(content)
    for start in range(0, len(view), PIECE_BYTES):
        process.send({"piece": True}, view[start : start + PIECE_BYTES])
    process.send({"end": True})
