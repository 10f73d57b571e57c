"""What of a kept conversation is archived: its files. `archive_writer.py` makes them a kept conversation again.

The one rule: an archive has the files of a conversation as they are, not the container that a host keeps them in, so
that what two snapshots have in common is common bytes.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from host_client.errors import ConfigurationError, SessionError, printable
from host_client.sandbox.task import in_thread, opened_in_thread
from host_client.session.bundle import Folder, SavedBundle
from host_client.session.compression import decompressed, is_compressed
from host_client.session.failure import host_failures, named_failures
from host_client.session.transcript_scan import TranscriptScan
from host_client.session.transcript_state import load
from host_client.stores.bundle import STEPS, SessionBundleConversations
from host_client.stores.transcript import TranscriptConversations
from host_client.stores.transcript_home import HostFiles, HostHome
from host_client.stores.transcript_kept import kept_members, kept_pieces
from host_client.stores.transcript_member import below, kept_digest
from sandbox_api.limits import CHUNK_BYTES
from sandbox_api.manifest import Entry
from sandbox_api.names import path_problem

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence

    from host_client.stores.context import ConversationContext
    from host_client.stores.contract import ConversationRecord, ConversationStore
    from host_client.stores.transcript_member import Members

ARCHIVE_REPOSITORY = Path("/outpost-archive")
"""The working directory of archived transcripts. The same on every host, so that a transcript has the same bytes
wherever it was captured; it need not exist, and what is archived names it."""


@dataclass(frozen=True, slots=True)
class ContentFile:
    """A file of a conversation.

    Attributes:
        path: Its path, as a manifest has it: within a bundle, or below the home.
        size: Its size in bytes.
        sha256: Of its content.
        pieces: Returns its content, anew by each call; blocks.
        beginning: SHA-256 of as much of its beginning as was asked for; None: it is shorter, or nothing was asked.
    """

    path: str
    size: int
    sha256: bytes
    pieces: Callable[[], Iterator[bytes]]
    beginning: bytes | None = None


@dataclass(frozen=True, slots=True)
class Hashed:
    """Size and SHA-256 of a content, and the SHA-256 of as much of its beginning as was asked for."""

    size: int
    sha256: bytes
    beginning: bytes | None


@asynccontextmanager
async def opened_content(
    base: ConversationStore, record: ConversationRecord, context: ConversationContext, sizes: Mapping[str, int]
) -> AsyncIterator[Sequence[ContentFile]]:
    """Open the files of a kept conversation, by path, and make sure that they are those of its record.

    Args:
        base: The store that keeps it.
        record: What it says of it.
        context: With the conversation home that it is kept in.
        sizes: How much of the beginning of which file is to be hashed.

    Raises:
        SessionError: `digest_mismatch`, `unsafe_name`; others of a store about what it keeps.
        ConfigurationError: `invalid_argument`: the store keeps it elsewhere.
    """
    if isinstance(base, SessionBundleConversations):
        opening = opened_in_thread(
            SavedBundle.open, record.path, base.profile, record.conversation_id, context.effective_limits
        )
        async with opening as saved:
            base.check_digest(saved, record)
            yield await in_thread(_bundle_files, saved, sizes)
    elif isinstance(base, TranscriptConversations):
        yield await _transcript_files(base, record, context, sizes)
    else:
        yield await in_thread(_home_files, record, context, sizes)


def is_native(base: ConversationStore) -> bool:
    """Tell whether the store is one of those whose files are known, and that can go on with what they kept before."""
    return isinstance(base, SessionBundleConversations | TranscriptConversations)


def kept_context(context: ConversationContext, home: Path) -> ConversationContext:
    """Return the context for what is kept in a folder of this host, where the archive is what lasts."""
    return replace(context, conversation_home=home, repository=ARCHIVE_REPOSITORY, durability="none")


def decides(base: ConversationStore, conversation_id: str, paths: Iterable[str]) -> frozenset[str]:
    """Return those of some files that tell which of two states of a conversation has more.

    The main transcript; the logs of a bundle; all files where nothing is known of them.
    """
    named = frozenset(paths)
    found: set[str] = set()
    if isinstance(base, SessionBundleConversations) and base.logs is not None:
        found = {path for path in named if base.logs.search(path)}
    elif isinstance(base, TranscriptConversations):
        found = {path for path in named if base.layout.conversation_id(PurePosixPath(path)) == conversation_id}
    return frozenset(found) or named


def hashed(pieces: Iterable[bytes], beginning_bytes: int | None = None) -> Hashed:
    """Hash a content, and its beginning on the way; blocks."""
    sha256, size = hashlib.sha256(), 0
    beginning = sha256.digest() if beginning_bytes == 0 else None
    for piece in pieces:
        before = -1 if beginning_bytes is None else beginning_bytes - size
        if 0 < before <= len(piece):
            view = memoryview(piece)
            sha256.update(view[:before])
            beginning = sha256.digest()
            sha256.update(view[before:])
        else:
            sha256.update(piece)
        size += len(piece)
    return Hashed(size, sha256.digest(), beginning)


def _bundle_files(saved: SavedBundle, sizes: Mapping[str, int]) -> Sequence[ContentFile]:
    files = []
    for index, entry in enumerate(saved.entries):
        path, pieces = entry.path.decode(), partial(saved.pieces, index, lambda: CHUNK_BYTES)
        asked_bytes = sizes.get(path)
        beginning = None
        if asked_bytes == entry.size:
            beginning = entry.sha256
        elif asked_bytes is not None and asked_bytes < entry.size:
            beginning = hashed(pieces(), asked_bytes).beginning
        files.append(ContentFile(path, entry.size, entry.sha256, pieces, beginning))
    return files


async def _transcript_files(
    base: TranscriptConversations, record: ConversationRecord, context: ConversationContext, sizes: Mapping[str, int]
) -> Sequence[ContentFile]:
    host_files = HostFiles(await in_thread(HostHome.of, base.layout, context))
    named = await _members(base, record, host_files)

    def read() -> Sequence[ContentFile]:
        files = []
        for member in sorted(named.all, key=lambda one: os.fsencode(one.path)):
            path, pieces = str(member.path), partial(kept_pieces, host_files, member)
            content = hashed(pieces(), sizes.get(path))
            if member.kind != "lines" or content.size:
                files.append(ContentFile(path, content.size, content.sha256, pieces, content.beginning))
        digest = kept_digest(Entry(os.fsencode(file.path), file.size, file.sha256) for file in files)
        if digest != record.digest:
            raise SessionError("digest_mismatch", "the files of the capture are no longer what was verified")
        return files

    return await in_thread(read)


async def has_stale_files(base: ConversationStore, record: ConversationRecord, context: ConversationContext) -> bool:
    """Tell whether a home that a capture went on with has files of the conversation that were not captured now.

    A layout finds what belongs to a conversation by looking, so that such files would count.
    """
    if not isinstance(base, TranscriptConversations):
        return False
    host_files = HostFiles(await in_thread(HostHome.of, base.layout, context))

    def others() -> set[PurePosixPath]:
        with Folder.open(context.base, (*STEPS, base.format), create=False) as states:
            saved = load(states, record.conversation_id)
        fetched = {PurePosixPath(file.place) for file in saved.files.values()} if saved else set()
        return {path for path in host_files.walk(PurePosixPath()) if path not in fetched}

    left = await in_thread(others)
    if not left:
        return False
    named = await _members(base, record, host_files)
    return any(member.path in left and member.kind != "lines" for member in named.all)


async def _members(base: TranscriptConversations, record: ConversationRecord, files: HostFiles) -> Members:
    main = below(files.home.host_path, record.path, "the path of the record")
    collected: Mapping[str, frozenset[str]] = {}
    if base.layout.collected_keys:
        collected = await in_thread(_collected, files, main, base.layout.collected_keys)
    return (await kept_members(base.layout, record.conversation_id, files, main, collected))[0]


def _collected(files: HostFiles, main: PurePosixPath, keys: Sequence[str]) -> Mapping[str, frozenset[str]]:
    scan = TranscriptScan(keys=keys)
    with named_failures(main):
        for piece in decompressed(files.pieces(main)) if is_compressed(main) else files.pieces(main):
            scan.feed(piece)
        scan.finish()
    return scan.collected


def _home_files(
    record: ConversationRecord, context: ConversationContext, sizes: Mapping[str, int]
) -> Sequence[ContentFile]:
    """Take all files of a store that is not known: it was told to keep them in a folder that has nothing else."""
    home = context.base
    if not record.path.is_relative_to(home):
        raise ConfigurationError(
            "invalid_argument",
            f"the store of {printable(record.format)} keeps conversations outside of the context's conversation_home",
            hint="an archive is made of what a store keeps there",
        )
    files = []
    with host_failures(home):
        for path in sorted((path for path in home.rglob("*") if path.is_file()), key=os.fsencode):
            name = path.relative_to(home)
            if path.is_symlink() or (problem := path_problem(os.fsencode(name))):
                why = "is a symbolic link" if path.is_symlink() else problem
                raise SessionError("unsafe_name", f"{printable(str(name))} cannot be archived: it {why}")
            pieces = partial(_file_pieces, path)
            content = hashed(pieces(), sizes.get(str(name)))
            files.append(ContentFile(str(name), content.size, content.sha256, pieces, content.beginning))
    return sorted(files, key=lambda file: os.fsencode(file.path))


def _file_pieces(path: Path) -> Iterator[bytes]:
    with host_failures(path), path.open("rb", buffering=0) as file:
        while piece := file.read(CHUNK_BYTES):
            yield piece
