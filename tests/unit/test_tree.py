"""What was pinned is what is read, and any change to it is told."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from sandbox_api.errors import SessionError
from support.sandbox import walked, write

if TYPE_CHECKING:
    from pathlib import Path

    from sandbox_agent.core.tree import Tree


def changed(tree: Tree) -> list[tuple[str, str]]:
    """Return what a tree says has changed."""
    with pytest.raises(SessionError) as caught:
        tree.check_unchanged()
    assert caught.value.reason == "changed"
    return [(offender.path, offender.problem) for offender in caught.value.offenders]


def test_reads_in_pieces_with_room(tmp_path: Path) -> None:
    """Pieces have at most the room there is, from `start` to `end`."""
    write(tmp_path, {"a": b"0123456789"})
    with walked(tmp_path) as tree:
        (pin,) = tree.pins
        assert list(tree.read(pin, lambda: 4)) == [b"0123", b"4567", b"89"]
        assert list(tree.read(pin, lambda: 4, start=7)) == [b"789"]
        assert list(tree.read(pin, end=3)) == [b"012"]
        assert list(tree.read(pin, start=10)) == []


@pytest.mark.parametrize("how", ["grow", "shrink", "rewrite", "replace", "remove", "link", "fifo", "parent"])
def test_a_changed_file_is_never_read_as_the_pinned_one(tmp_path: Path, how: str) -> None:
    """Whatever became of a file after it was pinned, opening it is `changed`, and so is the final check."""
    write(tmp_path, {"d/a": b"0123456789", "d/z": b""})
    path = tmp_path / "d" / "a"
    with walked(tmp_path) as tree:
        pin = tree.pins[0]
        if how == "grow":
            with path.open("ab") as file:
                file.write(b"x")
        elif how == "shrink":
            os.truncate(path, 5)
        elif how == "rewrite":
            status = path.stat()
            path.write_bytes(b"9876543210")
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        elif how == "replace":
            path.rename(tmp_path / "d" / "z")
            path.write_bytes(b"0123456789")
        elif how == "parent":
            (tmp_path / "d").rename(tmp_path / "e")
            (tmp_path / "d").symlink_to("e")
        else:
            path.unlink()
            if how == "link":
                path.symlink_to("z")
            elif how == "fifo":
                os.mkfifo(path)
        for read in (tree.read_whole, lambda pin: list(tree.read(pin)), tree.open):
            with pytest.raises(SessionError) as caught:
                read(pin)
            assert (caught.value.reason, caught.value.offenders[0].path) == ("changed", "d/a")
            assert caught.value.retryable
        assert changed(tree)


@pytest.mark.parametrize("how", ["grow", "shrink", "rewrite"])
def test_a_change_during_the_read_ends_it_with_the_failure(tmp_path: Path, how: str) -> None:
    """A file that grows, shrinks or is rewritten under the reader is `changed`, never a short or longer read."""
    write(tmp_path, {"a": b"0123456789"})
    with walked(tmp_path) as tree:
        (pin,) = tree.pins
        reading = tree.read(pin, lambda: 4)
        got = next(reading)
        if how == "shrink":
            os.truncate(tmp_path / "a", 4)
        else:
            with (tmp_path / "a").open("ab" if how == "grow" else "r+b") as file:
                file.write(b"more")
        with pytest.raises(SessionError) as caught:
            got += b"".join(reading)
        assert caught.value.reason == "changed"
        assert len(got) < pin.size


def test_the_final_check_names_all_changes(tmp_path: Path) -> None:
    """Entries that changed, vanished or appeared are all named; what is not selected may come and go."""
    write(tmp_path, {"a": b"1", "b": b"2", "d/c": b"3", "e/f": b"4", "g/h": b"5", "x.lock": b""})
    with walked(tmp_path) as tree:
        (tmp_path / "x.lock").unlink()
        (tmp_path / "y.lock").touch()
        tree.check_unchanged()
        (tmp_path / "a").write_bytes(b"changed")
        (tmp_path / "b").unlink()
        (tmp_path / "d" / "new").touch()
        (tmp_path / "e" / "f").unlink()
        (tmp_path / "e").rmdir()
        (tmp_path / "g").rename(tmp_path / "g.lock")
        write(tmp_path, {"g/h": b"5"})
        assert changed(tree) == [
            ("a", "changed while it was read"),
            ("b", "vanished while it was read"),
            ("d/new", "appeared while the session was read"),
            ("e", "is no directory any more"),
            ("e", "vanished while it was read"),
            ("g", "is another directory now"),
        ]


def test_the_tree_outlives_the_handle_it_was_made_from(tmp_path: Path) -> None:
    """A tree has its own handle: a session that is renamed is still read from the directory that was walked."""
    session = tmp_path / "session"
    write(session, {"a/b": b"1"})
    with walked(session) as tree:
        session.rename(tmp_path / "moved")
        assert tree.read_whole(tree.pins[0]) == b"1"
        tree.check_unchanged()
        assert tree.identity == ((tmp_path / "moved").stat().st_dev, (tmp_path / "moved").stat().st_ino)
