"""The host's folder and its scratch files, when others meddle."""

from __future__ import annotations

import fcntl
import os
import shutil
from typing import TYPE_CHECKING

import pytest

from host_client.session import folder as folder_module
from host_client.session.folder import Folder, Scratch
from sandbox_api.errors import OutpostError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_a_base_that_is_not_there_is_told(tmp_path: Path) -> None:
    """The directory the caller named is never created: a typing mistake must not become a folder."""
    with pytest.raises(OutpostError) as caught:
        Folder.open(tmp_path / "typo", (".outpost",), create=True)
    assert (caught.value.code, caught.value.reason) == ("workspace", "not_found")
    assert not (tmp_path / "typo").exists()


def test_the_base_itself_may_be_a_link(tmp_path: Path) -> None:
    """What the caller named is the caller's: a link there is followed."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with Folder.open(tmp_path / "link", ("a", "b"), create=True):
        assert (tmp_path / "real/a/b").is_dir()


def test_a_folder_below_has_a_life_of_its_own(tmp_path: Path) -> None:
    """What is opened below a held folder is made where that lies by now, and neither closes the other."""
    (tmp_path / "old").mkdir()
    with Folder.open(tmp_path / "old", (), create=False) as folder:
        (tmp_path / "old").rename(tmp_path / "new")
        with folder.below(("a", "b"), create=True) as below:
            assert below.identity("c") is None
        assert folder.identity("a") is not None
        with pytest.raises(OutpostError) as caught:
            folder.below(("a", "typo"), create=False)
    assert caught.value.reason == "not_found"
    assert (tmp_path / "new/a/b").is_dir()


def test_names_are_all_there_while_another_thread_lists(tmp_path: Path) -> None:
    """What another thread has read of the same descriptor takes no name away."""
    (tmp_path / "one").touch()
    (tmp_path / "two").touch()
    with Folder.open(tmp_path, (), create=False) as folder, os.scandir(folder.fd) as others:
        next(others)
        assert sorted(folder.names()) == ["one", "two"]


def test_a_file_in_the_way_is_told(tmp_path: Path) -> None:
    """A file where a folder must be is named, and stays."""
    (tmp_path / ".outpost").write_text("mine")
    with pytest.raises(OutpostError) as caught:
        Folder.open(tmp_path, (".outpost", "conversations"), create=True)
    assert caught.value.code == "workspace"
    assert (tmp_path / ".outpost").read_text() == "mine"


def test_a_scratch_file_swept_before_its_lock_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When a sweep takes the new scratch file for a dead one, its writer notices and makes another."""
    real: Callable[[int, int], None] = fcntl.flock
    swept: list[str] = []

    def flock(fd: int, operation: int) -> None:
        if not swept:
            (path,) = tmp_path.iterdir()
            path.unlink()
            swept.append(path.name)
        real(fd, operation)

    monkeypatch.setattr(folder_module.fcntl, "flock", flock)
    with Folder.open(tmp_path, (), create=False) as folder:
        scratch = Scratch(folder, "S1.json")
        (path,) = tmp_path.iterdir()
        assert path.name not in swept
        os.write(scratch.fd, b"whole")
        scratch.place(durable=True)
    assert (tmp_path / "S1.json").read_bytes() == b"whole"


def test_two_writers_do_not_sweep_each_other(tmp_path: Path) -> None:
    """A scratch file whose writer lives stays, and each writer removes its own."""
    with Folder.open(tmp_path, (), create=False) as folder:
        first, second = Scratch(folder, "S1.json"), Scratch(folder, "S1.json")
        assert len(list(tmp_path.iterdir())) == 2
        first.discard()
        assert len(list(tmp_path.iterdir())) == 1
        second.discard()
        second.discard()
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_gone_does_not_hide_the_first_error(tmp_path: Path) -> None:
    """Discarding a scratch file whose folder somebody removed is no error of its own."""
    (tmp_path / "kept").mkdir()
    with Folder.open(tmp_path, ("kept",), create=False) as folder:
        scratch = Scratch(folder, "S1.json")
        shutil.rmtree(tmp_path / "kept")
        scratch.discard()
