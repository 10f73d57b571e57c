"""A host's transcript that grows in place: what is added, behind what, and what is left when that fails."""

from __future__ import annotations

import errno
import hashlib
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_client.errors import LimitError, WorkspaceError
from host_client.session import transcript_growth
from host_client.session.bundle_memory import file_identity
from host_client.session.folder import Folder
from host_client.session.relocate import Relocator
from host_client.session.transcript_growth import OtherContentError, TranscriptGrowth
from host_client.session.transcript_state import SavedFile
from host_client.session.transcript_stream import TranscriptStream
from host_client.session.transcript_writer import MEMORY
from support.transcript_format import OLD
from support.transcript_text import relocated

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NEW = "/new/place"
NAME = "S1.jsonl"
BEGUN = b'{"cwd":"/old"}\n{"n":1}\n'


def digest(data: bytes) -> bytes:
    """Return the SHA-256."""
    return hashlib.sha256(data).digest()


def saved_at(folder: Path, source: bytes = BEGUN, rest: bytes = b"") -> SavedFile:
    """Write what a capture made of a source, and the rest that it took of a line; return what is known of it."""
    content = relocated(source, NEW, OLD)
    path = folder / NAME
    path.write_bytes(content + rest)
    fd = os.open(path, os.O_RDONLY)
    identity = file_identity(fd)
    os.close(fd)
    return SavedFile(
        place=NAME,
        size=len(content + rest),
        sha256=digest(content + rest),
        identity=identity,
        parts=((len(source), digest(source)),) if source else (),
        line_bytes=len(content),
        line_sha256=digest(content),
    )


def growth_of(folder: Path, saved: SavedFile | None = None) -> TranscriptGrowth:
    """Go on with a file."""

    def steps(write: Callable[[bytes], object]) -> TranscriptStream:
        return TranscriptStream(write, Relocator(NEW, origin=OLD))

    return TranscriptGrowth(saved or saved_at(folder), lambda: Folder.open(folder, (), create=False), NAME, steps)


LINES = st.lists(st.sampled_from([b'{"cwd":"/old"}\n', b'{"n":2}\n', b"\n", b"no JSON\n", b'{"cwd": "/old/x"}\n']))


@given(begun=LINES, batches=st.lists(LINES.filter(bool), max_size=4), begins=st.sets(st.integers(0, 3)))
def test_what_is_added_is_what_a_capture_makes(
    tmp_path_factory: pytest.TempPathFactory, begun: list[bytes], batches: list[list[bytes]], begins: set[int]
) -> None:
    """After each batch file and state are those of a capture of all of it; each beginning adds one part."""
    folder = tmp_path_factory.mktemp("growth")
    source = b"".join(begun)
    growth = growth_of(folder, saved_at(folder, source))
    parts, came = list(growth.saved.parts), b""
    for index, batch in enumerate(batches):
        if index in begins:
            growth.begin()
            parts, came = list(growth.saved.parts), b""
        data = b"".join(batch)
        source, came = source + data, came + data
        growth.advance(data, digest(came))
        content = relocated(source, NEW, OLD)
        assert (folder / NAME).read_bytes() == content
        saved = growth.saved
        assert saved == replace(
            saved,
            size=len(content),
            sha256=digest(content),
            line_bytes=len(content),
            line_sha256=digest(content),
            parts=(*parts, (len(came), digest(came))),
        )
        assert saved.parts_bytes == len(source)
        assert growth.is_marked(digest(came))
        assert growth.can_go_on


def test_rest_of_a_line_is_taken_up(tmp_path: Path) -> None:
    """What a capture took of a line that had no end is not written again; another rest is not gone on with."""
    growth = growth_of(tmp_path, saved_at(tmp_path, rest=b'{"n"'))
    growth.advance(b'{"n":2}\n', digest(b'{"n":2}\n'))
    assert (tmp_path / NAME).read_bytes() == relocated(BEGUN, NEW, OLD) + b'{"n":2}\n'
    growth = growth_of(tmp_path, saved_at(tmp_path, rest=b'{"m"'))
    before = (tmp_path / NAME).read_bytes()
    with pytest.raises(OtherContentError):
        growth.advance(b'{"n":2}\n', digest(b'{"n":2}\n'))
    assert (tmp_path / NAME).read_bytes() == before


