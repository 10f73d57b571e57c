"""The recorded working directory, and the lines that wait for it."""

from __future__ import annotations

import errno
import tempfile
from pathlib import Path

import pytest

from host_client.errors import LimitError
from host_client.session import origin
from host_client.session.origin import Held, find_origin
from host_client.session.relocate import Relocator

LINE = b'{"x":{"cwd":"/a"}}\n'


@pytest.mark.parametrize(
    ("block", "found"),
    [
        (b"", None),
        (b'{"x":{"cwd":"/a"}}\n{"y":[{"cwd":"/b"}]}\n', None),
        (b'{"x":{"cwd":"/a"}}\n{"cwd":"/b"}\n{"cwd":"/c"}\n', "/b"),
        (b'garbage "cwd":"/a"\n{"cwd":"/b"}', "/b"),
        (b'{"cwd":"/a"\n{"payload":{"cwd":"/b"}}', "/b"),
        (b'{"x":{"cwd":"/a"},"cwd":"/b"}\n', "/b"),
        (b'{"cwd":null,"payload":{"cwd":"/b"}}\n', "/b"),
        (b'{"payload":{"x":{"cwd":"/a"}}}\n', None),
        (b'{"payload":[{"cwd":"/a"}]}\n', None),
        (b'{"cw\\u0064":"\\u002fb"}\n', "/b"),
    ],
)
def test_the_first_line_that_names_one_counts(block: bytes, found: str | None) -> None:
    """At the top or in the payload, in lines that are JSON, in any spelling."""
    assert find_origin(block) == found


def test_lines_wait_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes in comes out once, whether it was in memory or in a file."""
    for max_bytes in (1 << 20, 30, 5):
        monkeypatch.setattr(origin, "_MAX_MEMORY_BYTES", max_bytes)
        held = Held()
        for number in range(5):
            held.add(b"%d" % number * number + LINE)
        expected = b"".join(b"%d" % number * number + LINE for number in range(5))
        assert b"".join(held.take()) == expected
        assert not list(held.take())


def test_the_file_has_no_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nobody finds it, and nothing is left of it when the relocation is given up."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    relocator = Relocator("/b")
    assert not list(relocator.feed(LINE * 300_000))
    assert not list(tmp_path.iterdir())
    opened = [link.readlink() for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    assert any(path.is_relative_to(tmp_path) for path in opened)
    del relocator
    assert not list(tmp_path.iterdir())


def test_a_full_temporary_folder_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the full disk it is."""

    def full(*_: object, **__: object) -> object:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    with pytest.raises(LimitError) as caught:
        list(Relocator("/b").feed(LINE * 300_000))
    assert caught.value.reason == "disk_full"
