"""Watches tell each subscriber what to look at, and cost nothing once nobody watches."""

from __future__ import annotations

import errno
import os
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import pytest

from sandbox_agent.core import syscall
from sandbox_agent.core.inotify import Subscription, Watches
from support.following import deliver

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def watches() -> Iterator[Watches]:
    """Hold one instance."""
    with closing(Watches()) as held:
        yield held


@contextmanager
def opened(path: Path) -> Iterator[int]:
    """Hold a descriptor of a file or directory."""
    fd = os.open(path, os.O_RDONLY)
    try:
        yield fd
    finally:
        os.close(fd)


def subscribe(watches: Watches) -> tuple[Subscription, list[str]]:
    """Return a subscription and the list that each wake of it is noted in."""
    woken: list[str] = []
    return watches.subscribe(lambda: woken.append("woken")), woken


def test_a_file_that_grows_is_told(watches: Watches, tmp_path: Path) -> None:
    """By its key, once however often it changed, to those that watch it."""
    (tmp_path / "a").touch()
    (one, one_woken), (two, two_woken) = subscribe(watches), subscribe(watches)
    with opened(tmp_path / "a") as fd:
        one.watch_file(fd, (0, b"a"))
    for data in (b"1", b"2"):
        (tmp_path / "a").write_bytes(data)
    assert deliver(watches)
    assert (one.take(), one.take()) == ({(0, b"a")}, set())
    assert two.take() == set()
    assert (bool(one_woken), two_woken) == (True, [])


@pytest.mark.parametrize("change", ["create", "remove", "rename", "come", "go"])
def test_a_folder_whose_names_change_is_told(watches: Watches, tmp_path: Path, change: str) -> None:
    """Whatever comes, goes or gets another name; not what the files in it gain."""
    folder = tmp_path / "folder"
    folder.mkdir()
    for path in (folder / "a", tmp_path / "b"):
        path.touch()
    subscription, woken = subscribe(watches)
    with opened(folder) as fd:
        subscription.watch_folder(fd, (0, b"folder"))
    (folder / "a").write_bytes(b"more")
    assert not deliver(watches)
    actions = {
        "create": (folder / "c").touch,
        "remove": (folder / "a").unlink,
        "rename": lambda: (folder / "a").rename(folder / "c"),
        "come": lambda: (tmp_path / "b").rename(folder / "b"),
        "go": lambda: (folder / "a").rename(tmp_path / "a"),
    }
    actions[change]()
    assert deliver(watches)
    assert subscription.take() == {(0, b"folder")}
    assert woken


def test_what_is_watched_is_the_descriptor(watches: Watches, tmp_path: Path) -> None:
    """A name that was swapped since the open leads nowhere."""
    for name in ("a", "b"):
        (tmp_path / name).touch()
    subscription, _ = subscribe(watches)
    with opened(tmp_path / "a") as fd:
        (tmp_path / "a").rename(tmp_path / "c")
        (tmp_path / "a").symlink_to("b")
        subscription.watch_file(fd, (0, b"a"))
    (tmp_path / "b").write_bytes(b"x")
    assert not deliver(watches)
    (tmp_path / "c").write_bytes(b"x")
    assert deliver(watches)


def test_another_file_under_the_same_key(watches: Watches, tmp_path: Path) -> None:
    """It takes the place of the one before."""
    subscription, _ = subscribe(watches)
    for name in ("a", "b"):
        (tmp_path / name).touch()
        with opened(tmp_path / name) as fd:
            subscription.watch_file(fd, (0, b"key"))
    deliver(watches)
    subscription.take()
    (tmp_path / "a").write_bytes(b"x")
    assert not deliver(watches)
    (tmp_path / "b").write_bytes(b"x")
    deliver(watches)
    assert subscription.take() == {(0, b"key")}


def test_a_watch_that_two_share_ends_with_the_last(watches: Watches, tmp_path: Path) -> None:
    """One subscriber that leaves does not make the other deaf; after the last nothing is told."""
    (tmp_path / "a").touch()
    (one, _), (two, _) = subscribe(watches), subscribe(watches)
    with opened(tmp_path / "a") as fd:
        one.watch_file(fd, (0, b"a"))
        two.watch_file(fd, (1, b"b"))
    one.close()
    (tmp_path / "a").write_bytes(b"x")
    deliver(watches)
    assert (one.take(), two.take()) == (set(), {(1, b"b")})
    two.forget((1, b"b"))
    deliver(watches)
    (tmp_path / "a").write_bytes(b"y")
    assert not deliver(watches)
    assert not watches._watched


def test_a_file_that_is_no_more(watches: Watches, tmp_path: Path) -> None:
    """Its end is told, and its key can be used again."""
    subscription, _ = subscribe(watches)
    for _ in range(2):
        (tmp_path / "a").touch()
        with opened(tmp_path / "a") as fd:
            subscription.watch_file(fd, (0, b"a"))
        (tmp_path / "a").unlink()
        deliver(watches)
        assert subscription.take() == {(0, b"a")}
    assert (subscription.numbers, watches._watched) == ({}, {})


def test_more_events_than_the_kernel_keeps(watches: Watches, tmp_path: Path) -> None:
    """Everybody is told to look at everything."""
    with open("/proc/sys/fs/inotify/max_queued_events", encoding="ascii") as file:  # noqa: PTH123
        most_count = int(file.read())
    (busy, _), (idle, idle_woken) = subscribe(watches), subscribe(watches)
    for name in ("a", "b"):
        (tmp_path / name).touch()
        with opened(tmp_path / name) as fd:
            busy.watch_file(fd, (0, name.encode()))
    with (tmp_path / "a").open("ab", 0) as one, (tmp_path / "b").open("ab", 0) as two:
        for _ in range(most_count // 2 + 1):  # two in turn: the kernel merges events that are alike
            one.write(b"x")
            two.write(b"x")
    deliver(watches)
    assert (busy.take(), idle.take()) == (None, None)
    assert idle_woken
    assert idle.take() == set()


def test_a_watch_that_the_kernel_refuses(watches: Watches, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The subscriber is told that it is not told everything."""

    def refused(*_: object) -> int:
        raise OSError(errno.ENOSPC, "no more watches")

    monkeypatch.setattr(syscall, "inotify_add_watch", refused)
    subscription, _ = subscribe(watches)
    assert subscription.is_complete
    with opened(tmp_path) as fd:
        subscription.watch_folder(fd, (0, b""))
    assert not subscription.is_complete
    subscription.close()
