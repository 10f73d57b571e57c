"""Move the files of a set, all of them or none.

The one rule: once the decision is in the journal, files are moved; and while it is there, nothing is removed that a
sweep would need to move the rest. What fails is taken back first, then the decision, and only then what was staged.
"""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from sandbox_agent.core import syscall
from sandbox_agent.core.file_set_move import inode_at, repair, swap
from sandbox_agent.core.file_set_record import Move, decision
from sandbox_agent.core.file_set_target import Snapshot, changed, mounted, pinned
from sandbox_agent.core.missing import Missing
from sandbox_agent.core.rename import identity_at, rename_exclusive
from sandbox_api.errors import OutpostError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sandbox_agent.core.intent import Intent
    from sandbox_agent.core.owner import Owner
    from sandbox_agent.core.paths import Directory
    from sandbox_agent.core.rename import Identity


class Planned(NamedTuple):
    """One file that is to change its place.

    Attributes:
        path: Its path, below the home as below the tree.
        new: What the tree has of it; None: nothing, what is at home is taken away.
        old: What the home has of it; None: nothing.
    """

    path: bytes
    new: Identity | None
    old: Snapshot | None

    @property
    def move(self) -> Move:
        """What the journal says of it."""
        return Move(self.path, self.new[1] if self.new else 0, self.old.identity[1] if self.old else 0)


class Commit:
    """One commit. The caller holds the lock of the home and has checked what stands there.

    Args:
        home: The home.
        tree: What the files are exchanged with, below the home.
        plan: The files, moved in this order.
        intent: The journal's file.
        owner: User and group id of directories that are made; None: the daemon's own.
        durable: Whether the decision must survive a power loss.

    Attributes:
        is_stuck: Whether a failure could not be taken back: the journal's file and the tree are for the sweep.
    """

    def __init__(
        self,
        home: Directory,
        tree: Directory,
        plan: Sequence[Planned],
        intent: Intent,
        *,
        owner: Owner | None,
        durable: bool,
    ) -> None:
        self._home = home
        self._tree = tree
        self._plan = plan
        self._intent = intent
        self._owner = owner
        self._durable = durable
        self._begun_count = 0
        self.is_stuck = False

    @contextmanager
    def decided(self, appends: Sequence[bytes]) -> Iterator[None]:
        """Decide and move all files; what the block does belongs to the commit. When it fails, all is taken back.

        Args:
            appends: Paths whose staged lines the block appends; the journal names them as well.

        Raises:
            ConflictError: `target_changed`.
            WorkspaceError: `mounted`.
            LimitError: `max_bytes`: the names of the files are too long to be noted.
            OSError: the system refuses. What could not be taken back is a note of each of these.
        """
        missing = Missing(self._home, {planned.path.rpartition(b"/")[0] for planned in self._plan})
        undecided_size = self._intent.size
        try:
            lines = decision([planned.move for planned in self._plan], appends)
            self._intent.write_lines(lines, durable=self._durable)
            for index, planned in enumerate(self._plan):
                self._begun_count = index + 1
                self._move(index, planned)
            yield
        except BaseException as error:
            try:
                self._take_back()
                missing.remove()
                self._sync_taken_back()
                self._retract(undecided_size)
            except (OSError, OutpostError) as stuck:
                self.is_stuck = True
                error.add_note(f"while taking back: {stuck}")
            raise

    def _move(self, index: int, planned: Planned) -> None:
        parent, _, name = planned.path.rpartition(b"/")
        with (
            self._home.make_directories(parent, owner=self._owner) as folder,
            self._tree.make_directories(parent, owner=self._owner) as held,
        ):
            try:
                if planned.old is None:
                    self._place_first(folder, held, name, planned)
                else:
                    self._replace(folder, held, name, index, planned)
            except OSError as error:
                if error.errno == errno.EXDEV:
                    raise mounted(self._home.join(planned.path)) from None
                raise
            if identity_at(folder, name) != planned.new:
                raise changed(self._home, planned.path)

    def _place_first(self, folder: Directory, held: Directory, name: bytes, planned: Planned) -> None:
        try:
            rename_exclusive(held, name, folder, name)
        except FileExistsError:
            raise changed(self._home, planned.path) from None

    def _replace(self, folder: Directory, held: Directory, name: bytes, index: int, planned: Planned) -> None:
        try:
            # What is held keeps its number also where a layered file system copies the file to rename it.
            with pinned(folder, name) as fd:
                before = Snapshot.of(os.fstat(fd))
                if before != planned.old:
                    raise changed(self._home, planned.path)
                if planned.new is None:
                    rename_exclusive(folder, name, held, name)
                else:
                    swap(folder, held, name, index)
                status = os.fstat(fd)
        except FileNotFoundError:
            raise changed(self._home, planned.path) from None
        is_it = identity_at(held, name) == (status.st_dev, status.st_ino)
        # A copy is another file, and was compared when it was made.
        if status.st_size != before.size or not (is_it or status.st_nlink == 0):
            raise changed(self._home, planned.path)

    def _take_back(self) -> None:
        for index in reversed(range(self._begun_count)):
            planned = self._plan[index]
            parent, _, name = planned.path.rpartition(b"/")
            try:
                held = self._tree.directory(parent)
            except FileNotFoundError:
                continue  # made for the first file in it, which was not moved
            with held:
                repair(held, name, index)
                # The number tells whether the file was moved, as it tells the sweep.
                if inode_at(held, name) != planned.move.new_inode:
                    self._move_back(held, name, index, planned)

    def _move_back(self, held: Directory, name: bytes, index: int, planned: Planned) -> None:
        with self._home.directory(planned.path.rpartition(b"/")[0]) as folder:
            if planned.old is None:
                rename_exclusive(folder, name, held, name)
            elif planned.new is None:
                rename_exclusive(held, name, folder, name)
            else:
                swap(folder, held, name, index)

    def _sync_taken_back(self) -> None:
        """Have the old files on the disk as well before the decision is taken back.

        Else a power loss could leave new files there, and a sweep would remove the old ones with what was staged.
        """
        if self._durable and self._begun_count:
            # A disk that cannot take that has failed already, and no order helps then.
            with suppress(OSError):
                syscall.syncfs(self._home.fd)

    def _retract(self, size: int) -> None:
        try:
            self._intent.cut(size, durable=self._durable)
        except OSError:
            # Without a note nothing is ever placed; what is staged may stay, if this process does not remove it.
            self._intent.end()
