"""Relocation of transcript files: in one step, with nothing left behind when it fails."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from host_client.errors import ConfigurationError, OutpostError, SessionError, WorkspaceError
from host_client.session import relocate_file as module
from host_client.session.compression import compressed, decompressed
from host_client.session.relocate_file import Relocated, relocate_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

BEFORE = b'{"cwd":"/a"}\n{"cwd":"/a"'
AFTER = b'{"cwd":"/b"}\n{"cwd":"/a"'


@pytest.fixture
def transcript(tmp_path: Path) -> Path:
    """A transcript with a torn end, readable by everyone and old."""
    path = tmp_path / "s.jsonl"
    path.write_bytes(BEFORE)
    path.chmod(0o644)
    os.utime(path, (1, 1))
    return path


def test_a_file_is_replaced_in_place(transcript: Path) -> None:
    """The result tells what changed; the file is private and new, since Claude Code 2.1 deletes old ones."""
    assert relocate_file(transcript, "/b") == Relocated(transcript, "/a", "/b", 1, len(AFTER), 13)
    assert transcript.read_bytes() == AFTER
    assert stat.S_IMODE(transcript.stat().st_mode) == 0o600
    assert transcript.stat().st_mtime > 1_000_000_000
    assert list(transcript.parent.iterdir()) == [transcript]


def test_a_file_with_nothing_to_change_is_left_alone(transcript: Path) -> None:
    """In place it is the same file as before, with its time and mode."""
    before = transcript.stat()
    assert relocate_file(transcript, "/a").changed_count == 0
    transcript.write_bytes(b"{}\n")
    os.utime(transcript, (1, 1))
    assert relocate_file(transcript, "/b").origin is None
    assert (transcript.stat().st_ino, transcript.stat().st_mtime) == (before.st_ino, before.st_mtime)
    assert list(transcript.parent.iterdir()) == [transcript]


def test_an_output_leaves_the_file_as_it_is(transcript: Path) -> None:
    """The result goes to another name, also when nothing changed, and replaces what is there."""
    output = transcript.parent / "t.jsonl"
    output.write_bytes(b"old")
    assert relocate_file(transcript, "/b", output=output).host_path == output
    assert (transcript.read_bytes(), output.read_bytes()) == (BEFORE, AFTER)
    relocate_file(transcript, "/a", output=output)
    assert output.read_bytes() == BEFORE


def test_a_given_origin_is_taken(transcript: Path) -> None:
    """The first recorded one does not count then."""
    assert relocate_file(transcript, "/b", origin="/z").changed_count == 0


def test_a_compressed_transcript_stays_compressed(tmp_path: Path) -> None:
    """Content of `.zst` names is what is relocated and counted."""
    path = tmp_path / "s.jsonl.zst"
    path.write_bytes(b"".join(compressed([BEFORE])))
    assert relocate_file(path, "/b").bytes_count == len(AFTER)
    assert b"".join(decompressed([path.read_bytes()])) == AFTER
    relocate_file(path, "/c", output=tmp_path / "s.jsonl")
    assert (tmp_path / "s.jsonl").read_bytes() == AFTER.replace(b"/b", b"/c")


def _missing(path: Path) -> None:
    path.unlink()


def _directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _link(path: Path) -> None:
    path.rename(path.with_name("real"))
    path.symlink_to("real")


@pytest.mark.parametrize(
    ("make", "reason"),
    [(_missing, "not_found"), (_directory, "not_a_file"), (_fifo, "not_a_file"), (_link, "unsafe_path")],
)
def test_only_regular_files_are_relocated(transcript: Path, make: Callable[[Path], None], reason: str) -> None:
    """Nothing, a directory, a FIFO and a link are refused, and nothing is written."""
    make(transcript)
    before = sorted(transcript.parent.iterdir())
    with pytest.raises(WorkspaceError) as caught:
        relocate_file(transcript, "/b", output=transcript.parent / "t.jsonl")
    assert caught.value.reason == reason
    assert sorted(transcript.parent.iterdir()) == before


@pytest.mark.parametrize("make", [_directory, _fifo, _link])
def test_only_regular_files_are_replaced(transcript: Path, make: Callable[[Path], None]) -> None:
    """What is at the output and no file stays there."""
    output = transcript.parent / "t.jsonl"
    output.write_bytes(b"old")
    make(output)
    kind = output.lstat().st_mode
    with pytest.raises(WorkspaceError) as caught:
        relocate_file(transcript, "/b", output=output)
    assert caught.value.reason == "not_a_file"
    assert output.lstat().st_mode == kind


@pytest.mark.parametrize("destination", ["", "b", "./b", "/b\0"])
def test_a_destination_is_an_absolute_path(transcript: Path, destination: str) -> None:
    """Anything else is refused before the file is opened."""
    with pytest.raises(ConfigurationError) as caught:
        relocate_file(transcript, destination)
    assert caught.value.reason == "invalid_argument"
    assert transcript.read_bytes() == BEFORE


def test_an_output_folder_must_be_there(transcript: Path) -> None:
    """None is made."""
    with pytest.raises(WorkspaceError) as caught:
        relocate_file(transcript, "/b", output=transcript.parent / "none" / "t.jsonl")
    assert caught.value.reason == "not_found"


def test_a_file_that_grows_meanwhile_is_refused(transcript: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a process appended must not be lost without a word."""
    real = module._relocated

    def growing(pieces: Iterable[bytes], relocator: object) -> Iterator[bytes]:
        yield from real(pieces, relocator)  # type: ignore[arg-type]
        with transcript.open("ab") as file:
            file.write(b"more")

    monkeypatch.setattr(module, "_relocated", growing)
    with pytest.raises(WorkspaceError) as caught:
        relocate_file(transcript, "/b")
    assert caught.value.reason == "changed"
    assert transcript.read_bytes() == BEFORE + b"more"
    assert list(transcript.parent.iterdir()) == [transcript]


@pytest.mark.parametrize("content", [b"", BEFORE, b"".join(compressed([BEFORE * 99]))[:-1]])
def test_damaged_compression_is_refused(tmp_path: Path, content: bytes) -> None:
    """Frames that are not whole are no transcript; the file stays."""
    path = tmp_path / "s.jsonl.zst"
    path.write_bytes(content)
    with pytest.raises(SessionError) as caught:
        relocate_file(path, "/b")
    assert caught.value.reason == "corrupt"
    assert caught.value.message.startswith(str(path))
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_leaves_the_file(transcript: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the system refuses is told with the name of the file."""

    def full(*_: object) -> int:
        raise OSError(28, "full")

    monkeypatch.setattr(os, "writev", full)
    with pytest.raises(OutpostError) as caught:
        relocate_file(transcript, "/b")
    assert (caught.value.code, caught.value.reason) == ("limit", "disk_full")
    assert transcript.read_bytes() == BEFORE
    assert list(transcript.parent.iterdir()) == [transcript]
