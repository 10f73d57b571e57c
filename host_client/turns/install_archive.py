"""Install a program that this host downloads, verifies and writes into the sandbox."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

from host_client.sandbox.task import in_thread, opened_in_thread
from host_client.turns.install_download import download
from host_client.turns.install_place import choice, usable
from host_client.turns.install_unpack import unpack

if TYPE_CHECKING:
    from pathlib import PurePosixPath

    from host_client.agents.tool import Archive
    from host_client.sandbox.sandbox import Sandbox
    from host_client.turns.install_queue import Turn

_MODE = 0o755


class ArchiveInstallation:
    """A program of an archive in one sandbox.

    The daemon writes a file whole or not at all, so that the program is there when its file is.

    Args:
        sandbox: Where.
        folder: Of this tool in this version.
        tool: The entry of the catalogue.
        platform: Machine and C library of the sandbox.
    """

    def __init__(self, sandbox: Sandbox, folder: PurePosixPath, tool: Archive, platform: tuple[str, str]) -> None:
        self._sandbox = sandbox
        self._tool = tool
        self._platform = platform
        self._program = folder / tool.program

    async def find(self) -> PurePosixPath | None:
        """Return the program when it is installed."""
        return await usable(self._sandbox, self._program)

    async def make(self, turn: Turn) -> None:
        """Download, verify, unpack and write it. Needs no network in the sandbox.

        Raises:
            ProcessError: `install_failed`.
            LimitError: `disk_full`.
            UnavailableError: `unreachable`: the turn was lost.
        """
        source = choice(self._tool.downloads, self._platform, f"{self._tool.program} {self._tool.version}")
        async with (
            opened_in_thread(tempfile.TemporaryFile) as archive,
            opened_in_thread(tempfile.TemporaryFile) as unpacked,
        ):
            await download(source, archive)
            program = unpacked if source.member else archive
            if source.member:
                await in_thread(unpack, source, archive, unpacked)
            await in_thread(program.seek, 0)
            await turn.check()
            await self._sandbox.files.write(self._program, program, mode=_MODE, make_parents=True)
