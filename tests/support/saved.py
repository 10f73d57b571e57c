"""Bundle files of the host for tests: written as a capture writes them, read back whole."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from host_client.session.bundle import BundleWriter, Folder, SavedBundle
from sandbox_api.manifest import Entry, bundle_digest
from sandbox_api.profile import Profile

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sandbox_api.limits import Limits

PROFILE = Profile(
    format="mycli",
    root_variable="",
    root_directory=".mycli",
    sessions="sessions",
    buckets=False,
    include=re.compile(""),
    exclude=re.compile(r"\.lock$|^cache(?:/|$)"),
    required=("session.json",),
    relocated=(),
    validate="",
    bucket="",
    relocate="",
    lock=None,
)
ID = "S1"
SOURCE = PurePosixPath("/home/agent/.mycli/sessions/S1")
FILES: Mapping[str, bytes] = {
    "session.json": b'{"id": "S1"}',
    "empty": b"",
    "files/a.bin": bytes(range(256)),
    "files/[slug] \u00e9\n.txt": b"text",
}


def tree_digest(files: Mapping[str, bytes]) -> bytes:
    """Return the bundle digest of a tree."""
    return bundle_digest(tree_entries(files))


def tree_entries(files: Mapping[str, bytes]) -> list[Entry]:
    """Return the complete manifest of a tree."""
    paths = sorted(path.encode() for path in files)
    contents = [files[path.decode()] for path in paths]
    return [
        Entry(path, len(content), hashlib.sha256(content).digest())
        for path, content in zip(paths, contents, strict=True)
    ]


def save(
    directory: Path,
    files: Mapping[str, bytes],
    *,
    previous: SavedBundle | None = None,
    piece_bytes: int = 1 << 20,
    durable: bool = False,
) -> bool:
    """Save a tree as `<directory>/S1.json` in the way a daemon's capture does; tell whether the file was written."""
    held = {entry.path: entry for entry in previous.entries} if previous else {}
    whole = tree_entries(files)
    entries = [_as_sent(entry, files[entry.path.decode()], held.get(entry.path)) for entry in whole]
    with (
        Folder.open(directory, (), create=False) as folder,
        BundleWriter(folder, PROFILE, ID, previous=previous, durable=durable) as writer,
    ):
        writer.begin(SOURCE, entries)
        for index, entry in enumerate(entries):
            if entry.sha256:
                continue
            if entry.sent_bytes <= piece_bytes:
                writer.whole(index, memoryview(files[entry.path.decode()])[entry.from_offset :], whole[index].sha256)
                continue
            content = memoryview(files[entry.path.decode()])[entry.from_offset :]
            for start in range(0, len(content), piece_bytes):
                writer.data(index, content[start : start + piece_bytes])
            writer.end(index, whole[index].sha256)
        return writer.finish(whole, bundle_digest(whole))


def _as_sent(entry: Entry, content: bytes, held: Entry | None) -> Entry:
    if held is not None and entry == held:
        return Entry(entry.path, entry.size, entry.sha256, entry.size)
    if held is not None and held.size and hashlib.sha256(content[: held.size]).digest() == held.sha256:
        return Entry(entry.path, entry.size, b"", held.size)
    return Entry(entry.path, entry.size)


def saved_path(directory: Path) -> Path:
    """Return where `save` puts its file."""
    return directory / f"{ID}.json"


def opened(directory: Path, limits: Limits | None = None, *, believed: bool = False) -> SavedBundle:
    """Open what is saved in a directory."""
    return SavedBundle.open(saved_path(directory), PROFILE, ID, limits, believed=believed)


def places(saved: SavedBundle) -> list[tuple[object, ...]]:
    """Return what a bundle's index says of each entry and where its content lies."""
    return [(item.path, item.size, item.sha256, item.span.start, item.span.end) for item in saved.items]


def contents(saved: SavedBundle) -> dict[str, bytes]:
    """Read every file of a bundle, in pieces of odd sizes."""
    rooms = _rooms()
    return {
        entry.path.decode(): b"".join(saved.pieces(index, lambda: next(rooms)))
        for index, entry in enumerate(saved.entries)
    }


def _rooms() -> Iterator[int]:
    while True:
        yield from (1, 2, 3, 100, 1 << 20)


def document(files: Mapping[str, bytes]) -> dict[str, object]:
    """Return a bundle as the TypeScript Outpost has it: no digests, files in the order given."""
    return {
        "version": 1,
        "format": PROFILE.format,
        "id": ID,
        "source": str(SOURCE),
        "files": [{"path": path, "data": base64.b64encode(data).decode()} for path, data in files.items()],
    }


def write_text(directory: Path, text: str | bytes) -> None:
    """Put a text where the bundle file goes."""
    saved_path(directory).write_bytes(text if isinstance(text, bytes) else text.encode())


def write_document(directory: Path, value: object) -> None:
    """Put a JSON value where the bundle file goes, spelled as JSON.stringify does."""
    write_text(directory, json.dumps(value, separators=(",", ":"), ensure_ascii=False))
