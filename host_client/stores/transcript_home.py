"""The host's side of transcripts: the home of a layout, the repository, and the files below that home.

The one rule: below the home no link is followed, and nothing outside of it is named, read or written.
"""

from __future__ import annotations

import os
import re
import stat
from contextlib import closing, contextmanager
from dataclasses import dataclass
from fnmatch import translate
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING

from host_client.errors import SessionError, WorkspaceError, printable
from host_client.sandbox.task import in_thread
from host_client.session.compression import decompressed, is_compressed
from host_client.session.failure import host_failure, host_failures, named_failures
from host_client.session.folder import Folder
from host_client.stores.transcript_member import below, is_own
from sandbox_api.limits import CHUNK_BYTES, MAX_DEPTH_COUNT
from sandbox_api.lock import HEAD_BYTES

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from host_client.stores.context import ConversationContext
    from host_client.stores.layout import TranscriptLayout

FIRST_LINE_BYTES = 1 << 20
"""Most of a first line that a layout is shown."""

_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class HostHome:
    """The home of a layout on this host, and the repository.

    Attributes:
        host_path: Absolute path of the home; it need not exist.
        repository: Absolute path with links resolved, as a CLI started there calls it.
        named_repository: Absolute path as the caller named it.
        anchor: A directory above it, or itself, that may be reached through links; nothing makes it when it is missing.
        steps: From there to the home; none of them may be a link.
    """

    host_path: Path
    repository: Path
    named_repository: Path
    anchor: Path
    steps: tuple[str, ...]

    @classmethod
    def of(cls, layout: TranscriptLayout, context: ConversationContext) -> HostHome:
        """Find both; blocks.

        The home is below the conversation home when there is one, else where the layout's variable says in the
        environment of this process, else below the user's home. The context's variables are those of the sandbox.

        Raises:
            ConfigurationError: `invalid_argument`: the context names neither repository nor conversation home.
            SessionError: `root_symlink`: the CLI home itself is a link, and the context does not accept that.
        """
        named = (context.repository or context.base).absolute()
        user = context.conversation_home.absolute() if context.conversation_home else Path.home()
        root = layout.root
        if root is None:
            return cls(user, named.resolve(), named, user, ())
        variable = root.variable if context.conversation_home is None else None
        moved = Path(os.environ.get(variable, "") if variable else "")
        anchor, steps = user, PurePosixPath(root.directory).parts
        host_path = user / root.directory
        if moved.is_absolute():
            anchor, steps, host_path = moved.parent, moved.parts[-1:], moved
            while not anchor.exists():
                anchor, steps = anchor.parent, (anchor.name, *steps)
        if host_path.is_symlink():
            if not context.follow_root_link:
                raise SessionError(
                    "root_symlink",
                    f"the CLI home {printable(str(host_path))} of this host is a symbolic link",
                    hint="accept it with follow_root_link (--follow-root-link)",
                    facts={"path": printable(str(host_path))},
                )
            anchor, steps = host_path, ()
        return cls(host_path, named.resolve(), named, anchor, steps)

    def open(self, steps: Sequence[str] = (), *, create: bool = False, durable: bool = True) -> Folder:
        """Open a folder below the home, or the home itself; blocks.

        Args:
            steps: From the home to the folder.
            create: Create what is missing below the anchor, 0700.
            durable: Force what was created to the disk.

        Raises:
            WorkspaceError: `not_found`, `unsafe_path` (a link on the way), `access`.
            LimitError: `disk_full`, `read_only`, `descriptors`.
        """
        return Folder.open(self.anchor, (*self.steps, *steps), create=create, durable=durable)

    def below(self, path: Path, what: str, *, or_home: bool = False) -> PurePosixPath:
        """Return where a path that the layout named lies below the home.

        Raises:
            ConfigurationError: `invalid_argument`: not below it.
        """
        return below(self.host_path, path, what, or_home=or_home)


