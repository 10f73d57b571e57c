"""Objects in a directory: modes, links, what a killed writer leaves, and what the system refuses."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import threading
from typing import TYPE_CHECKING, Any

import pytest

from host_client.errors import (
    ConfigurationError,
    LimitError,
    OutpostError,
    SessionError,
    UnavailableError,
    WorkspaceError,
)
from host_client.transports import local
from host_client.transports.frame import check_frame, check_size
from host_client.transports.local import LocalTransport, _info
from support.killed import killed_at
from support.wait import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from host_client.session.folder import Folder

pytestmark = pytest.mark.anyio

KEY = "a/b"


async def keys(transport: LocalTransport) -> list[str]:
    """Return what is listed."""
    return [found.key async for found in transport.list()]


async def test_a_directory_must_be_there(tmp_path: Path) -> None:
    """A typing mistake makes no store: every call names the directory and what to do, and creates nothing."""
    transport = LocalTransport(tmp_path / "typo")
    for call in (
        transport.read(KEY),
        transport.stat(KEY),
        transport.write(KEY, b"", if_revision=None),
        transport.remove(KEY),
        keys(transport),
    ):
        with pytest.raises(ConfigurationError) as caught:
            await call
        assert caught.value.reason == "no_such_store"
        assert str(tmp_path / "typo") in caught.value.message
        assert "mkdir" in caught.value.hint
    assert not os.listdir(tmp_path)  # noqa: PTH208  pathlib is refused in async functions


async def test_a_file_is_no_store(tmp_path: Path) -> None:
    """Neither is what is not a directory."""
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ConfigurationError) as caught:
        await LocalTransport(tmp_path / "file").read(KEY)
    assert caught.value.reason == "no_such_store"


def test_only_the_owner_reads(tmp_path: Path) -> None:
    """Files are 0600 and folders 0700, whatever the process allows."""
    before = os.umask(0)
    try:
        LocalTransport(tmp_path)._write(KEY, b"x", None)
    finally:
        os.umask(before)
    modes = {str(path.relative_to(tmp_path)): oct(path.stat().st_mode & 0o777) for path in tmp_path.rglob("*")}
    assert modes == {"a": "0o700", "a/b!": "0o600", ".drafts": "0o700", ".lock": "0o600"}


async def test_the_directory_itself_may_be_a_link(tmp_path: Path) -> None:
    """What the caller named is the caller's."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    await LocalTransport(tmp_path / "link").write(KEY, b"x", if_revision=None)
    assert (tmp_path / "real/a/b!").is_file()


@pytest.mark.parametrize("place", ["a", "a/b!", ".drafts", ".lock"])
async def test_links_below_are_refused(tmp_path: Path, place: str) -> None:
    """A link in the way is followed by nothing, and what it leads to stays as it was."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "b!").write_text("theirs")
    store = tmp_path / "store"
    store.joinpath(place).parent.mkdir(parents=True)
    store.joinpath(place).symlink_to(outside / "b!" if place in ("a/b!", ".lock") else outside)
    transport = LocalTransport(store)
    with pytest.raises(WorkspaceError) as caught:
        await transport.write(KEY, b"x", if_revision=None)
    assert caught.value.reason == "unsafe_path"
    assert [path.name for path in outside.iterdir()] == ["b!"]
    assert (outside / "b!").read_text() == "theirs"
    assert await keys(transport) == []


@pytest.mark.parametrize("place", ["a", "a/b!"])
async def test_links_are_not_read_or_removed(tmp_path: Path, place: str) -> None:
    """The same for what only looks, and what removes."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "store").mkdir()
    await LocalTransport(outside).write("b", b"theirs", if_revision=None)
    link = tmp_path / "store" / place
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(outside / "b!" if place.endswith("!") else outside)
    transport = LocalTransport(tmp_path / "store")
    for call in (transport.read(KEY), transport.stat(KEY), transport.remove(KEY)):
        with pytest.raises(WorkspaceError) as caught:
            await call
        assert caught.value.reason == "unsafe_path"
    assert await keys(transport) == []
    assert await keys(LocalTransport(outside)) == ["b"]


async def test_what_is_no_file_is_no_object(tmp_path: Path) -> None:
    """A pipe or a folder where an object belongs is refused, and never waited for."""
    (tmp_path / "a").mkdir()
    os.mkfifo(tmp_path / "a/b!")
    (tmp_path / "a/c!").mkdir()
    transport = LocalTransport(tmp_path)
    for key in (KEY, "a/c"):
        with pytest.raises(WorkspaceError) as caught:
            await transport.read(key)
        assert caught.value.reason == "not_a_file"
    assert await keys(transport) == []


