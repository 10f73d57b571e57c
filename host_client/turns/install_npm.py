"""Install an npm package in the sandbox, by the sandbox's own npm.

An installation is made in a directory that nobody else has. When it is whole, its name is written into the file
`complete` beside it, in one atomic step: only what that file names is ever used. Everything npm writes is in that
directory, and of what it is told by the repository, which is another directory, it reads nothing.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING

from host_client.errors import LimitError, OutpostError, ProcessError, UnavailableError, WorkspaceError, printable
from host_client.turns.install_place import choice, usable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import PurePosixPath

    from host_client.agents.tool import NpmPackage
    from host_client.sandbox.process_exit import Completed
    from host_client.sandbox.sandbox import Sandbox
    from host_client.turns.install_queue import Turn

INSTALL_SECONDS = 900.0
"""Longest time that npm may take."""

_HOUSEKEEPING_SECONDS = 120.0
_TAIL_BYTES = 2048
_COMPLETE = "complete"
_CACHE = "npm-cache"
_DIRECTORY = re.compile(rb"[0-9a-f]{32}")
_MAX_NAME_BYTES = 64
_NPM_CODE = re.compile(rb"^npm (?:error|ERR!) code ([A-Z0-9_]{1,32})$", re.MULTILINE)

# What npm may know of the turn's environment: how to reach its registry. Keys of the agent are none of its business.
_PASSED = frozenset(
    {"PATH", "HOME", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "SSL_CERT_DIR"}
)
_PASSED_PREFIX = "NPM_CONFIG_"

# Said in full, since the user's settings and variables could say otherwise.
_FLAGS = (
    "--global=false",
    "--workspaces=false",
    "--package-lock=true",
    "--include=prod",
    "--include=optional",
    "--install-strategy=hoisted",
    "--bin-links=true",
    "--audit=false",
    "--fund=false",
    "--update-notifier=false",
    "--progress=false",
    "--color=false",
    "--loglevel=error",
    "--fetch-retry-mintimeout=1000",
    "--fetch-retry-maxtimeout=10000",
)

_UNREACHABLE = "the sandbox must reach its npm registry; or install the tool in the sandbox's image"
_HINTS: Mapping[str, str] = {
    "EINTEGRITY": "the registry sent something else than what is pinned: do not use that registry before you know why",
    "E404": "the registry of the sandbox has not got that package in that version",
    "ETARGET": "the registry of the sandbox has not got that package in that version",
    "ENOSPC": "no space is left in the sandbox",
    **dict.fromkeys(("ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "ETIMEDOUT", "ENETUNREACH"), _UNREACHABLE),
}


class NpmInstallation:
    """A package, with all it needs, in one sandbox.

    Args:
        sandbox: Where.
        folder: Of this tool in this version.
        tool: The entry of the catalogue.
        platform: Machine and C library of the sandbox.
        variables: Environment of the turn, for PATH and the way to the registry.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        folder: PurePosixPath,
        tool: NpmPackage,
        platform: tuple[str, str],
        variables: Mapping[str, str],
    ) -> None:
        self._sandbox = sandbox
        self._folder = folder
        self._tool = tool
        self._name = f"{tool.package} {tool.version}"
        self._words: Sequence[str] = [f".bin/{tool.program}"]
        if tool.commands:
            self._words = choice(tool.commands, platform, self._name)
        self._variables = {
            name: value
            for name, value in variables.items()
            if name.upper() in _PASSED or name.upper().startswith(_PASSED_PREFIX)
        }

    async def find(self) -> PurePosixPath | None:
        """Return the program when it is installed as a whole."""
        try:
            named = await self._sandbox.files.head(self._folder / _COMPLETE, _MAX_NAME_BYTES)
        except WorkspaceError as error:
            if error.reason != "not_found":
                raise
            return None
        if not _DIRECTORY.fullmatch(named):
            return None
        return await usable(self._sandbox, self._program(self._folder / named.decode()))

    async def make(self, turn: Turn) -> None:
        """Install it.

        Raises:
            ProcessError: `no_such_program`: there is no npm; `install_failed`.
            LimitError: `disk_full`.
            UnavailableError: `unreachable`: the turn was lost.
        """
        npm = await self._sandbox.processes.find_program("npm", variables=self._variables)
        if npm is None:
            raise ProcessError(
                "no_such_program",
                f"neither {self._tool.program} is in the sandbox nor npm, which would install it",
                hint=f"put {self._tool.program}, or Node.js with npm, into the sandbox's image",
                facts={"program": "npm"},
            )
        name = uuid.uuid4().hex
        made = self._folder / name
        await turn.check()
        await self._clear()
        try:
            await self._write(made / "package.json", self._tool.manifest())
            if self._tool.lock:
                await self._write(made / "package-lock.json", self._tool.lock)
            await self._install(npm, made)
            await self._housekeeping("rm", "-rf", "--", made / _CACHE)
            await self._finish(made)
            # What the name stands for must be on the disk before the name is, also when the machine stops now.
            await self._housekeeping("sync", "-f", made)
            await self._write(self._folder / _COMPLETE, name)
        except (ProcessError, LimitError):
            with suppress(OutpostError):
                await self._housekeeping("rm", "-rf", "--", made)
            raise
        try:
            await turn.check()  # if it holds even now, nobody has begun to clear what was just shown
        except UnavailableError:
            with suppress(OutpostError):
                await self._sandbox.files.remove(self._folder / _COMPLETE)
            raise

    def _program(self, made: PurePosixPath) -> PurePosixPath:
        is_script = len(self._words) > 1
        return made / self._tool.program if is_script else made / "node_modules" / self._words[0]

    async def _clear(self) -> None:
        """Remove what earlier installations left. One that is whole is never here when another one is made."""
        try:
            await self._sandbox.files.remove(self._folder / _COMPLETE)
        except WorkspaceError as error:
            if error.reason != "not_found":
                raise
        await self._housekeeping("rm", "-rf", "--", self._folder)

    async def _install(self, npm: PurePosixPath, made: PurePosixPath) -> None:
        # Its directory and not --prefix, which would hide the settings that the sandbox's operator gave to its npm.
        argv: list[str] = [str(npm), "ci" if self._tool.lock else "install"]
        argv += [f"--cache={made / _CACHE}", f"--ignore-scripts={'false' if self._tool.allow_scripts else 'true'}"]
        done = await self._sandbox.run(
            [*argv, *_FLAGS], cwd=made, variables=self._variables, deadline_seconds=INSTALL_SECONDS
        )
        if not done.exit.ok:
            raise self._failure(done)

    async def _finish(self, made: PurePosixPath) -> None:
        """Write the script that starts a program in two words, and see that there is a program."""
        program = self._program(made)
        if len(self._words) > 1:
            words = [shlex.quote(str(made / "node_modules" / word)) for word in self._words]
            await self._write(program, f'#!/bin/sh\nexec {" ".join(words)} "$@"\n', mode=0o755)
        for word in self._words[:1]:
            if await usable(self._sandbox, made / "node_modules" / word) is None:
                raise ProcessError(
                    "install_failed",
                    f"npm installed {self._name} without {word}, which starts it",
                    hint="its package may need an install script, or may not be made for this platform",
                )

    async def _housekeeping(self, *argv: str | PurePosixPath) -> None:
        """Run a small program; that it fails, or is not there, leaves things as right as they were."""
        try:
            await self._sandbox.run(
                list(map(str, argv)), cwd=self._sandbox.home, deadline_seconds=_HOUSEKEEPING_SECONDS
            )
        except ProcessError as error:
            if error.reason == "unknown":
                raise

    async def _write(self, path: PurePosixPath, text: str, *, mode: int = 0o600) -> None:
        await self._sandbox.files.write(path, io.BytesIO(os.fsencode(text)), mode=mode, make_parents=True)

    def _failure(self, done: Completed) -> ProcessError:
        found = _NPM_CODE.findall(done.stderr)
        code = found[0].decode() if found else ""
        ended = done.exit
        how = f"status {ended.status}" if not ended.signal else f"signal {ended.signal}"
        if ended.cause == "deadline":
            how = f"it took longer than {INSTALL_SECONDS:.0f} s"
        facts = {"status": str(ended.status), "signal": str(ended.signal), "npm_code": code}
        return ProcessError(
            "install_failed",
            f"npm could not install {self._name}: {code or how}",
            hint=_HINTS.get(code, ""),
            facts={**facts, "stderr": printable(b" ".join(done.stderr.split()))[-_TAIL_BYTES:]},
        )
