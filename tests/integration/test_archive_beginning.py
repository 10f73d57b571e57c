"""What is looked at when a conversation is archived for the first time: the namespace's key, and what came before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from host_client.errors import ConfigurationError
from host_client.stores.archive_key import ArchiveKey
from support.archive_hosts import Scene
from support.conversation import files_below
from support.transcript_format import ID, lines, write_transcript

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio

KEY = ArchiveKey(bytes(range(32)))
OTHER_KEY = ArchiveKey(bytes(32))


def write(scene: Scene, *ids: str) -> None:
    """Write transcripts of the sandbox `a`."""
    for name in ids:
        write_transcript(scene.home() / ".mycli/sessions", lines(count=2), conversation_id=name)


@pytest.mark.parametrize(
    ("right", "wrong"), [(KEY, None), (None, KEY), (KEY, OTHER_KEY)], ids=["none", "needless", "other"]
)
async def test_another_key_begins_no_conversation(
    tmp_path: Path, right: ArchiveKey | None, wrong: ArchiveKey | None
) -> None:
    """A second conversation without the namespace's key is refused before anything of it is stored."""
    scene = Scene(tmp_path)
    write(scene, "one", "two")
    async with scene.sandbox() as context:
        await scene.archive(key=right).capture("one", context)
        before = files_below(scene.directory / "store")
        with pytest.raises(ConfigurationError) as caught:
            await scene.archive("w", key=wrong).capture("two", context)
        assert caught.value.reason == "wrong_key"
        assert {path for path in files_below(scene.directory / "store") if path not in before} <= {".probe!"}
        await scene.archive(key=right).capture("two", context)


async def test_a_damaged_index_keeps_nobody_from_beginning(tmp_path: Path) -> None:
    """An index that cannot be read says nothing of keys: a new conversation is archived, and the next index decides."""
    scene = Scene(tmp_path)
    write(scene, "one", "two", "three")
    async with scene.sandbox() as context:
        await scene.archive(key=KEY).capture("one", context)
        (scene.directory / "store/conversations/team/mycli/one/index!").write_bytes(b"damaged")
        await scene.archive(key=KEY).capture("two", context)
        with pytest.raises(ConfigurationError) as caught:
            await scene.archive("w").capture("three", context)
    assert caught.value.reason == "wrong_key"


async def test_a_lost_index_is_told(tmp_path: Path) -> None:
    """A push that begins a new history where the store has snapshots of an older one says so, once."""
    scene = Scene(tmp_path)
    archive = scene.archive()
    async with scene.sandbox() as context:
        for count in (2, 3):
            write_transcript(scene.home() / ".mycli/sessions", lines(count=count))
            captured = await archive.capture(ID, context)
            assert "unindexed" not in {notice.reason for notice in captured.notices}
        (scene.directory / f"store/conversations/team/mycli/{ID}/index!").unlink()
        (told,) = [one for one in (await archive.capture(ID, context)).notices if one.reason == "unindexed"]
        assert "2 snapshot(s)" in told.message
        again = await archive.capture(ID, context)
    assert again.unchanged
    assert not again.notices


async def test_another_namespace_has_its_own_key(tmp_path: Path) -> None:
    """What continues a namespace, or stands before it, has a key of its own."""
    scene = Scene(tmp_path)
    write(scene, "one")
    async with scene.sandbox() as context:
        await scene.archive(key=KEY, namespace="team/a").capture("one", context)
        await scene.archive(namespace="team").capture("one", context)
        await scene.archive(key=OTHER_KEY, namespace="team/a/b").capture("one", context)
