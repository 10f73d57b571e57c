"""Lines added to a file that others share: none twice, none of others changed, one write."""

from __future__ import annotations

import os
import tracemalloc
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_agent.core import file_set_append
from sandbox_agent.core.file_set_append import append_lines, check_lines
from sandbox_agent.core.paths import Directory
from sandbox_api.errors import LimitError, SessionError, UnavailableError, WorkspaceError

if TYPE_CHECKING:
    from pathlib import Path

_LINES = st.lists(st.binary(max_size=5).map(lambda line: line.replace(b"\n", b"\r")), max_size=6)


def _append(folder: Path, data: bytes, name: str = "shared", *, durable: bool = False) -> bool:
    with Directory(os.open(folder, os.O_RDONLY), os.fsencode(folder)) as home:
        return append_lines(home, name.encode(), data, None, durable=durable)


@given(there=_LINES, is_torn=st.booleans(), wanted=_LINES, piece_bytes=st.integers(1, 8))
def test_exactly_the_missing_lines_are_added(
    tmp_path_factory: pytest.TempPathFactory,
    there: list[bytes],
    wanted: list[bytes],
    piece_bytes: int,
    *,
    is_torn: bool,
) -> None:
    """Whatever is there stays in front; behind it come the lines that lack, each once and whole, in their order."""
    folder = tmp_path_factory.mktemp("home")
    content = b"".join(line + b"\n" for line in there)
    content = content[:-1] if is_torn else content
    (folder / "shared").write_bytes(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_set_append, "_PIECE_BYTES", piece_bytes)
        is_made = _append(folder, b"".join(line + b"\n" for line in wanted))
    after = (folder / "shared").read_bytes()
    lacking = [line for line in dict.fromkeys(wanted) if line not in content.split(b"\n")[: _count(content)]]
    end = b"\n" if lacking and content and not content.endswith(b"\n") else b""
    assert after == content + end + b"".join(line + b"\n" for line in lacking)
    assert not is_made


def _count(content: bytes) -> int:
    """Return how many lines a content has, a last one without its newline included."""
    return content.count(b"\n") + (not content.endswith(b"\n") and content != b"")


def test_file_that_is_too_large_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sparse file without an end, or one that grows as fast as it is read, does not hold its home for good."""
    monkeypatch.setattr(file_set_append, "MAX_SHARED_BYTES", 3 << 20)
    with (tmp_path / "shared").open("wb") as file:
        file.truncate(1 << 42)
    with pytest.raises(LimitError) as caught:
        _append(tmp_path, b"line\n")
    assert (caught.value.reason, caught.value.facts) == ("max_bytes", {"max_bytes": str(3 << 20)})
    assert (tmp_path / "shared").stat().st_size == 1 << 42


@pytest.mark.parametrize("durable", [False, True])
def test_missing_file_is_made(tmp_path: Path, *, durable: bool) -> None:
    """A file that is missing is made, private, with its directories."""
    assert _append(tmp_path, b"a\nb\n", "x/y/shared", durable=durable)
    assert (tmp_path / "x/y/shared").read_bytes() == b"a\nb\n"
    assert (tmp_path / "x/y/shared").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o700


def test_mode_and_inode_stay(tmp_path: Path) -> None:
    """The file is written into, not replaced: who has it open goes on with the same."""
    (tmp_path / "shared").write_bytes(b"a\n")
    (tmp_path / "shared").chmod(0o644)
    inode = (tmp_path / "shared").stat().st_ino
    _append(tmp_path, b"b\n")
    status = (tmp_path / "shared").stat()
    assert (status.st_ino, status.st_mode & 0o777) == (inode, 0o644)


def test_all_lines_go_by_one_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newline that the last line lacks and all lines after it are one write: others' come before or after."""
    (tmp_path / "shared").write_bytes(b"a")
    written = []
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: (written.append(bytes(data)), real(fd, data))[1])
    _append(tmp_path, b"b\nc\n")
    assert written == [b"\nb\nc\n"]


def test_disk_that_takes_only_a_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written of the lines is taken back: no line is torn, and the failure is that of a full disk."""
    (tmp_path / "shared").write_bytes(b"a\n")
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[:3]))
    for name in ("shared", "missing"):
        with pytest.raises(OSError, match="No space left"):
            _append(tmp_path, b"b\nc\n", name)
    assert (tmp_path / "shared").read_bytes() == b"a\n"
    assert not (tmp_path / "missing").exists()


def test_part_behind_which_somebody_has_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What others have added since is not cut off to take a part back."""
    (tmp_path / "shared").write_bytes(b"a\n")
    real = os.write

    def interrupted(fd: int, data: bytes) -> int:
        count = real(fd, data[:2])
        with (tmp_path / "shared").open("ab") as other:
            other.write(b"other\n")
        return count

    monkeypatch.setattr(os, "write", interrupted)
    with pytest.raises(UnavailableError) as caught:
        _append(tmp_path, b"b\nc\n")
    assert caught.value.reason == "io"
    assert (tmp_path / "shared").read_bytes() == b"a\nb\nother\n"


def test_file_with_another_name(tmp_path: Path) -> None:
    """A file that may also be a file outside the home is not written into."""
    (tmp_path / "outside").write_bytes(b"kept\n")
    (tmp_path / "home").mkdir()
    (tmp_path / "home/shared").hardlink_to(tmp_path / "outside")
    with pytest.raises(WorkspaceError) as caught:
        _append(tmp_path / "home", b"b\n")
    assert caught.value.reason == "unsafe_path"
    assert (tmp_path / "outside").read_bytes() == b"kept\n"


def test_what_is_no_file(tmp_path: Path) -> None:
    """A FIFO is refused and does not make the caller wait; a link is not followed."""
    os.mkfifo(tmp_path / "shared")
    with pytest.raises(WorkspaceError) as caught:
        _append(tmp_path, b"b\n")
    assert caught.value.reason == "not_a_file"
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        _append(tmp_path, b"b\n", "link")
    assert not (tmp_path / "elsewhere").exists()


def test_long_lines_of_others_cost_no_memory(tmp_path: Path) -> None:
    """A line of others that is longer than any looked for is passed over without being held."""
    (tmp_path / "shared").write_bytes(b"x" * (64 << 20) + b"\na\n")
    tracemalloc.start()
    try:
        _append(tmp_path, b"a\nb\n")
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 8 << 20
    assert (tmp_path / "shared").stat().st_size == (64 << 20) + 5


def test_lines_that_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Content without a last newline is no lines, and there is a limit to what is held in memory."""
    with pytest.raises(SessionError) as caught:
        check_lines(b"x", b"a\nb")
    assert caught.value.reason == "protocol"
    for name, most in (("MAX_APPEND_BYTES", 3), ("MAX_APPEND_COUNT", 1)):
        with monkeypatch.context() as patch:
            patch.setattr(file_set_append, name, most)
            with pytest.raises(LimitError) as limit:
                check_lines(b"x", b"a\nb\n")
        assert limit.value.reason == "max_bytes"
    check_lines(b"x", b"")
