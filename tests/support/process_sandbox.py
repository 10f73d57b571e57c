"""Processes of a sandbox within the test's own process."""

from __future__ import annotations

import os
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from sandbox_agent.core.journal import Journal
from sandbox_agent.core.paths import Directory, Roots
from sandbox_agent.core.processes import Processes
from sandbox_agent.core.sandbox import Sandbox
from sandbox_api.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def processes_in(path: Path) -> Iterator[Processes]:
    """Give the processes of a sandbox in a folder; nothing is left of them in its state folder."""
    for name in ("home", "state"):
        (path / name).mkdir()
    home, state = os.fsencode(path / "home"), os.fsencode(path / "state")
    with Directory(os.open(state, os.O_RDONLY | os.O_DIRECTORY), state) as folder, closing(Roots([home])) as roots:
        sandbox = Sandbox(
            roots=roots, home=home, workspace=home, environment=os.environ, limits=Limits(), journal=Journal(folder)
        )
        with closing(Processes(sandbox, umask=0o022)) as processes:
            yield processes
        assert folder.names() == []
