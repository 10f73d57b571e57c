"""File systems that are mounted read-only, in the sandbox and on the host."""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from host_client import ConversationContext, LimitError, connect
from support.conversation import EXTRA, ID, files_below, make_session, store
from support.filesystem import mounted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.anyio


@contextmanager
def read_only_home(path: Path) -> Iterator[Path]:
    """Mount a home with a session that nobody can write to any more."""
    with mounted(path, "tmpfs", "size=1m") as home:
        make_session(home / ".mycli")
        subprocess.run(["mount", "-o", "remount,ro", home], check=True)
        yield home


async def test_nothing_is_written_to_a_read_only_host(tmp_path: Path) -> None:
    """A capture into a repository that cannot be written fails as `limit`/`read_only`."""
    make_session(tmp_path / "a/.mycli")
    with mounted(tmp_path / "repository", "tmpfs", "ro,size=1m") as repository:
        async with connect(f"local:{tmp_path / 'a'}") as sandbox:
            with pytest.raises(LimitError) as caught:
                await store().capture(ID, ConversationContext(sandbox=sandbox, repository=repository))
    assert caught.value.reason == "read_only"


async def test_a_read_only_home_is_captured_and_never_restored_to(tmp_path: Path) -> None:
    """Looking needs no write access; a restore fails as `limit`/`read_only` and the session stays."""
    with read_only_home(tmp_path / "a") as home:
        before = files_below(home)
        async with connect(f"local:{home},{tmp_path}") as sandbox:
            context = ConversationContext(sandbox=sandbox, repository=tmp_path)
            record = await store().capture(ID, context)
            assert record.files_count == len(EXTRA) + 1
            with pytest.raises(LimitError) as caught:
                await store().restore(record, context)
        assert caught.value.reason == "read_only"
        assert files_below(home) == before
