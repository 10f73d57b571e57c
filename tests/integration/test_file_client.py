"""Files and directories to and from a real daemon: whole or not at all."""

from __future__ import annotations

import asyncio
import hashlib
import os
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from host_client.errors import (
    ConfigurationError,
    OutpostError,
    SessionError,
    WorkspaceError,
)
from host_client.sandbox.place import Place
from host_client.sandbox.sandbox import connect
from sandbox_api.limits import MIB, Limits
from support.bundle_end import PROFILE

if TYPE_CHECKING:
    from pathlib import Path

    from host_client.sandbox.progress import Progress

pytestmark = pytest.mark.anyio

PLACE = Place(PROFILE, "S1")
CONTENTS = {b"a": b"first", b"b/c": b"second" * 500_000, b"b/empty": b""}


async def test_file_goes_up_and_down(tmp_path: Path) -> None:
    """A file keeps its bytes and its owner's permission bits both ways; missing directories are made."""
    host = tmp_path / "tool"
    host.write_bytes(os.urandom(3 * MIB + 5))
    host.chmod(0o755)
    home = tmp_path / "home"
    home.mkdir()
    async with connect(f"local:{home}") as sandbox:
        await sandbox.upload(host, sandbox.home / "bin" / "deep" / "tool")
        placed = home / "bin" / "deep" / "tool"
        assert placed.read_bytes() == host.read_bytes()
        assert placed.stat().st_mode & 0o777 == 0o700
        (tmp_path / "back").write_bytes(b"old")
        await sandbox.download(sandbox.home / "bin" / "deep" / "tool", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == host.read_bytes()
    assert (tmp_path / "back").stat().st_mode & 0o777 == 0o700


async def test_directory_goes_up_and_down(tmp_path: Path) -> None:
    """All files at any depth are copied, odd names included, and progress ends complete."""
    names = ["a", "b/c", "b/[slug]", "b/d/e f", "-rf", "new\nline", ".git/config", "empty"]
    host, home = tmp_path / "tree", tmp_path / "home"
    home.mkdir()
    for name in names:
        (host / name).parent.mkdir(parents=True, exist_ok=True)
        (host / name).write_text(name if name != "empty" else "")
    told: list[Progress] = []
    async with connect(f"local:{home}") as sandbox:
        await sandbox.upload(host, sandbox.home / "tree", progress=told.append)
        assert told[-1].is_complete
        assert told[-1].files_total == len(names)
        await sandbox.download(sandbox.home / "tree", tmp_path / "back", progress=told.append)
        assert told[-1].is_complete
    for root in (home / "tree", tmp_path / "back"):
        found = {str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()}
        assert found == {name: name if name != "empty" else "" for name in names}


async def test_upload_refuses_links_and_special_files(tmp_path: Path) -> None:
    """Links and special files are refused before anything is sent, and all are named."""
    host, home = tmp_path / "tree", tmp_path / "home"
    host.mkdir()
    home.mkdir()
    (host / "a").write_text("a")
    (host / "l1").symlink_to("a")
    (host / "l2").symlink_to(tmp_path)
    async with connect(f"local:{home}") as sandbox:
        with pytest.raises(WorkspaceError) as caught:
            await sandbox.upload(host, sandbox.home / "tree")
        assert caught.value.reason == "unsafe_path"
        assert [offender.path for offender in caught.value.offenders] == [str(host / "l1"), str(host / "l2")]
        (host / "l1").unlink()
        (host / "l2").unlink()
        os.mkfifo(host / "pipe")
        with pytest.raises(WorkspaceError) as caught:
            await sandbox.upload(host, sandbox.home / "tree")
        assert caught.value.reason == "not_a_file"
        with pytest.raises(WorkspaceError) as caught:
            await sandbox.upload(tmp_path / "missing", sandbox.home / "tree")
        assert caught.value.reason == "not_found"
    assert not (home / "tree").exists()


async def test_cancelled_upload_leaves_nothing(tmp_path: Path) -> None:
    """A cancel at any time of an upload leaves no descriptor on the host and no part of a file in the sandbox."""
    host, home = tmp_path / "tree", tmp_path / "home"
    host.mkdir()
    home.mkdir()
    for number in range(20):
        (host / str(number)).write_bytes(bytes(MIB))
    async with connect(f"local:{home}") as sandbox:
        for step in range(1, 8):
            with suppress(TimeoutError):
                async with asyncio.timeout(step / 200):
                    await sandbox.upload(host, sandbox.home / "tree")
        await sandbox.upload(host, sandbox.home / "tree")
    # The daemon has ended, so what it does about a cancel is done.
    assert {path.name: path.stat().st_size for path in (home / "tree").iterdir()} == {
        str(number): MIB for number in range(20)
    }


async def test_download_leaves_nothing_half_written(tmp_path: Path) -> None:
    """A download that fails leaves the old file and no scratch file; links and limits are refused."""
    home, back = tmp_path / "home", tmp_path / "back"
    home.mkdir()
    (home / "big").write_bytes(bytes(2 * MIB))
    (home / "link").symlink_to("big")
    back.mkdir()
    (back / "big").write_text("old")
    async with connect(f"local:{home}") as sandbox:
        for name, limits, reason in (
            ("big", Limits(max_bytes=MIB), "max_bytes"),
            ("link", Limits(), "unsafe_path"),
            ("missing", Limits(), "not_found"),
        ):
            with pytest.raises(OutpostError) as caught:
                await sandbox.download(sandbox.home / name, back / "big", limits=limits)
            assert caught.value.reason == reason
        with pytest.raises(WorkspaceError) as caught:
            await sandbox.download(sandbox.home / "big", tmp_path / "nowhere" / "big")
        assert caught.value.reason == "not_found"
    assert [path.name for path in back.iterdir()] == ["big"]
    assert (back / "big").read_text() == "old"


async def test_download_follows_no_link_on_the_host(tmp_path: Path) -> None:
    """A directory of the download that is a link on the host is refused; nothing is written behind it."""
    home, back, elsewhere = tmp_path / "home", tmp_path / "back", tmp_path / "elsewhere"
    for directory in (home / "tree" / "sub", back, elsewhere):
        directory.mkdir(parents=True)
    (home / "tree" / "sub" / "file").write_text("x")
    (back / "sub").symlink_to(elsewhere)
    async with connect(f"local:{home}") as sandbox:
        with pytest.raises(WorkspaceError):
            await sandbox.download(sandbox.home / "tree", back)
    assert list(elsewhere.iterdir()) == []


async def test_files_are_told_written_read_and_removed(tmp_path: Path) -> None:
    """Each call of the file service does what it says."""
    content = tmp_path / "content"
    content.write_bytes(b"0123456789")
    home = tmp_path / "home"
    home.mkdir()
    async with connect(f"local:{home}") as sandbox:
        path = sandbox.home / "file"
        with content.open("rb") as file:
            written = await sandbox.files.write(path, file, mode=0o640, must_not_exist=True)
        assert (written.size, written.mode, written.kind) == (10, 0o640, "file")
        with content.open("rb") as file, pytest.raises(OutpostError) as caught:
            await sandbox.files.write(path, file, must_not_exist=True)
        assert (caught.value.code, caught.value.reason) == ("conflict", "exists")
        assert [info.path async for info in sandbox.files.find(sandbox.home, "f*")] == [path]
        parts: list[bytes] = []
        read = await sandbox.files.read(path, parts.append, offset=4)
        assert (b"".join(parts), read.info.size) == (b"456789", 10)
        digest, held = hashlib.sha256(), [b"012", b"3"]
        read = await sandbox.files.read(
            path,
            parts.append,
            offset=4,
            prefix_sha256=b"".join(hashlib.sha256(part).digest() for part in held),
            prefix_sizes=[len(part) for part in held],
            digest=digest,
        )
        assert (b"".join(parts), read.info.size) == (b"456789" * 2, 10)
        assert digest.digest() == hashlib.sha256(b"456789").digest()
        with pytest.raises(SessionError) as mismatch:
            await sandbox.files.read(path, parts.append, offset=4, prefix_sha256=bytes(32))
        assert mismatch.value.reason == "digest_mismatch"
        await sandbox.files.remove(path)
        with pytest.raises(WorkspaceError) as missing:
            await sandbox.files.stat(path)
        assert missing.value.reason == "not_found"


async def test_file_that_grows_while_it_is_read_is_told(tmp_path: Path) -> None:
    """A read ends at the size the file had when it was opened, and says whether there is more by then."""
    home = tmp_path / "home"
    home.mkdir()
    path = home / "log"
    path.write_bytes(bytes(20 * MIB))
    parts: list[bytes] = []

    def grow(data: bytes) -> None:
        if not parts:
            with path.open("ab") as file:
                file.write(b"more")
        parts.append(data)

    async with connect(f"local:{home}") as sandbox:
        assert not (await sandbox.files.read(sandbox.home / "log", lambda _: None)).grew
        read = await sandbox.files.read(sandbox.home / "log", grow)
        assert (read.grew, read.info.size, sum(map(len, parts))) == (True, 20 * MIB, 20 * MIB)


async def test_head_is_the_beginning_of_a_file(tmp_path: Path) -> None:
    """The first bytes of a file are read alone, and all of a file that has no more."""
    home = tmp_path / "home"
    home.mkdir()
    content = os.urandom(2 * MIB)
    (home / "big").write_bytes(content)
    (home / "empty").write_bytes(b"")
    async with connect(f"local:{home}") as sandbox:
        for max_bytes in (1, MIB + 1, 2 * MIB, 3 * MIB):
            assert await sandbox.files.head(sandbox.home / "big", max_bytes) == content[:max_bytes]
        assert await sandbox.files.head(sandbox.home / "empty", 10) == b""
        with pytest.raises(WorkspaceError) as missing:
            await sandbox.files.head(sandbox.home / "missing", 10)
        assert missing.value.reason == "not_found"
        for max_bytes in (0, -1, 1 << 64):
            with pytest.raises(ConfigurationError) as caught:
                await sandbox.files.head(sandbox.home / "big", max_bytes)
            assert caught.value.reason == "invalid_argument"


async def test_files_are_found_by_what_they_begin_with(tmp_path: Path) -> None:
    """Of the files whose names match those are told that have the bytes in their head."""
    home = tmp_path / "home"
    home.mkdir()
    for name, content in {"a": b"x needle", "b": b"none", "c": bytes(100) + b"needle"}.items():
        (home / name).write_bytes(content)
    async with connect(f"local:{home}") as sandbox:
        for head_bytes, names in ((0, ["a", "c"]), (50, ["a"])):
            found = sandbox.files.find(sandbox.home, "?", contains=b"needle", head_bytes=head_bytes)
            assert [info.path.name async for info in found] == names
        with pytest.raises(ConfigurationError) as caught:
            _ = [info async for info in sandbox.files.find(sandbox.home, "?", max_files=-1)]
        assert caught.value.reason == "invalid_argument"