class HostFiles:
    """The `ConversationFiles` of this host. The methods that are no coroutines block."""

    def __init__(self, home: HostHome) -> None:
        self.home = home

    async def find(
        self, directory: PurePosixPath, pattern: str = "*", *, contains: bytes = b""
    ) -> Sequence[PurePosixPath]:
        """Return files; see `ConversationFiles`.

        Raises:
            WorkspaceError: `unsafe_path`: a link on the way to the directory; `access`.
        """
        return await in_thread(lambda: sorted(self.walk(directory, pattern, contains=contains)))

    async def exists(self, path: PurePosixPath) -> bool:
        """Tell whether a regular file is there; see `ConversationFiles`."""
        return await in_thread(self.status, path) is not None

    async def first_line(self, path: PurePosixPath) -> bytes:
        """Return the first line; see `ConversationFiles`.

        Raises:
            WorkspaceError: `not_found`, `not_a_file`, `unsafe_path`, `access`.
            SessionError: `corrupt`: a compressed file is damaged.
        """
        return await in_thread(self._first_line, path)

    def walk(self, directory: PurePosixPath, pattern: str = "*", *, contains: bytes = b"") -> Iterator[PurePosixPath]:
        """Yield regular files at any depth below a directory, in no order; links and special files are passed over.

        What restores have set aside is passed over, too.
        """
        try:
            folder = self.home.open(directory.parts)
        except WorkspaceError as error:
            if error.reason != "not_found":
                raise
            return
        matches = re.compile(translate(pattern)).match
        with folder:
            for path, fd in _files_below(folder.fd, directory):
                if matches(path.name) and not is_own(path) and (not contains or _has(fd, path.name, contains)):
                    yield path

    def status(self, path: PurePosixPath) -> os.stat_result | None:
        """Return what the system knows of a regular file; None when there is none.

        Raises:
            WorkspaceError: `unsafe_path`: a link on the way to it; `access`.
        """
        try:
            with self.home.open(path.parent.parts) as folder:
                found = os.stat(path.name, dir_fd=folder.fd, follow_symlinks=False)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise host_failure(error, self.home.host_path / path) from None
        except WorkspaceError as error:
            if error.reason != "not_found":
                raise
            return None
        return found if stat.S_ISREG(found.st_mode) else None

    @contextmanager
    def opened(self, path: PurePosixPath) -> Iterator[IO[bytes]]:
        """Open a regular file for reading, unbuffered.

        Raises:
            WorkspaceError: `not_found`, `not_a_file`, `unsafe_path`, `access`.
            LimitError: `descriptors`.
        """
        host_path = self.home.host_path / path
        with self.home.open(path.parent.parts) as folder, host_failures(host_path):
            fd = os.open(path.name, _FILE_FLAGS, dir_fd=folder.fd)
        with open(fd, "rb", buffering=0) as file:  # noqa: PTH123 - pathlib opens no descriptor
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise WorkspaceError("not_a_file", f"no regular file is at {printable(str(host_path))}")
            yield file

    def pieces(self, path: PurePosixPath, piece_bytes: int = CHUNK_BYTES) -> Generator[bytes, None, None]:
        """Yield a file's bytes as they lie on the disk, in pieces of at most that size.

        Raises:
            WorkspaceError: as `opened`.
            UnavailableError: `io`.
        """
        with self.opened(path) as file, host_failures(self.home.host_path / path):
            while piece := file.read(piece_bytes):
                yield piece

    def content(self, path: PurePosixPath, piece_bytes: int = CHUNK_BYTES) -> Generator[bytes, None, None]:
        """Yield a transcript's content in pieces: decompressed when its name says that it is compressed.

        Raises:
            WorkspaceError: as `opened`.
            SessionError: `corrupt`: a compressed file is damaged.
        """
        with closing(self.pieces(path, piece_bytes)) as pieces, named_failures(path):
            yield from decompressed(pieces) if is_compressed(path) else pieces

    def _first_line(self, path: PurePosixPath) -> bytes:
        head = bytearray()
        with closing(self.content(path, HEAD_BYTES)) as pieces:
            for piece in pieces:
                head += piece
                if b"\n" in piece or len(head) >= FIRST_LINE_BYTES:
                    break
        return bytes(head[:FIRST_LINE_BYTES].partition(b"\n")[0])


def _files_below(fd: int, directory: PurePosixPath, depth_count: int = 0) -> Iterator[tuple[PurePosixPath, int]]:
    """Yield regular files with the descriptor of the directory that each lies in."""
    with os.scandir(fd) as entries:
        found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries if _is_plain(entry)]
    for name, is_directory in found:
        if not is_directory:
            yield directory / name, fd
        elif depth_count < MAX_DEPTH_COUNT:
            try:
                below_fd = os.open(name, _DIRECTORY_FLAGS, dir_fd=fd)
            except OSError:
                continue  # gone, not ours to read, or a link by now
            try:
                yield from _files_below(below_fd, directory / name, depth_count + 1)
            finally:
                os.close(below_fd)


def _is_plain(entry: os.DirEntry[str]) -> bool:
    return entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False)


def _has(directory_fd: int, name: str, wanted: bytes) -> bool:
    """Tell whether the first 64 KiB of a file have some bytes; not when it cannot be read."""
    try:
        fd = os.open(name, _FILE_FLAGS, dir_fd=directory_fd)
    except OSError:
        return False
    with open(fd, "rb", buffering=0) as file:  # noqa: PTH123 - pathlib opens no descriptor
        return wanted in (file.read(HEAD_BYTES) or b"")
