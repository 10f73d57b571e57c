"""A snapshot's manifest: its files, and the data objects that hold them.

The one rule: what is decoded was checked as if a stranger had written it. Its files, in the order of their paths, are
cut into streams of one or several; the contents of a stream's chunks, one after the other, are those of its files.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, TypeVar

import msgspec

from host_client.errors import LimitError, SessionError
from host_client.stores.archive_codec import newer_version
from host_client.stores.archive_layout import OBJECT_NAME, SNAPSHOT_ID, content_name
from sandbox_api.limits import MAX_FILES_COUNT
from sandbox_api.manifest import Entry
from sandbox_api.names import order_problem, path_problem

if TYPE_CHECKING:
    from collections.abc import Iterable

    from host_client.stores.archive_codec import Codec

_Form = TypeVar("_Form", bound=msgspec.Struct)

VERSION = 1
MAX_MANIFEST_BYTES = 32 << 20
MAX_CHUNK_BYTES = 8 << 20
"""Most that a chunk of a manifest may have; those that are cut today have at most a quarter of it."""

MAX_SOURCE_CHARACTERS_COUNT = 4096
Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]
Sha256 = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]
SnapshotId = Annotated[str, msgspec.Meta(pattern=rf"\A{SNAPSHOT_ID.pattern}\Z")]
Moment = Annotated[datetime, msgspec.Meta(tz=True)]
ObjectName = Annotated[str, msgspec.Meta(pattern=rf"\A{OBJECT_NAME.pattern}\Z")]


class FileReference(msgspec.Struct, frozen=True, array_like=True):
    """A file of a snapshot.

    Attributes:
        path: Below the conversation's own place, by the rules of bundles.
        size: Bytes of its content.
        sha256: SHA-256 of its content, in hex.
    """

    path: str
    size: Count
    sha256: Sha256

    @property
    def entry(self) -> Entry:
        """The same as a bundle has it."""
        return Entry(self.path.encode(), self.size, bytes.fromhex(self.sha256))


class ChunkReference(msgspec.Struct, frozen=True, array_like=True):
    """A data object of a stream.

    Attributes:
        name: Its name, with its generation if it has one.
        size: Bytes of its content.
    """

    name: ObjectName
    size: Annotated[int, msgspec.Meta(ge=1, le=MAX_CHUNK_BYTES)]


class Stream(msgspec.Struct, frozen=True):
    """Files in a row, and the chunks whose contents in a row are theirs.

    Attributes:
        files: At least one.
        chunks: None if all files are empty.
    """

    files: Annotated[tuple[FileReference, ...], msgspec.Meta(min_length=1)]
    chunks: tuple[ChunkReference, ...]


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """One snapshot of a conversation.

    Attributes:
        version: Of this form.
        snapshot_id: The snapshot.
        format: The conversation's format.
        conversation_id: The id by which its CLI knows it.
        source: Where it was captured from, as in its record.
        digest: Of the whole content, as in its record, in hex.
        created_at: When it was made, by the clock of the host that did.
        streams: All files, in the order of their paths.
    """

    version: int = VERSION
    snapshot_id: SnapshotId
    format: str
    conversation_id: str
    source: Annotated[str, msgspec.Meta(max_length=MAX_SOURCE_CHARACTERS_COUNT)]
    digest: Sha256
    created_at: Moment
    streams: tuple[Stream, ...]

    @property
    def files(self) -> Iterable[FileReference]:
        """All files, in the order of their paths."""
        return (file for stream in self.streams for file in stream.files)

    @property
    def chunks(self) -> Iterable[ChunkReference]:
        """All data objects, in the order of the files; one may be there twice."""
        return (chunk for stream in self.streams for chunk in stream.chunks)

    @property
    def names(self) -> set[str]:
        """The names of all data objects."""
        return {chunk.name for chunk in self.chunks}

    @property
    def references(self) -> dict[str, ChunkReference]:
        """All data objects by what names their content, without generations."""
        return {content_name(chunk.name): chunk for chunk in self.chunks}

    def chunks_of(self, path: str) -> tuple[ChunkReference, ...]:
        """Return the chunks of a file that is a stream of its own; none if there is no such file."""
        for stream in self.streams:
            if len(stream.files) == 1 and stream.files[0].path == path:
                return stream.chunks
        return ()


class _Version(msgspec.Struct):
    version: int


def encode_manifest(manifest: Manifest, codec: Codec, *, about: str) -> bytes:
    """Return what is stored of a manifest under the key `about`.

    Raises:
        LimitError: `max_manifest_bytes`.
    """
    return codec.encode(packed(manifest, MAX_MANIFEST_BYTES, about), about=about)


def decode_manifest(stored: bytes, codec: Codec, *, about: str) -> Manifest:
    """Read a manifest that was stored under the key `about`.

    Whether it is the one that an index means is to be checked by `read_manifest` of `archive_index`.

    Raises:
        SessionError: `corrupt`, `tampered`.
        ConfigurationError: `wrong_key`, `not_supported`: written by a newer version.
    """
    manifest = unpacked(stored, codec, Manifest, version=VERSION, max_bytes=MAX_MANIFEST_BYTES, about=about)
    if problem := _problem(manifest):
        raise malformed(about, problem)
    return manifest


def packed(value: msgspec.Struct, max_bytes: int, about: str) -> bytes:
    """Return the JSON of a manifest or index.

    Raises:
        LimitError: `max_manifest_bytes`.
    """
    data = msgspec.json.encode(value)
    if len(data) > max_bytes:
        raise LimitError(
            "max_manifest_bytes",
            f"the object '{about}' would have more than {max_bytes} bytes",
            hint="prune the conversation's snapshots, or archive fewer files",
            facts={"key": about, "max_manifest_bytes": str(max_bytes)},
        )
    return data


def unpacked(stored: bytes, codec: Codec, form: type[_Form], *, version: int, max_bytes: int, about: str) -> _Form:
    """Read a manifest or index as far as its form says; see `decode_manifest` for errors."""
    try:
        data = codec.decode(stored, about=about, max_bytes=max_bytes)
        found = msgspec.json.decode(data, type=_Version).version
        if found > version:
            raise newer_version(about, found)
        if found == version:
            return msgspec.json.decode(data, type=form)
    except LimitError:
        raise malformed(about, f"has more than {max_bytes} bytes") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise malformed(about, "is not of its form") from None
    raise malformed(about, "has no version that exists")


def malformed(about: str, problem: str) -> SessionError:
    """Return the refusal of an object that is undamaged, and breaks the rules of its format."""
    return SessionError("corrupt", f"the object '{about}' {problem}", facts={"key": about})


def _problem(manifest: Manifest) -> str | None:
    files = tuple(manifest.files)
    if not 0 < len(files) <= MAX_FILES_COUNT:
        return "has no file, or too many"
    paths = [file.path.encode() for file in files]
    if any(map(path_problem, paths)) or order_problem(paths):
        return "has unusable paths"
    for stream in manifest.streams:
        if sum(file.size for file in stream.files) != sum(chunk.size for chunk in stream.chunks):
            return "has files that are not as large as their chunks"
    return None
