"""Programs of archives: downloaded by the host, verified, and written into the sandbox in one step."""

from __future__ import annotations

import io
import tarfile
from typing import TYPE_CHECKING

import pytest

from host_client import connect
from host_client.errors import ProcessError
from host_client.turns.install import ensure
from support.archive_server import archive_server
from support.install_scene import archived, install_scene

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.archive_server import ArchiveServer
    from support.install_scene import InstallScene

pytestmark = pytest.mark.anyio

PROGRAM = b"#!/bin/sh\necho program\n"


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[InstallScene]:
    """A daemon of this test alone; no npm of it is asked."""
    with install_scene(tmp_path) as made:
        made.npm("exit 1")
        yield made


@pytest.fixture
def server() -> Iterator[ArchiveServer]:
    """A web server of this test alone."""
    with archive_server() as serving:
        yield serving


def archive() -> bytes:
    """Make an archive with the program and something else."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as opened:
        for name, content in (("pkg/README", b"read"), ("pkg/tool", PROGRAM)):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            opened.addfile(member, io.BytesIO(content))
    return made.getvalue()


@pytest.mark.parametrize("kind", ["archive", "program"])
async def test_a_program_is_installed_once(scene: InstallScene, server: ArchiveServer, kind: str) -> None:
    """It can be run, nothing else is there, and the next turn downloads nothing."""
    is_archive = kind == "archive"
    content, path, member = (archive(), "/tool.tar.gz", "pkg/tool") if is_archive else (PROGRAM, "/tool", "")
    tools = archived(server, content, path=path, member=member)
    async with connect(scene.daemon.target) as sandbox:
        program = await ensure(sandbox, "tool", "tool", catalogue=tools)
        assert (await sandbox.run([program])).check().stdout == b"program\n"
        assert await ensure(sandbox, "tool", "tool", catalogue=tools) == program
    assert server.asked == [path]
    assert [str(each) for each in scene.tools.rglob("*") if each.is_file()] == [program]


async def test_a_wrong_digest_reaches_nothing(scene: InstallScene, server: ArchiveServer) -> None:
    """Nothing of it comes into the sandbox; the right one is installed afterwards."""
    async with connect(scene.daemon.target) as sandbox:
        with pytest.raises(ProcessError) as failure:
            await ensure(sandbox, "tool", "tool", catalogue=archived(server, PROGRAM, sha512="ab" * 64))
        assert failure.value.reason == "install_failed"
        assert not scene.tools.exists()
        program = await ensure(sandbox, "tool", "tool", catalogue=archived(server, PROGRAM))
        assert (await sandbox.run([program])).check().stdout == b"program\n"


async def test_a_program_that_lost_its_mode_is_installed_again(scene: InstallScene, server: ArchiveServer) -> None:
    """What cannot be run is as good as missing, below our own folder."""
    tools = archived(server, PROGRAM)
    async with connect(scene.daemon.target) as sandbox:
        program = await ensure(sandbox, "tool", "tool", catalogue=tools)
        (scene.tools / program).chmod(0o644)
        assert await ensure(sandbox, "tool", "tool", catalogue=tools) == program
        assert (await sandbox.run([program])).check().stdout == b"program\n"
