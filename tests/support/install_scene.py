"""A sandbox with a fake npm, for installations: what npm does is a script, and what it was told is written down."""

from __future__ import annotations

import hashlib
import json
import shlex
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from host_client.agents.catalogue import Archive, Download, NpmPackage
from support.archive_server import Answer
from support.daemon import running_daemon

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from host_client.agents.catalogue import Tool
    from support.archive_server import ArchiveServer
    from support.daemon import RunningDaemon

LOCK = json.dumps(
    {
        "lockfileVersion": 3,
        "packages": {
            "": {"dependencies": {"tool": "1.2.3"}},
            "node_modules/tool": {"version": "1.2.3", "integrity": "sha512-AAAA"},
        },
    }
)

INSTALLS = """mkdir -p node_modules/.bin node_modules/tool
printf '#!/bin/sh\\necho tool "$@"\\n' > node_modules/tool/native
chmod +x node_modules/tool/native
ln -s ../tool/native node_modules/.bin/tool
"""
"""What an npm does that installs the package `tool`."""


def package(**fields: Any) -> NpmPackage:
    """Make the entry of the package `tool`."""
    return NpmPackage(**{"package": "tool", "version": "1.2.3", "program": "tool", "lock": LOCK, **fields})


def archived(
    server: ArchiveServer, content: bytes, *, path: str = "/tool", sha512: str = "", member: str = "", **answer: Any
) -> Mapping[str, Tool]:
    """Serve a download and make the catalogue that has it as `tool`, for this machine whichever it is."""
    server.answers[path] = Answer(content, **answer)
    digest = sha512 or hashlib.sha512(content).hexdigest()
    download = Download(url=server.url + path, sha512=digest, member=member)
    return {"tool": Archive(version="1", program="tool", downloads={"x86_64": download, "aarch64": download})}


class InstallScene:
    """A daemon whose processes find a fake npm first.

    Attributes:
        daemon: The daemon.
        programs: Folder in front of its PATH.
        path: Its PATH.
    """

    def __init__(self, daemon: RunningDaemon, folder: Path, path: str) -> None:
        self.daemon = daemon
        self.programs = folder / "programs"
        self.path = path
        self._told = folder / "told"
        self._told.mkdir(exist_ok=True)

    @property
    def tools(self) -> Path:
        """Where tools are installed."""
        return self.daemon.home / ".outpost-tools"

    def npm(self, script: str = INSTALLS) -> None:
        """Make npm do something, after it has written down what it was told."""
        told = f"told={shlex.quote(str(self._told))}/$$"
        says = 'pwd > "$told.cwd"; env > "$told.env"; printf "%s\\n" "$@" > "$told.argv"'
        self.program("npm", f"set -e\n{told}\n{says}\n{script}")

    def program(self, name: str, script: str, mode: int = 0o755) -> Path:
        """Put a shell script into the PATH, as a whole."""
        draft = self.programs / f".{name}"
        draft.write_text(f"#!/bin/sh\n{script}")
        draft.chmod(mode)
        return draft.rename(self.programs / name)

    def runs(self) -> Sequence[dict[str, list[str]]]:
        """Return what npm was told each time: `argv`, `env`, `cwd`, in lines."""
        found = sorted(self._told.glob("*.argv"), key=lambda path: path.stat().st_mtime_ns)
        return [
            {kind: path.with_suffix(f".{kind}").read_text().splitlines() for kind in ("argv", "env", "cwd")}
            for path in found
        ]


@contextmanager
def install_scene(folder: Path) -> Iterator[InstallScene]:
    """Start the daemon; may be repeated in the same folder, as a restart."""
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    path = f"{programs}:/usr/bin:/bin"
    with running_daemon(folder, environment={"PATH": path}) as daemon:
        yield InstallScene(daemon, folder, path)
