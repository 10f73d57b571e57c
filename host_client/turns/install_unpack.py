"""Take the one program of the catalogue out of an archive that was verified."""

from __future__ import annotations

import lzma
import stat
import tarfile
import tempfile
import zipfile
import zlib
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from host_client.errors import OutpostError, ProcessError
from host_client.session.failure import host_failures
from host_client.turns.install_download import failed, place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from host_client.agents.tool import Download

_CHUNK_BYTES = 1 << 20
_UNIX_MODE_SHIFT = 16
_IS_ENCRYPTED = 1


def unpack(source: Download, archive: IO[bytes], program: IO[bytes]) -> None:
    """Write the program of an archive to a file; both are at their beginning afterwards. Blocks.

    Nothing else of the archive is written anywhere, and no name of it is ever a path of this host.

    Raises:
        ProcessError: `install_failed`: the archive has the program not at all, twice, or as something else than a
            file; it unpacks to more than it may, or cannot be read.
        LimitError: `disk_full` for the host's folder of temporary files.
    """
    archive.seek(0)
    read = _zipped if source.url.partition("?")[0].endswith(".zip") else _tarred
    found = 0
    with _failures(source):
        for content in read(source, archive):
            found += 1
            if found > 1:
                raise _refused(source, "more than once")
            _copy(content, program, source)
    if not found:
        raise _refused(source, "not at all")
    archive.seek(0)
    program.seek(0)


def _tarred(source: Download, archive: IO[bytes]) -> Iterator[IO[bytes]]:
    kind = "xz" if source.url.partition("?")[0].endswith(".xz") else "gz"
    total = 0
    # As a stream: one pass, and no member is looked for by what another one says of it.
    with tarfile.open(fileobj=archive, mode=f"r|{kind}") as opened:  # type: ignore[call-overload]
        for member in opened:
            total += member.size
            if total > source.max_bytes:
                raise failed(source.url, f"unpacks to more than {source.max_bytes} bytes")
            if member.name.removeprefix("./") != source.member:
                continue
            content = opened.extractfile(member) if member.isreg() else None
            if content is None:
                raise _refused(source, "as something else than a file")
            yield content


def _zipped(source: Download, archive: IO[bytes]) -> Iterator[IO[bytes]]:
    with zipfile.ZipFile(archive) as opened:
        for member in opened.infolist():
            if member.filename.removeprefix("./").rstrip("/") != source.member:
                continue
            mode = member.external_attr >> _UNIX_MODE_SHIFT
            if member.is_dir() or (stat.S_IFMT(mode) and not stat.S_ISREG(mode)) or member.flag_bits & _IS_ENCRYPTED:
                raise _refused(source, "as something else than a file")
            with opened.open(member) as content:
                yield content


def _copy(content: IO[bytes], program: IO[bytes], source: Download) -> None:
    size = 0
    while data := content.read(_CHUNK_BYTES):
        size += len(data)
        if size > source.max_bytes:
            raise failed(source.url, f"unpacks to more than {source.max_bytes} bytes")
        with host_failures(Path(tempfile.gettempdir())):
            program.write(data)


def _refused(source: Download, how: str) -> ProcessError:
    facts = {"url": place(source.url), "member": source.member}
    return ProcessError("install_failed", f"{place(source.url)} has the program {source.member} {how}", facts=facts)


@contextmanager
def _failures(source: Download) -> Iterator[None]:
    try:
        yield
    except OutpostError:
        raise
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, NotImplementedError):
        raise failed(source.url, "is no archive that can be read") from None
