"""How many files the daemon's search tells."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from sandbox_agent.core.paths import Roots
from sandbox_agent.services.file import FileService
from sandbox_api import limits
from sandbox_api.errors import LimitError
from sandbox_api.limits import MAX_FILES_COUNT, Limits
from sandbox_api.v1 import file_pb2

if TYPE_CHECKING:
    from pathlib import Path


class Told:
    """What a call has sent."""

    def __init__(self) -> None:
        self.count = 0

    async def write(self, message: file_pb2.FindResponse) -> None:
        """Take a message."""
        assert message.file.path
        self.count += 1


def found(folder: Path, max_files: int, own: Limits) -> int:
    """Ask a daemon with these limits for all files; return how many it told."""
    told = Told()
    request = file_pb2.FindRequest(directory=os.fsencode(folder), pattern="*", max_files=max_files)
    with closing(Roots([os.fsencode(folder)])) as roots, ThreadPoolExecutor() as executor:
        sandbox = SimpleNamespace(roots=roots, limits=own)
        asyncio.run(FileService(cast("Any", sandbox), executor).Find(request, cast("Any", told)))
    return told.count


@pytest.mark.parametrize(
    ("own_count", "wish", "is_enough"),
    [(1, 0, False), (1, 2, False), (1, 3, False), (1, 4, False), (4, 0, True), (4, 4, True), (9, 3, False)],
)
def test_no_wish_goes_beyond_the_ceiling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_count: int, wish: int, *, is_enough: bool
) -> None:
    """Of four files a ceiling of three shows none too many; a larger limit of the operator raises it."""
    monkeypatch.setattr(limits, "MAX_FILES_COUNT", 3)
    for name in "abcd":
        (tmp_path / name).touch()
    own = Limits(max_files=own_count)
    if is_enough:
        assert found(tmp_path, wish, own) == 4
    else:
        with pytest.raises(LimitError, match="max_files"):
            found(tmp_path, wish, own)
    (tmp_path / "d").unlink()
    if wish >= 3:
        assert found(tmp_path, wish, own) == 3


def test_the_ceiling_is_that_of_a_conversation() -> None:
    """A search tells as many files as one conversation may have, whatever a bundle may."""
    assert Limits(max_files=1).max_found_count == MAX_FILES_COUNT == 65_536
    assert Limits(max_files=70_000).max_found_count == 70_000
