"""Move a transcript in a file of the host to another working directory.

The one rule: a file appears under its name only when it is whole, and the one it replaces is there until then.
"""

from __future__ import annotations

import stat
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from host_client.session.compression import compressed, is_compressed
from host_client.session.failure import host_failures, named_failures
from host_client.session.folder import Folder, Scratch
from host_client.session.line_file import LineFile
from host_client.session.output import Output
from host_client.session.relocate import Relocator
from sandbox_api.errors import ConfigurationError, WorkspaceError, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Relocated:
    """A transcript that is in place under its name.

    Attributes:
        host_path: The file.
        origin: Working directory it was recorded in; None: no line names one, so nothing changed.
        destination: Working directory it names now.
        changed_count: Values changed.
        bytes_count: Size of its content, decompressed.
        torn_at: Offset, in the content as it was, of a last line that neither ends with a newline nor is JSON; None: no
            such line.
    """

    host_path: Path
    origin: str | None
    destination: str
    changed_count: int
    bytes_count: int
    torn_at: int | None


def relocate_file(
    host_path: Path, destination: str, *, output: Path | None = None, origin: str | None = None
) -> Relocated:
    """Rewrite each `cwd` of a transcript that equals the directory it was recorded in; nothing else changes.

    The new file has mode 0600 and a fresh modification time, and is on the disk when this returns. A transcript with
    nothing to change is left alone in place. Content of a file whose name ends in `.zst` is compressed. On failure the
    file and what is at `output` stay as they were. Blocks.

    Args:
        host_path: The transcript. No process should have it open: what is appended while this runs is lost or refused.
        destination: Absolute path of the new working directory; it need not exist here.
        output: Where the result goes, replacing a file that is there; default: in place.
        origin: Directory to take for the recorded one instead of the first that is named.

    Raises:
        ConfigurationError: `invalid_argument`: the destination is no absolute path.
        WorkspaceError: `not_found`, `not_a_file`, `unsafe_path` (it is a link), `access`, `changed`.
        SessionError: `corrupt`: compressed content is damaged.
        LimitError: `disk_full`, `read_only`, `descriptors`; `max_bytes`: a line is longer than 512 MiB.
    """
    if not PurePosixPath(destination).is_absolute() or "\0" in destination:
        raise ConfigurationError(
            "invalid_argument",
            f"a transcript cannot be moved to {printable(destination)!r}",
            hint="give the absolute path of a directory",
        )
    relocator = Relocator(destination, origin=origin)
    target = output or host_path
    with LineFile(host_path) as file, Folder.open(target.parent, (), create=False) as folder:
        _check_replaceable(target)
        with host_failures(target), named_failures(host_path):
            scratch = Scratch(folder, target.name)
            try:
                _write(scratch, target, _relocated(file.pieces(), relocator))
                file.check_unchanged()
                if output or relocator.changed_count:
                    scratch.place(durable=True)
            finally:
                scratch.discard()
    return Relocated(
        target,
        relocator.origin,
        destination,
        relocator.changed_count,
        relocator.written_bytes,
        relocator.torn_at,
    )


def _relocated(pieces: Iterable[bytes], relocator: Relocator) -> Iterator[bytes]:
    for piece in pieces:
        yield from relocator.feed(piece)
    yield from relocator.finish()


def _write(scratch: Scratch, target: Path, pieces: Iterator[bytes]) -> None:
    written = Output(scratch.fd, target)
    for piece in compressed(pieces) if is_compressed(target) else pieces:
        written.add(piece)
    written.flush()


def _check_replaceable(target: Path) -> None:
    """Make sure that a file or nothing is there: a rename would replace a link or a FIFO as well."""
    with host_failures(target):
        try:
            mode = target.lstat().st_mode
        except FileNotFoundError:
            return
    if not stat.S_ISREG(mode):
        name = printable(str(target))
        raise WorkspaceError("not_a_file", f"what is at {name} is no regular file", facts={"path": name})
