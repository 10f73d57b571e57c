"""docs/archives.md: every byte of the example that it shows is what an archive writes."""

from __future__ import annotations

import hashlib
import os
import secrets
import textwrap
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from host_client.stores.archive_codec import Codec
from host_client.stores.archive_cut import Cutter, plan_streams
from host_client.stores.archive_index import Index, Snapshot, encode_index, manifest_sha256
from host_client.stores.archive_key import ArchiveKey
from host_client.stores.archive_layout import Layout
from host_client.stores.archive_manifest import ChunkReference, FileReference, Manifest, Stream, encode_manifest
from host_client.transports.frame import make_header, open_frame
from sandbox_api.manifest import bundle_digest

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = (Path(__file__).parents[2] / "docs/archives.md").read_text()
CONTENT = b'{"type":"user"}\n'
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
SNAPSHOT_ID = f"{int(AT.timestamp()):08x}{'0' * 24}"
KEY = ArchiveKey(bytes(range(32)))


@pytest.fixture(autouse=True)
def _no_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random bytes of frames and nonces are those of the page."""
    monkeypatch.setattr(secrets, "token_bytes", lambda count: b"\x11" * count)
    monkeypatch.setattr(os, "urandom", lambda count: b"\x22" * count)


def _shown(parts: list[tuple[bytes, str]]) -> str:
    """Return bytes as the page shows them: 16 a line, and beside the first line what they are."""
    lines = [
        f"{data[at : at + 16].hex(' '):<47}  {'' if at else meaning}".rstrip()
        for data, meaning in parts
        for at in range(0, len(data), 16)
    ]
    return textwrap.indent("\n".join(lines), "    ")


def _frame(stored: bytes) -> list[tuple[bytes, str]]:
    header = make_header(stored)
    assert open_frame("x", header + stored) == stored
    return [
        (header[:8], "frame: OUTPOST, version 1"),
        (header[8:24], "frame: random"),
        (header[24:32], "frame: bytes that follow it"),
        (header[32:], "frame: SHA-256 of the 32 bytes before and of all that follows"),
    ]


def _head(stored: bytes) -> list[tuple[bytes, str]]:
    return [
        (stored[:8], "head: OUTPOSTA"),
        (stored[8:9], "head: version 1"),
        (stored[9:10], "head: flags: 1 compressed, 2 encrypted"),
        (stored[10:18], "head: id of the key"),
        (stored[18:22], "head: CRC-32 of the 18 bytes before and of all that follows"),
    ]


class _Example:
    """The objects of the page's conversation, by a codec."""

    def __init__(self, codec: Codec) -> None:
        self.layout = Layout("team")
        file = FileReference("main.jsonl", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())
        (self.plan,) = plan_streams([file])
        (chunk,) = Cutter(codec.object_name).cut([CONTENT])
        self.data_key = self.layout.data_key(chunk.name)
        self.data = codec.encode(chunk.data, about=self.data_key)
        digest = bundle_digest([file.entry]).hex()
        self.manifest_key = self.layout.snapshot_key("mine", "s1", SNAPSHOT_ID)
        manifest = Manifest(
            snapshot_id=SNAPSHOT_ID,
            format="mine",
            conversation_id="s1",
            source="/home/agent/.mine/s1",
            digest=digest,
            created_at=AT,
            streams=(Stream(self.plan, (ChunkReference(chunk.name, len(chunk.data)),)),),
        )
        self.manifest = encode_manifest(manifest, codec, about=self.manifest_key)
        self.index_key = self.layout.index_key("mine", "s1")
        snapshot = Snapshot(
            snapshot_id=SNAPSHOT_ID,
            parent="",
            digest=digest,
            manifest_sha256=manifest_sha256(self.manifest),
            created_at=AT,
            files_count=1,
            bytes_count=len(CONTENT),
            added_bytes=len(self.data) + len(self.manifest),
        )
        index = Index(format="mine", namespace="team", id="s1", native_id="s1", entries=(snapshot,))
        self.index = encode_index(index, codec, about=self.index_key)


def _plain_data() -> str:
    example = _Example(Codec(compress=False))
    body = [(example.data[22:], 'the content: {"type":"user"} and a newline')]
    return f"    {example.data_key}\n\n" + _shown(_frame(example.data) + _head(example.data) + body)


def _plain_manifest() -> tuple[str, bytes]:
    example = _Example(Codec(compress=False))
    head = _shown(_frame(example.manifest) + _head(example.manifest))
    return f"    {example.manifest_key}\n\n{head}\n\n", example.manifest[22:]


def _plain_index() -> tuple[str, bytes]:
    example = _Example(Codec(compress=False))
    head = _shown(_frame(example.index) + _head(example.index))
    return f"    {example.index_key}\n\n{head}\n\n", example.index[22:]


def _encrypted_data() -> str:
    example = _Example(Codec(KEY, compress=False))
    body = [
        (example.data[22:34], "nonce: random"),
        (example.data[34:-16], "AES-256-GCM of the content"),
        (example.data[-16:], "its tag"),
    ]
    return f"    {example.data_key}\n\n" + _shown(_head(example.data) + body)


@pytest.mark.parametrize("example", [_plain_data, _encrypted_data])
def test_the_page_shows_what_is_written(example: Callable[[], str]) -> None:
    """Key, frame, head and content of a data object, and those of an encrypted one."""
    assert example() in PAGE


@pytest.mark.parametrize("example", [_plain_manifest, _plain_index])
def test_the_page_shows_what_is_said(example: Callable[[], tuple[str, bytes]]) -> None:
    """Key, frame and head of a manifest and of an index, and behind them their JSON, broken into lines."""
    head, told = example()
    assert head in PAGE
    block = PAGE[PAGE.index(head) + len(head) :].partition("\n\n")[0]
    assert "".join(line.strip() for line in block.splitlines()) == told.decode()


def test_the_page_shows_what_is_derived_from_a_key() -> None:
    """The id, and the keys for names and contents, of the key of the example."""
    for derived in (KEY.key_id, KEY.name_key, KEY.content_key):
        assert f"`{derived.hex()}`" in PAGE
