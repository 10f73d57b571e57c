"""Which program a name means."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from sandbox_agent.core.program import find_program
from sandbox_api.errors import ProcessError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def here(tmp_path: Path) -> Iterator[int]:
    """A directory with programs: what relative paths are relative to."""
    for name, mode in (("first/tool", 0o644), ("second/tool", 0o755), ("second/text", 0o644), ("third/text/x", 0o755)):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        path.chmod(mode)
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield fd
    os.close(fd)


@pytest.mark.parametrize(
    ("name", "path", "expected"),
    [
        (b"tool", b"first:second", b"second/tool"),
        (b"tool", b"third:second", b"second/tool"),
        (b"tool", b"/nowhere:", None),
        (b"second/tool", b"", b"second/tool"),
        (b"second/none", b"", None),
        (b"text", b"third", None),
        (b"sh", None, b"/usr/bin/sh"),
        (b"x\0", b"second", None),
    ],
)
def test_found(here: int, name: bytes, path: bytes | None, expected: bytes | None) -> None:
    """The first of PATH that can be executed is taken; a name with a slash is a path."""
    found = find_program(name, path, here)
    assert found == expected or (path is None and found == b"/bin/sh")


@pytest.mark.parametrize(
    ("name", "path"), [(b"text", b"second"), (b"first/tool", b""), (b"second", b"."), (b"./first", b"")]
)
def test_not_executable(here: int, name: bytes, path: bytes) -> None:
    """What is there and cannot be executed is said, a directory only when it was named by its path."""
    if name == b"second":
        assert find_program(name, path, here) is None
        return
    with pytest.raises(ProcessError) as caught:
        find_program(name, path, here)
    assert caught.value.reason == "not_executable"
