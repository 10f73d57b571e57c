"""What the next capture of a transcript conversation needs to bring only what is new.

The one rule: losing it costs a whole capture and nothing else. It is believed for nothing that is not checked: the
daemon compares the digests with the sandbox's file, and the host's file is what it says or is not gone on with.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from host_client.session.failure import host_failures
from host_client.session.folder import Scratch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from host_client.session.folder import Folder
    from host_client.session.transcript_scan import TranscriptScan

VERSION = 1
MAX_PARTS_COUNT = 4096
"""After so many captures that each brought something, one brings everything again."""

_MAX_STATE_BYTES = 256 << 20
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class SavedFile:
    """A file as a capture left it on the host.

    Attributes:
        place: Where it lies, below the host's home.
        size: Of the host's file, in bytes.
        sha256: Of the host's file.
        identity: Of the host's file, as `bundle_memory.file_identity` has it; settled.
        parts: Sizes and SHA-256 of what was taken of the sandbox's file, up to its last newline for a transcript, in
            the parts that it came in. Empty: it cannot be gone on with, or must not, since digests tell of secrets.
        line_bytes: How much of the host's file is made of these parts.
        line_sha256: SHA-256 of that.
        cuts: Offsets in the sandbox's file that other transcripts refer to, and their places in the host's.
        reference: The transcript that its first line refers to, and the offset that was written there for which other;
            None: it refers to none.
    """

    place: str
    size: int
    sha256: bytes
    identity: tuple[int, ...] = ()
    parts: tuple[tuple[int, bytes], ...] = ()
    line_bytes: int = 0
    line_sha256: bytes = b""
    cuts: Mapping[int, int] = field(default_factory=dict)
    reference: tuple[str, int, int] | None = None

    @property
    def parts_bytes(self) -> int:
        """How much of the sandbox's file the parts are."""
        return sum(size for size, _ in self.parts)


@dataclass(frozen=True, slots=True)
class SavedScan:
    """What was found in the part of the main transcript that is gone on with; see `TranscriptScan`."""

    origin: str | None
    nul_at: int | None
    has_record: bool
    collected: Mapping[str, frozenset[str]]

    @classmethod
    def of(cls, scan: TranscriptScan) -> SavedScan:
        """Return what a scan has found so far."""
        return cls(scan.origin, scan.nul_at, scan.has_record, scan.collected)

    def resume(self, scan: TranscriptScan, read_bytes: int) -> None:
        """Have a new scan go on behind that many bytes."""
        scan.resume(
            read_bytes=read_bytes,
            origin=self.origin,
            has_record=self.has_record,
            nul_at=self.nul_at,
            collected=self.collected,
        )


@dataclass(frozen=True, slots=True)
class SavedConversation:
    """A conversation as a capture left it.

    Attributes:
        source: The main transcript in the sandbox, absolute.
        home: The home of the layout there, absolute.
        main: The main transcript, below that home.
        origin: The working directory recorded in it; None: it names none.
        destination: The working directory that it was moved to.
        files: Its files, by their paths below the sandbox's home; those of shared lines are not among them.
        scan: Of the main transcript.
    """

    source: str
    home: str
    main: str
    origin: str | None
    destination: str
    files: Mapping[str, SavedFile]
    scan: SavedScan


def save(folder: Folder, conversation_id: str, saved: SavedConversation, *, durable: bool) -> None:
    """Keep it as `<folder>/<id>.json`, 0600, in one step.

    Raises:
        LimitError: `disk_full`, `read_only`, `descriptors`.
    """
    data = json.dumps(_packed(saved), separators=(",", ":")).encode()
    with host_failures(folder.host_path / f"{conversation_id}.json"):
        scratch = Scratch(folder, f"{conversation_id}.json")
        try:
            with open(scratch.fd, "wb", closefd=False) as file:
                file.write(data)
            scratch.place(durable=durable)
        finally:
            scratch.discard()


def load(folder: Folder, conversation_id: str) -> SavedConversation | None:
    """Return what a capture kept; None when there is nothing that can be used."""
    try:
        with open(os.open(f"{conversation_id}.json", _FLAGS, dir_fd=folder.fd), "rb") as file:  # noqa: PTH123 - as above
            if os.fstat(file.fileno()).st_size > _MAX_STATE_BYTES:
                return None
            told = json.loads(file.read())
        return _unpacked(told)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _packed(saved: SavedConversation) -> dict[str, Any]:
    scan = saved.scan
    return {
        "version": VERSION,
        "source": saved.source,
        "home": saved.home,
        "main": saved.main,
        "origin": saved.origin,
        "destination": saved.destination,
        "scan": {
            "origin": scan.origin,
            "nul_at": scan.nul_at,
            "has_record": scan.has_record,
            "collected": {key: sorted(values) for key, values in scan.collected.items()},
        },
        "files": {path: _packed_file(file) for path, file in saved.files.items()},
    }


def _packed_file(file: SavedFile) -> dict[str, Any]:
    return {
        "place": file.place,
        "size": file.size,
        "sha256": file.sha256.hex(),
        "identity": file.identity,
        "parts": [[size, sha256.hex()] for size, sha256 in file.parts],
        "line_bytes": file.line_bytes,
        "line_sha256": file.line_sha256.hex(),
        "cuts": list(file.cuts.items()),
        "reference": file.reference,
    }


def _unpacked(told: dict[str, Any]) -> SavedConversation | None:
    if told["version"] != VERSION:
        return None
    scan = told["scan"]
    return SavedConversation(
        source=_text(told["source"]),
        home=_text(told["home"]),
        main=_text(told["main"]),
        origin=_text(told["origin"]) if told["origin"] is not None else None,
        destination=_text(told["destination"]),
        files={path: _unpacked_file(file) for path, file in told["files"].items()},
        scan=SavedScan(
            origin=_text(scan["origin"]) if scan["origin"] is not None else None,
            nul_at=_number(scan["nul_at"]) if scan["nul_at"] is not None else None,
            has_record=scan["has_record"] is True,
            collected={key: frozenset(map(_text, values)) for key, values in scan["collected"].items()},
        ),
    )


def _unpacked_file(told: dict[str, Any]) -> SavedFile:
    reference = told["reference"]
    return SavedFile(
        place=_text(told["place"]),
        size=_number(told["size"]),
        sha256=bytes.fromhex(told["sha256"]),
        identity=tuple(map(_number, told["identity"])),
        parts=tuple((_number(size), bytes.fromhex(sha256)) for size, sha256 in told["parts"]),
        line_bytes=_number(told["line_bytes"]),
        line_sha256=bytes.fromhex(told["line_sha256"]),
        cuts={_number(cut): _number(position) for cut, position in told["cuts"]},
        reference=(_text(reference[0]), _number(reference[1]), _number(reference[2])) if reference else None,
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _number(value: object) -> int:
    if type(value) is not int or value < 0:
        raise TypeError
    return value