async def test_foreign_files_are_not_listed(tmp_path: Path) -> None:
    """Files of others below the directory are no objects."""
    transport = LocalTransport(tmp_path)
    await transport.write(KEY, b"x", if_revision=None)
    for name in ("README", "b!~", "a/.hidden!", "lost+found/x!", ".git/x!"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("theirs")
    assert await keys(transport) == [KEY]


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (errno.ENOSPC, (LimitError, "disk_full")),
        (errno.EDQUOT, (LimitError, "disk_full")),
        (errno.EROFS, (LimitError, "read_only")),
        (errno.EMFILE, (LimitError, "descriptors")),
        (errno.EACCES, (ConfigurationError, "store_access")),
        (errno.EIO, (UnavailableError, "io")),
    ],
)
@pytest.mark.parametrize("call", ["write", "fsync", "rename"])
async def test_what_the_system_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int, expected: tuple[type[OutpostError], str]
) -> None:
    """A failure of the disk is told as what it is, with what to do; the object is as it was and no draft is left."""
    transport = LocalTransport(tmp_path)
    revision = await transport.write(KEY, b"old", if_revision=None)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, refuse)
        with pytest.raises(expected[0]) as caught:
            await transport.write(KEY, b"new", if_revision=revision)
    assert caught.value.reason == expected[1]
    assert bool(caught.value.hint) == (expected[1] in ("disk_full", "read_only"))
    found = await transport.read(KEY)
    assert found is not None
    assert (found.data, found.revision) == (b"old", revision)
    assert not list((tmp_path / ".drafts").iterdir())


def test_a_killed_writer_leaves_the_old_or_the_new(tmp_path: Path) -> None:
    """Killed at any step of a write, the object is whole, nothing else is listed, and the next write clears up."""
    step = 0
    is_killed = True
    while is_killed:
        directory = tmp_path / str(step)
        directory.mkdir()
        revision = LocalTransport(directory)._write(KEY, b"old", None)
        is_killed = killed_at(
            step, lambda at=directory, of=revision: LocalTransport(at)._write(KEY, b"new" * 1000, of), lambda _: None
        )
        transport = LocalTransport(directory)
        found = transport._read(KEY, 10_000)
        assert found is not None, step
        assert found.data in (b"old", b"new" * 1000), step
        assert is_killed or found.data != b"old"
        assert [info.key for info in transport._look(())[0]] == [KEY]
        transport._write(KEY, b"newer", found.revision)
        assert not list((directory / ".drafts").iterdir()), step
        step += 1
    assert step > 10


def test_a_killed_creation_leaves_nothing_or_all(tmp_path: Path) -> None:
    """The same where nothing was."""
    step = 0
    is_killed = True
    while is_killed:
        directory = tmp_path / str(step)
        directory.mkdir()
        is_killed = killed_at(step, lambda at=directory: LocalTransport(at)._write(KEY, b"new", None), lambda _: None)
        found = LocalTransport(directory)._read(KEY, 10_000)
        assert found is None or found.data == b"new", step
        LocalTransport(directory)._write(KEY, b"newer", found and found.revision)
        step += 1
    assert step > 10


async def test_drafts_of_the_living_stay(tmp_path: Path) -> None:
    """What another process is writing is no leftover: its lock tells."""
    (tmp_path / ".drafts").mkdir(mode=0o700)
    for name in ("dead", "living"):
        (tmp_path / ".drafts" / name).write_text("half an obj")
    with (tmp_path / ".drafts/living").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        await LocalTransport(tmp_path).write(KEY, b"x", if_revision=None)
        assert [path.name for path in (tmp_path / ".drafts").iterdir()] == ["living"]


