"""An archive whose objects somebody made who can write to the store: undamaged, and not what a capture would make."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest

from host_client import ConversationContext, Limits, TransportConversations, builtin_format
from host_client.errors import LimitError, SessionError
from host_client.transports.local import LocalTransport
from sandbox_api.manifest import Entry, bundle_digest
from support.faulty_transport import FaultyTransport
from support.forged_archive import ForgedArchive

if TYPE_CHECKING:
    from pathlib import Path

    from host_client import ConversationRecord

pytestmark = pytest.mark.anyio

ID = "aaaaaaaa-0000-4000-8000-000000000002"
MAIN = f"projects/-outpost-archive/{ID}.jsonl"
SAID = f'{{"type":"user","cwd":"/outpost-archive","sessionId":"{ID}"}}\n'.encode()
BESIDE = ["settings.json", "settings.local.json", "hooks/x.sh", ".credentials.json", "plugins/a/b", ".outpost/x"]


class Scene:
    """A store, and a host that reads it.

    Args:
        directory: Has both.
        format_name: The format of the conversations.
    """

    def __init__(self, directory: Path, format_name: str = "claude") -> None:
        self.cache = directory / "cache"
        (directory / "store").mkdir()
        self.transport = FaultyTransport(LocalTransport(directory / "store"))
        self.forged = ForgedArchive(self.transport.inner, format_name)
        self.store = TransportConversations(
            builtin_format(format_name), transport=self.transport, namespace="team", cache=self.cache
        )

    async def located(self, **options: object) -> ConversationRecord:
        """Locate the conversation."""
        return await self.store.locate(ID, ConversationContext(**options))  # type: ignore[arg-type]

    def files(self) -> list[str]:
        """Return the files that are left on the host."""
        return [path.name for path in self.cache.rglob("*") if path.is_file()]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """A host and a store with nothing in it."""
    return Scene(tmp_path)


def entry(path: str, content: bytes) -> Entry:
    """Return a file as a manifest has it."""
    return Entry(path.encode(), len(content), hashlib.sha256(content).digest())


@pytest.mark.parametrize("is_in_digest", [False, True])
@pytest.mark.parametrize("beside", BESIDE)
async def test_files_that_no_layout_names_are_refused(scene: Scene, beside: str, *, is_in_digest: bool) -> None:
    """A file beside those of the conversation, such as one that a CLI would run, stays nowhere on the host."""
    files = sorted([entry(MAIN, SAID), entry(beside, b"evil\n")])
    content = b"".join(SAID if one.path == MAIN.encode() else b"evil\n" for one in files)
    digest = bundle_digest(files if is_in_digest else [entry(MAIN, SAID)]).hex()
    await scene.forged.snapshot(ID, files, [await scene.forged.data(content)], digest)
    with pytest.raises(SessionError) as caught:
        await scene.located()
    assert caught.value.reason == "digest_mismatch"
    assert scene.files() == []


async def test_the_same_without_it_is_read(scene: Scene) -> None:
    """What these tests write is refused for what is wrong with it alone."""
    files = [entry(MAIN, SAID)]
    await scene.forged.snapshot(ID, files, [await scene.forged.data(SAID)], bundle_digest(files).hex())
    assert (await scene.located()).digest == bundle_digest(files).hex()


@pytest.mark.parametrize("format_name", ["claude", "kimi"])
async def test_one_chunk_again_and_again_fills_no_disk(tmp_path: Path, format_name: str) -> None:
    """A manifest that makes a small object larger than the limits is refused before any data is read."""
    scene = Scene(tmp_path, format_name)
    chunk = await scene.forged.data(bytes(1 << 20))
    files = [Entry(MAIN.encode(), 3 << 20, bytes(32))]
    await scene.forged.snapshot(ID, files, 3 * [chunk], bundle_digest(files).hex())
    with pytest.raises(LimitError) as caught:
        await scene.located(limits=Limits(max_bytes=2 << 20, max_files=10))
    assert caught.value.reason == "max_bytes"
    assert scene.transport.calls("read", "data") == []
    assert scene.files() == []


async def test_more_files_than_the_limit_are_refused_unread(scene: Scene) -> None:
    """So are too many files."""
    files = [entry(f"projects/-x/{ID}/{number:02}", b"") for number in range(11)]
    await scene.forged.snapshot(ID, files, [], bundle_digest(files).hex())
    with pytest.raises(LimitError) as caught:
        await scene.located(limits=Limits(max_bytes=2 << 20, max_files=10))
    assert caught.value.reason == "max_files"
    assert scene.files() == []
