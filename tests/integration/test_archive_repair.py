"""An archive that has lost objects: what still works, and how it becomes whole again where a sandbox has the bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from host_client.errors import SessionError
from host_client.stores.archive_layout import Layout
from host_client.stores.archive_maintenance import ConversationArchive
from host_client.stores.context import ConversationContext
from support.archive_hosts import NAMESPACE, Scene
from support.transcript_format import ID, lines, write_transcript

if TYPE_CHECKING:
    from pathlib import Path

    from host_client.stores.archive_verify import VerifyReport

pytestmark = pytest.mark.anyio

NOWHERE = ConversationContext()
MANY = 3000
"""Lines enough for more than one chunk, the second of them appended."""


def _write(scene: Scene, count: int) -> None:
    write_transcript(scene.home() / ".mycli/sessions", lines("/old", count))


async def _verified(scene: Scene) -> VerifyReport:
    return await ConversationArchive(scene.transport.inner, NAMESPACE).verify()


async def _with_two_snapshots(tmp_path: Path) -> Scene:
    scene = Scene(tmp_path)
    async with scene.sandbox() as context:
        for count in (MANY, MANY + 10):
            _write(scene, count)
            await scene.archive().capture(ID, context)
    return scene


async def _lose(scene: Scene) -> str:
    """Remove the data that both snapshots begin with; return its key."""
    name = next(iter((await scene.manifest(ID)).chunks)).name
    assert name in {chunk.name for chunk in (await scene.manifest(ID, 0)).chunks}
    key = Layout(NAMESPACE).data_key(name)
    await scene.transport.inner.remove(key)
    return key


@pytest.mark.parametrize("grown", [0, 10])
async def test_a_forced_capture_writes_again_what_is_lost(tmp_path: Path, grown: int) -> None:
    """Whether the conversation has grown or not, all snapshots are whole afterwards, on every host."""
    scene = await _with_two_snapshots(tmp_path)
    key = await _lose(scene)
    assert {finding.reason for finding in (await _verified(scene)).findings} == {"missing_object"}
    with pytest.raises(SessionError) as caught:
        await scene.archive("b").locate(ID, NOWHERE)
    assert (caught.value.reason, caught.value.facts["key"]) == ("missing_object", key)
    _write(scene, MANY + 10 + grown)
    async with scene.sandbox() as context:
        record = await scene.archive(force=True).capture(ID, context)
    report = await _verified(scene)
    assert report.is_whole
    assert report.snapshots_count == 3
    assert not (await scene.archive().history(ID))[-1].diverged
    assert (await scene.archive("b").locate(ID, NOWHERE)).digest == record.digest


async def test_a_capture_alone_does_not_look_for_old_data(tmp_path: Path) -> None:
    """What is lost stays lost: looking would cost each capture a request for each chunk."""
    scene = await _with_two_snapshots(tmp_path)
    await _lose(scene)
    _write(scene, MANY + 20)
    async with scene.sandbox() as context:
        await scene.archive().capture(ID, context)
    (conversation,) = (await _verified(scene)).conversations
    assert len(conversation.hurt) == 3


async def test_a_forced_capture_of_what_is_whole_and_unchanged_writes_nothing(tmp_path: Path) -> None:
    """It says so."""
    scene = await _with_two_snapshots(tmp_path)
    writes_count = len(scene.transport.calls("write"))
    async with scene.sandbox() as context:
        assert (await scene.archive(force=True).capture(ID, context)).unchanged
    assert len(scene.transport.calls("write")) == writes_count
