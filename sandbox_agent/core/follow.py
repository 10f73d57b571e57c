"""Follow the files of a conversation: what there is and what comes, as one endless sequence of batches.

The one rule: what wakes a follower only says where to look, and everything is looked at once in a while, so that
whatever was not told is found a little later.
"""

from __future__ import annotations

import os
import time
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from sandbox_agent.core.follow_file import Data, FollowFile, Held, Part
from sandbox_agent.core.follow_folder import FollowFolders, Pattern
from sandbox_agent.core.paths import LinkError
from sandbox_api.errors import LimitError, printable
from sandbox_api.limits import CHUNK_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from types import TracebackType
    from typing import Self

    from sandbox_agent.core.inotify import Subscription
    from sandbox_agent.core.paths import Directory, Roots

LOOK_SECONDS = 2.0
"""How often everything is looked at where the kernel tells of changes."""

POLL_SECONDS = 0.4
"""The same where it does not: a line is to be sent within half a second."""

_MAX_SHARE, _MAX_POLLED_SHARE = 1 / 1000, 1 / 20
"""Share of the time that looking at everything may take; where it takes long it is done less often."""

_LIFE_SECONDS = 0.1
_FILE = -1  # in place of a pattern's index in the key of what is watched


class Batch(NamedTuple):
    """Parts to send, in order; `is_last` when there is no more for now."""

    parts: Sequence[Part]
    is_last: bool


class Follow:
    """The files of one call; a context manager. Blocking.

    Args:
        roots: Where the home lies.
        home: Its absolute path.
        patterns: Which files below it. The first that matches a file says whether only whole lines of it are sent.
        held: What the client holds, by path.
        max_files: Most files at a time.
        subscription: Tells of changes, and is closed on leaving; None: everything is looked at every time.

    Raises:
        WorkspaceError: on entering: `unsafe_path`, `outside_roots`.
        OSError: on entering: there is no such home.
    """

    def __init__(
        self,
        roots: Roots,
        home: bytes,
        patterns: Sequence[Pattern],
        held: Mapping[bytes, Held],
        *,
        max_files: int,
        subscription: Subscription | None,
    ) -> None:
        self._roots = roots
        self._path = home
        self._patterns = patterns
        self._held = dict(held)
        self._max_files = max_files
        self._subscription = subscription
        self._folders = [
            FollowFolders(
                pattern,
                watch=partial(self._watch_folder, index),
                forget=partial(self._forget, index),
                found=self._found,
            )
            for index, pattern in enumerate(patterns)
        ]
        self._files: dict[bytes, FollowFile] = {}
        self._waiting: set[bytes] = set()
        self._next_number = count(1).__next__
        self._next_look = 0.0
        self._home: Directory

    def __enter__(self) -> Self:
        self._home = self._roots.directory(self._path)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._home.close()
        if self._subscription is not None:
            self._subscription.close()

    @property
    def seconds_to_look(self) -> float:
        """How long the next batch can wait when nothing tells of a change."""
        return max(0.0, self._next_look - time.monotonic())

    def batches(self) -> Iterator[Batch]:
        """Yield without end: what is new by then, of at most two chunks, or nothing as a sign of life.

        Raises:
            LimitError: `max_files`: too many files match, or too many directories are to be looked at.
            OSError: something that matches cannot be read.
        """
        while True:
            parts: list[Part] = []
            size = 0
            began = time.monotonic()
            for part in self._pass():
                if part is not None:
                    parts.append(part)
                    size += len(part.data) if isinstance(part, Data) else 0
                if size >= CHUNK_BYTES or time.monotonic() - began > _LIFE_SECONDS:
                    yield Batch(parts, is_last=False)
                    parts, size, began = [], 0, time.monotonic()
            yield Batch(parts, is_last=True)

    def _pass(self) -> Iterator[Part | None]:
        changed = self._subscription.take() if self._subscription is not None else None
        folders = [(self._folders[index], path) for index, path in changed or () if index != _FILE]
        for folder, path in folders:
            folder.doubt(path)
        if changed is None or not self._is_told or not self.seconds_to_look:
            yield from self._look_at_all()
            return
        for folder, path in folders:
            yield from folder.look_at(self._home, path)
        self._waiting.update(path for index, path in changed if index == _FILE)
        yield from self._look_at_files(self._waiting)

    def _look_at_all(self) -> Iterator[Part | None]:
        began, has_sent = time.monotonic(), False
        self._reopen()
        for folders in self._folders:
            yield from folders.look(self._home)
        looked_seconds = time.monotonic() - began
        for part in self._look_at_files(self._files):
            has_sent |= part is not None
            yield part
        now = time.monotonic()
        if not has_sent:  # else it may be the client that took the time
            looked_seconds = now - began
        least, share = (LOOK_SECONDS, _MAX_SHARE) if self._is_told else (POLL_SECONDS, _MAX_POLLED_SHARE)
        self._next_look = now + max(least, looked_seconds / share)

    def _look_at_files(self, paths: Iterable[bytes]) -> Iterator[Part | None]:
        in_order = sorted(paths)
        self._waiting.clear()
        for path in in_order:
            file = self._files.get(path)
            if file is not None and not (yield from file.look(self._home)):
                del self._files[path]
                self._forget(_FILE, path)
                for folders in self._folders:
                    folders.doubt(path.rpartition(b"/")[0])

    @property
    def _is_told(self) -> bool:
        return self._subscription is not None and self._subscription.is_complete

    def _reopen(self) -> None:
        """Hold what is at the home's path by now, if that is another directory."""
        try:
            held = self._roots.directory(self._path)
        except (FileNotFoundError, NotADirectoryError, LinkError):
            return
        if os.path.samestat(os.fstat(held.fd), os.fstat(self._home.fd)):
            held.close()
        else:
            self._home.close()
            self._home = held

    def _found(self, path: bytes, inode: int) -> None:
        file = self._files.get(path)
        if file is not None and file.inode == inode:
            return
        self._waiting.add(path)
        if file is not None:
            return
        if len(self._files) >= self._max_files:
            raise LimitError(
                "max_files",
                f"more than {self._max_files} files below '{printable(self._path)}' are to be followed",
                hint="narrow the patterns or raise the daemon's limit",
                facts={"max_files": str(self._max_files)},
            )
        self._files[path] = FollowFile(
            path,
            whole_lines=next(pattern.whole_lines for pattern in self._patterns if pattern.matches(path)),
            held=self._held.pop(path, None),
            next_number=self._next_number,
            watch=partial(self._watch_file, path),
        )

    def _watch_file(self, path: bytes, fd: int) -> None:
        if self._subscription is not None:
            self._subscription.watch_file(fd, (_FILE, path))

    def _watch_folder(self, index: int, fd: int, path: bytes) -> None:
        if self._subscription is not None:
            self._subscription.watch_folder(fd, (index, path))

    def _forget(self, index: int, path: bytes) -> None:
        if self._subscription is not None:
            self._subscription.forget((index, path))
