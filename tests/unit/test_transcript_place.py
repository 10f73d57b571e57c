"""Which files of a sandbox are whose main transcript."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, cast

import pytest

from host_client.errors import ConfigurationError, SessionError
from host_client.sandbox.file import FileInfo
from host_client.stores.context import ConversationContext
from host_client.stores.layout import SandboxPlace
from host_client.stores.transcript_place import transcripts
from sandbox_api.limits import MAX_FILES_COUNT
from support.transcript_format import IN_BUCKETS, LAYOUT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from host_client.sandbox.sandbox import Sandbox

pytestmark = pytest.mark.anyio

HOME = PurePosixPath("/h")
PLACE = SandboxPlace(HOME, PurePosixPath("/w"))


class Found:
    """A sandbox whose daemon says that it found these."""

    def __init__(self, *paths: str, is_honest: bool = True) -> None:
        self.files = self
        self._is_honest = is_honest
        self.asked: list[tuple[PurePosixPath, str]] = []
        self._paths = paths

    async def find(
        self, directory: PurePosixPath, pattern: str, *, max_files: int, contains: bytes
    ) -> AsyncIterator[FileInfo]:
        """Yield those that were asked for, or without honesty all."""
        assert not contains
        assert max_files > MAX_FILES_COUNT, "so that it is the daemon's limit that counts"
        self.asked.append((directory, pattern))
        for path in map(PurePosixPath, self._paths):
            if self._is_honest and not path.match(pattern):
                continue
            yield FileInfo(path, "file", 1, datetime.now(UTC), 0o600, 0, 0)


def context(found: Found) -> ConversationContext:
    """Return a context with that sandbox."""
    return ConversationContext(sandbox=cast("Sandbox", found))


async def test_main_transcripts_are_told_by_their_ids() -> None:
    """Children, recovery, staging and names that cannot be are passed over."""
    found = Found(
        "/h/.mycli/sessions/S1.jsonl",
        "/h/.mycli/sessions/S1/subagents/deep/agent-x.jsonl",
        "/h/.mycli/sessions/.outpost-recovery/S1-u/S1.jsonl",
        "/h/.mycli/sessions/.outpost-session-0/S1.jsonl",
        "/h/.mycli/sessions/.git/S1.jsonl",
        "/h/.mycli/sessions/a b.jsonl",
        "/h/.mycli/sessions/S2.jsonl",
    )
    listed = [(name, str(path)) async for name, path, _ in transcripts(LAYOUT, context(found), PLACE)]
    assert listed == [("S1", ".mycli/sessions/S1.jsonl"), ("S2", ".mycli/sessions/S2.jsonl")]
    one = [name async for name, _, _ in transcripts(LAYOUT, context(found), PLACE, "S2")]
    assert one == ["S2"]
    assert found.asked == [(HOME / ".mycli/sessions", "*.jsonl"), (HOME / ".mycli/sessions", "S2.jsonl")]


async def test_a_daemon_that_finds_things_elsewhere_is_not_believed() -> None:
    """What lies outside of the folder that was asked for, or has another name, is a broken promise."""
    for path in ("/etc/S1.jsonl", "/h/sessions2/S1.jsonl", "/h/sessions", "/h/sessions/notes.txt"):
        with pytest.raises(SessionError) as caught:
            [item async for item in transcripts(IN_BUCKETS, context(Found(path, is_honest=False)), PLACE)]
        assert caught.value.reason == "protocol"


async def test_a_folder_outside_of_the_home_is_not_searched() -> None:
    """A layout that names one is wrong."""
    found = Found()
    with pytest.raises(ConfigurationError) as caught:
        [
            item
            async for item in transcripts(
                replace(LAYOUT, remote_search_root=lambda _: PurePosixPath("/etc")), context(found), PLACE
            )
        ]
    assert caught.value.reason == "invalid_argument"
    assert found.asked == []