def test_other_digest_writes_nothing(tmp_path: Path) -> None:
    """Content that is not what was marked stays out, and what is known stays right."""
    growth = growth_of(tmp_path)
    before = growth.saved
    with pytest.raises(OtherContentError):
        growth.advance(b"{}\n", digest(b"[]\n"))
    assert (tmp_path / NAME).read_bytes() == relocated(BEGUN, NEW, OLD)
    assert (growth.saved, growth.can_go_on) == (before, False)


@pytest.mark.parametrize("change", ["append", "rewrite", "replace", "touch", "remove", "hidden"])
@pytest.mark.parametrize("turn", [0, 1])
def test_file_that_somebody_changed_is_left(tmp_path: Path, change: str, turn: int) -> None:
    """Whatever was done to it, and when: nothing is written."""
    path = tmp_path / NAME
    saved = saved_at(tmp_path)
    if change == "hidden":
        path.write_bytes(b"x" * saved.size)
        with path.open("rb") as file:
            saved = replace(saved, identity=file_identity(file.fileno()))
    growth = growth_of(tmp_path, saved)
    if turn and change != "hidden":
        growth.advance(b"{}\n", digest(b"{}\n"))
    if change == "append":
        with path.open("ab") as file:
            file.write(b"theirs\n")
    elif change == "rewrite":
        path.write_bytes(b"x" * path.stat().st_size)
    elif change == "replace":
        (tmp_path / "other").write_bytes(path.read_bytes())
        (tmp_path / "other").rename(path)
    elif change == "touch":
        os.utime(path)
    elif change == "remove":
        path.unlink()
    before = path.read_bytes() if path.exists() else None
    data = (b"{}\n" if turn and change != "hidden" else b"") + b"[]\n"
    with pytest.raises(OtherContentError):
        growth.advance(b"[]\n", digest(data))
    assert (path.read_bytes() if path.exists() else None) == before


def test_link_in_its_place_is_refused(tmp_path: Path) -> None:
    """Nothing is written through a link."""
    growth = growth_of(tmp_path)
    (tmp_path / NAME).rename(tmp_path / "other")
    (tmp_path / NAME).symlink_to(tmp_path / "other")
    with pytest.raises((WorkspaceError, OtherContentError)):
        growth.advance(b"[]\n", digest(b"[]\n"))
    assert (tmp_path / "other").read_bytes() == relocated(BEGUN, NEW, OLD)


def test_part_of_a_line_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that fails on the way leaves whole lines."""

    def extend(fd: int, *_args: object, **_options: object) -> None:
        os.write(fd, b'{"cut')
        raise OSError(errno.ENOSPC, "no space")

    growth = growth_of(tmp_path)
    monkeypatch.setattr(transcript_growth, "extend", extend)
    with pytest.raises(LimitError) as caught:
        growth.advance(b"{}\n", digest(b"{}\n"))
    assert caught.value.reason == "disk_full"
    assert (tmp_path / NAME).read_bytes() == relocated(BEGUN, NEW, OLD)
    assert not growth.can_go_on


def test_next_capture_need_not_read_it(tmp_path: Path) -> None:
    """What was hashed on the way is known by its digest, and stays what it was while more is added."""
    growth = growth_of(tmp_path)
    growth.remember()
    growth.advance(b"{}\n", digest(b"{}\n"))
    growth.remember()
    first, second = relocated(BEGUN, NEW, OLD), (tmp_path / NAME).read_bytes()
    growth.advance(b"[]\n", digest(b"{}\n[]\n"))
    assert MEMORY.get(digest((tmp_path / NAME).read_bytes())) is None
    for content in (first, second):
        known = MEMORY.get(digest(content))
        assert known is None or known.digest() == digest(content)
    assert MEMORY.get(digest(second)) is not None


def test_it_is_forced_to_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forcing reaches the file itself."""
    forced: list[int] = []
    monkeypatch.setattr(transcript_growth.os, "fsync", lambda fd: forced.append(os.fstat(fd).st_ino))
    growth_of(tmp_path).force()
    assert forced == [(tmp_path / NAME).stat().st_ino]
