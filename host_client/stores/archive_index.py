"""A conversation's index: the one object of an archive that changes, and what says which snapshots there are.

The one rule: it names each manifest by the SHA-256 of its stored bytes, so that whoever has read an index accepts no
other manifest; and it says whose it is, so that it counts in no other place.
"""

from __future__ import annotations

import hashlib
import secrets
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import msgspec

from host_client.errors import ConfigurationError, SessionError
from host_client.stores.archive_manifest import (
    Count,
    Moment,
    Sha256,
    SnapshotId,
    decode_manifest,
    malformed,
    packed,
    unpacked,
)
from sandbox_api.names import CONVERSATION_ID, check_conversation_id, check_format

if TYPE_CHECKING:
    from collections.abc import Collection

    from host_client.stores.archive_codec import Codec
    from host_client.stores.archive_manifest import Manifest

VERSION = 1
MAX_INDEX_BYTES = 32 << 20
"""Of its JSON; some 100,000 snapshots."""


class Origin(msgspec.Struct, frozen=True, array_like=True):
    """The snapshot that a fork began with.

    Attributes:
        archive_id: The conversation in the archive.
        snapshot_id: Its snapshot.
    """

    archive_id: Annotated[str, msgspec.Meta(pattern=rf"\A{CONVERSATION_ID.pattern}\Z")]
    snapshot_id: SnapshotId


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One version of an archived conversation.

    Attributes:
        snapshot_id: Its id: 32 hex digits that sort by time.
        parent: The snapshot before it; empty: there was none, or it was pruned.
        digest: Of the whole content, as in its record, in hex.
        manifest_sha256: SHA-256 of the stored bytes of its manifest, in hex.
        created_at: When it was made, by the clock of the host that did.
        files_count: Its files.
        bytes_count: Sum of their sizes.
        added_bytes: What it added to the store, its manifest included.
        diverged: It does not go on from its parent, and was put in front of it on demand.
        origin: What it was forked from; None: nothing.
    """

    snapshot_id: SnapshotId
    parent: Annotated[str, msgspec.Meta(pattern=r"\A(?:[0-9a-f]{32})?\Z")]
    digest: Sha256
    manifest_sha256: Sha256
    created_at: Moment
    files_count: Annotated[int, msgspec.Meta(ge=1)]
    bytes_count: Count
    added_bytes: Count
    diverged: bool = False
    origin: Origin | None = None


class Index(msgspec.Struct, frozen=True, kw_only=True):
    """All snapshots of an archived conversation, the newest last.

    Attributes:
        version: Of this form.
        format: The conversation's format.
        namespace: The namespace that it lies in.
        id: Its id in the archive.
        native_id: The id by which its CLI knows it; another one than `id` after a fork.
        entries: Its snapshots, at least one.
    """

    version: int = VERSION
    format: str
    namespace: str
    id: str
    native_id: str
    entries: Annotated[tuple[Snapshot, ...], msgspec.Meta(min_length=1)]

    @property
    def head(self) -> Snapshot:
        """The newest snapshot."""
        return self.entries[-1]

    def with_snapshot(self, snapshot: Snapshot) -> Index:
        """Return the index with a newer snapshot."""
        return msgspec.structs.replace(self, entries=(*self.entries, snapshot))

    def without(self, snapshot_ids: Collection[str]) -> Index:
        """Return the index without some snapshots, never without the newest.

        What came after one that goes has the nearest one that stays as its parent.
        """
        kept: list[Snapshot] = []
        stays_at: dict[str, str] = {"": ""}
        for entry in self.entries:
            parent = stays_at[entry.parent]
            if entry.snapshot_id in snapshot_ids and entry is not self.head:
                stays_at[entry.snapshot_id] = parent
            else:
                stays_at[entry.snapshot_id] = entry.snapshot_id
                kept.append(entry if entry.parent == parent else msgspec.structs.replace(entry, parent=parent))
        return msgspec.structs.replace(self, entries=tuple(kept))


def new_snapshot_id(created_at: datetime) -> str:
    """Return a new id: 8 hex digits of the time, so that ids sort by it, and 24 random ones."""
    return f"{int(created_at.timestamp()) & 0xFFFFFFFF:08x}{secrets.token_hex(12)}"


def now() -> datetime:
    """Return the time of this host, in whole seconds."""
    return datetime.now(UTC).replace(microsecond=0)


def encode_index(index: Index, codec: Codec, *, about: str) -> bytes:
    """Return what is stored of an index under the key `about`.

    Raises:
        LimitError: `max_manifest_bytes`.
    """
    return codec.encode(packed(index, MAX_INDEX_BYTES, about), about=about)


def decode_index(
    stored: bytes, codec: Codec, *, about: str, format_name: str, namespace: str, archive_id: str
) -> Index:
    """Read the index of that conversation, which was stored under the key `about`.

    Raises:
        SessionError: `corrupt`: also for the index of another conversation; `tampered`.
        ConfigurationError: `wrong_key`, `not_supported`: written by a newer version.
    """
    index = unpacked(stored, codec, Index, version=VERSION, max_bytes=MAX_INDEX_BYTES, about=about)
    if (index.format, index.namespace, index.id) != (format_name, namespace, archive_id):
        raise malformed(about, "is the index of another conversation")
    try:
        check_format(index.format)
        check_conversation_id(index.id)
        check_conversation_id(index.native_id)
    except ConfigurationError:
        raise malformed(about, "has unusable ids") from None
    earlier: set[str] = {""}
    for entry in index.entries:
        if entry.parent not in earlier:
            raise malformed(about, "has a snapshot whose parent does not come before it")
        if entry.snapshot_id in earlier:
            raise malformed(about, "has a snapshot twice")
        earlier.add(entry.snapshot_id)
    return index


def manifest_sha256(stored: bytes) -> str:
    """Return what an index says of a manifest, by its stored bytes."""
    return hashlib.sha256(stored).hexdigest()


def read_manifest(stored: bytes, codec: Codec, *, about: str, index: Index, snapshot: Snapshot) -> Manifest:
    """Read the manifest of a snapshot of an index, which was stored under the key `about`.

    Raises:
        SessionError: `digest_mismatch`: it is not the one that the index means; `corrupt`, `tampered`.
        ConfigurationError: `wrong_key`, `not_supported`: written by a newer version.
    """
    manifest = decode_manifest(stored, codec, about=about)
    if manifest_sha256(stored) != snapshot.manifest_sha256:
        raise SessionError(
            "digest_mismatch", f"the object '{about}' is not the manifest that its index means", facts={"key": about}
        )
    files = tuple(manifest.files)
    agrees = (
        (manifest.snapshot_id, manifest.digest) == (snapshot.snapshot_id, snapshot.digest)
        and (manifest.format, manifest.conversation_id) == (index.format, index.native_id)
        and (len(files), sum(file.size for file in files)) == (snapshot.files_count, snapshot.bytes_count)
    )
    if not agrees:
        raise malformed(about, "says something else than its index")
    return manifest
