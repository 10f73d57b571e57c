"""What of a conversation is archived, which of its files decide, and how archived files are put in place again."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_client.agents.registry import builtin_format
from host_client.errors import SessionError
from host_client.sandbox.task import in_thread
from host_client.stores.archive_content import ARCHIVE_REPOSITORY, ContentFile, decides, hashed
from host_client.stores.archive_index import now
from host_client.stores.archive_lineage import asked_sizes, goes_on
from host_client.stores.archive_manifest import FileReference, Manifest, Stream
from host_client.stores.archive_writer import ArchivedContent, write_content
from host_client.stores.context import ConversationContext
from sandbox_api.manifest import Entry, bundle_digest
from support.conversation import ID, store

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from host_client.stores.contract import ConversationStore

ROLLOUT = "sessions/2026/01/02/rollout-2026-01-02T03-04-05-01a22be9-66e2-70d3-92a6-1c9619f25606.jsonl"
CODEX_ID = "01a22be9-66e2-70d3-92a6-1c9619f25606"


def test_the_archives_repository_is_a_place_of_its_own() -> None:
    """It is absolute, and the same on every host: no link leads elsewhere."""
    assert ARCHIVE_REPOSITORY.is_absolute()
    assert ARCHIVE_REPOSITORY.resolve() == ARCHIVE_REPOSITORY
    assert not ARCHIVE_REPOSITORY.exists()


@given(st.lists(st.binary(max_size=20), max_size=8), st.integers(0, 100))
def test_a_content_and_its_beginning_are_hashed_at_once(pieces: list[bytes], size: int) -> None:
    """However it is cut; a beginning that is not all there has no digest."""
    content = b"".join(pieces)
    found = hashed(pieces, size)
    assert (found.size, found.sha256) == (len(content), hashlib.sha256(content).digest())
    expected = hashlib.sha256(content[:size]).digest() if size <= len(content) else None
    assert found.beginning == expected
    assert hashed(pieces).beginning is None


def test_the_files_that_decide_are_the_formats_own() -> None:
    """The main transcript; logs of a bundle; all files where nothing is known."""
    codex, kimi, unknown = builtin_format("codex"), builtin_format("kimi"), store()
    other = ROLLOUT.replace("01a22be9-66e2", "01a22be9-0000")
    assert decides(codex, CODEX_ID, [ROLLOUT, other, "session_index.jsonl"]) == {ROLLOUT}
    assert decides(codex, CODEX_ID, [ROLLOUT, f"{ROLLOUT}.zst"]) == {ROLLOUT, f"{ROLLOUT}.zst"}
    wires = {"agents/main/wire.jsonl", "agents/other/wire.jsonl"}
    assert decides(kimi, "x", [*wires, "state.json"]) == wires
    assert decides(kimi, "x", ["state.json", "x"]) == {"state.json", "x"}
    assert decides(unknown, ID, ["session.json", "files/a"]) == {"session.json", "files/a"}


def manifest(conversation_id: str, files: dict[str, bytes]) -> Manifest:
    """Return the manifest of a snapshot with those files."""
    references = tuple(
        FileReference(path, len(data), hashlib.sha256(data).hexdigest()) for path, data in sorted(files.items())
    )
    return Manifest(
        snapshot_id="0" * 32,
        format="mycli",
        conversation_id=conversation_id,
        source="/x",
        digest="0" * 64,
        created_at=now(),
        streams=(Stream(references, ()),),
    )


@pytest.mark.parametrize(
    ("base", "old", "new", "expected"),
    [
        pytest.param(builtin_format("kimi"), {"wire": b""}, {"wire": b""}, True, id="the same"),
        pytest.param(
            builtin_format("kimi"),
            {"agents/main/wire.jsonl": b"ab"},
            {"agents/main/wire.jsonl": b"abc"},
            True,
            id="grown",
        ),
        pytest.param(
            builtin_format("kimi"),
            {"agents/main/wire.jsonl": b"ab"},
            {"agents/main/wire.jsonl": b"a"},
            False,
            id="shorter",
        ),
        pytest.param(
            builtin_format("kimi"),
            {"agents/main/wire.jsonl": b"ab"},
            {"agents/main/wire.jsonl": b"ax"},
            False,
            id="changed",
        ),
        pytest.param(builtin_format("kimi"), {"agents/main/wire.jsonl": b"ab"}, {"state.json": b"x"}, False, id="gone"),
        pytest.param(
            builtin_format("kimi"),
            {"state.json": b"a"},
            {"state.json": b"b", "agents/main/wire.jsonl": b"n"},
            True,
            id="the first log",
        ),
        pytest.param(
            builtin_format("kimi"),
            {"agents/main/wire.jsonl": b"ab", "state.json": b"1"},
            {"agents/main/wire.jsonl": b"ab", "state.json": b"2"},
            True,
            id="another state",
        ),
        pytest.param(store(), {"session.json": b"1"}, {"session.json": b"2"}, False, id="no logs are known"),
        pytest.param(store(), {"session.json": b"1"}, {"session.json": b"1", "files/a": b"1"}, True, id="a file more"),
        pytest.param(builtin_format("codex"), {ROLLOUT: b"ab"}, {f"{ROLLOUT}.zst": b"ab"}, False, id="compressed"),
    ],
)
def test_what_goes_on(base: ConversationStore, old: dict[str, bytes], new: dict[str, bytes], *, expected: bool) -> None:
    """Only what begins with all bytes of each file that decides goes on from a snapshot."""
    newest = manifest(CODEX_ID, old)
    sizes = asked_sizes(base, newest)
    assert goes_on(base, newest, content_files(new, sizes.get)) is expected


def content_files(files: dict[str, bytes], asked: Callable[[str], int | None]) -> Sequence[ContentFile]:
    """Return files as they are opened."""
    found = []
    for path, data in sorted(files.items()):
        content = hashed([data], asked(path))
        found.append(ContentFile(path, len(data), content.sha256, lambda data=data: iter([data]), content.beginning))
    return found


FILES = {"empty": b"", "files/a": os.urandom(1000), "files/b": b"", "session.json": b'{"id": "S1", "cwd": "/"}'}


def archived(files: dict[str, bytes]) -> ArchivedContent:
    """Return files as a manifest has them."""
    entries = [Entry(path.encode(), len(data), hashlib.sha256(data).digest()) for path, data in sorted(files.items())]
    return ArchivedContent(ID, PurePosixPath("/there"), entries, bundle_digest(entries))


class OtherStore:
    """A store that is not known."""

    format = "other"


@pytest.mark.anyio
@pytest.mark.parametrize("piece_bytes", [7, 5000])
async def test_archived_files_are_put_in_place(tmp_path: Path, piece_bytes: int) -> None:
    """However their bytes come, empty files included; what is short, long or another content is refused."""
    content = b"".join(data for _, data in sorted(FILES.items()))

    async def place(home: Path, given: bytes) -> None:
        await in_thread(home.mkdir)

        async def fetch(take: Callable[[bytes], None]) -> None:
            for at in range(0, len(given), piece_bytes):
                await in_thread(take, given[at : at + piece_bytes])

        context = ConversationContext(conversation_home=home)
        await write_content(OtherStore(), archived(FILES), context, fetch)  # type: ignore[arg-type]

    await place(tmp_path / "good", content)
    assert {
        str(path.relative_to(tmp_path / "good")): path.read_bytes()
        for path in (tmp_path / "good").rglob("*")
        if path.is_file()
    } == FILES
    for name, bad, reason in (
        ("short", content[:-1], "corrupt"),
        ("long", content + b"x", "corrupt"),
        ("other", bytes(len(content)), "digest_mismatch"),
    ):
        with pytest.raises(SessionError) as caught:
            await place(tmp_path / name, bad)
        assert caught.value.reason == reason


@pytest.mark.anyio
async def test_files_that_are_no_session_are_refused(tmp_path: Path) -> None:
    """What an archive has of a bundle must be of its format before a byte of it is written."""
    files = {"session.json": b"{}", "not/of/it": b"x"}

    async def fetch(_: Callable[[bytes], None]) -> None:
        raise AssertionError

    with pytest.raises(SessionError) as caught:
        await write_content(store(), archived(files), ConversationContext(conversation_home=tmp_path), fetch)
    assert caught.value.reason == "corrupt"