def test_a_fork_does_not_keep_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process forked while a write holds the lock does not hold it after the write."""
    children: list[int] = []
    rename = os.rename

    def forking(*arguments: object, **keywords: object) -> None:
        child = os.fork()
        if not child:
            signal.pause()
        children.append(child)
        rename(*arguments, **keywords)  # type: ignore[arg-type]

    transport = LocalTransport(tmp_path)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(os, "rename", forking)
            revision = transport._write(KEY, b"x", None)
        transport._write(KEY, b"y", revision)
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def test_a_write_waits_for_the_lock(tmp_path: Path) -> None:
    """Names change under the lock of the store alone: while another process holds it, nothing does."""
    transport = LocalTransport(tmp_path)
    revision = transport._write(KEY, b"old", None)
    with (tmp_path / ".lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        thread = threading.Thread(target=transport._write, args=(KEY, b"new", revision))
        thread.start()
        wait_until(lambda: bool(list((tmp_path / ".drafts").iterdir())), "a draft")
        found = transport._read(KEY, 10)
        fcntl.flock(held, fcntl.LOCK_UN)
        thread.join()
    assert found is not None
    assert found.data == b"old"
    found = transport._read(KEY, 10)
    assert found is not None
    assert found.data == b"new"


async def test_the_directory_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative directory is the one that it was at first."""
    (tmp_path / "store").mkdir()
    monkeypatch.chdir(tmp_path)
    transport = LocalTransport("store")
    monkeypatch.chdir("/")
    assert transport.name == f"file://{tmp_path}/store"
    await transport.write(KEY, b"x", if_revision=None)
    assert (tmp_path / "store/a/b!").is_file()


async def test_a_file_that_grows_while_it_is_read_is_not_taken_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No more of it is in memory than shows that it is not what was looked at."""
    transport = LocalTransport(tmp_path)
    await transport.write(KEY, b"x", if_revision=None)
    size = (tmp_path / "a/b!").stat().st_size
    opened: list[int] = []

    def grow(key: str, stored_bytes: int, max_bytes: int) -> None:
        check_size(key, stored_bytes, max_bytes)
        with (tmp_path / "a/b!").open("ab") as file:
            file.write(bytes(1 << 20))

    def check_noted(key: str, header: bytes, data: bytes) -> None:
        opened.append(len(header) + len(data))
        check_frame(key, header, data)

    monkeypatch.setattr("host_client.transports.local.check_size", grow)
    monkeypatch.setattr("host_client.transports.local.check_frame", check_noted)
    with pytest.raises(SessionError) as caught:
        await transport.read(KEY)
    assert caught.value.reason == "digest_mismatch"
    assert opened == [size + 1]


async def test_folders_that_no_key_leads_to_are_not_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A listing ends soon, however deep somebody has made folders, and finds what it should on the way."""
    transport = LocalTransport(tmp_path)
    wanted = sorted(["/".join(["a"] * 256), "a/" + 300 * "b" + "/c"])
    for key in wanted:
        await transport.write(key, b"x", if_revision=None)
    for deep in (600 * "a/", "no key/at all", 300 * "b/"):
        (tmp_path / deep).mkdir(parents=True, exist_ok=True)
    looked: list[tuple[str, ...]] = []
    look_in = local._look_in

    def note(folder: Folder, names: tuple[str, ...], *rest: Any) -> None:
        looked.append(names)
        look_in(folder, names, *rest)

    monkeypatch.setattr(local, "_look_in", note)
    assert sorted(await keys(transport)) == wanted
    assert max(map(len, looked)) == 255
    assert ("no key",) not in looked


@pytest.mark.parametrize("together_count", [1, 3, 1000])
async def test_a_listing_is_whole_in_any_number_of_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, together_count: int
) -> None:
    """Wide and deep folders are listed once each, however much of them is one step."""
    monkeypatch.setattr(local, "_TOGETHER_COUNT", together_count)
    transport = LocalTransport(tmp_path)
    wanted = sorted(["top", *(f"wide/{n % 3}/{n}" for n in range(9)), *("/".join("deep" * n) for n in range(1, 4))])
    for key in wanted:
        await transport.write(key, b"x", if_revision=None)
    assert sorted(await keys(transport)) == wanted


def test_a_step_of_a_listing_is_bounded_by_empty_folders_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever makes many of them holds up no thread for long: what one step leaves is for the next ones."""
    monkeypatch.setattr(local, "_TOGETHER_COUNT", 3)
    for number in range(10):
        (tmp_path / f"empty-{number}").mkdir()
    objects, left = LocalTransport(tmp_path)._look(())
    assert (len(objects), len(left)) == (0, 7)


def test_any_time_of_a_file_is_told() -> None:
    """Some file systems keep times that are no dates; they are told as the nearest one."""
    told = [_info("key", os.stat_result((0o100600, 1, 1, 1, 0, 0, 1, 0, at, 0))).modified for at in (-(10**15), 10**15)]
    assert [time.year for time in told] == [1970, 9999]
