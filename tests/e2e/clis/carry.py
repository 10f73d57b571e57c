"""Move a conversation between two places of one machine with the `outpost` command, as a script would."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.clis.program import Program

OUTPOST = Path(sys.executable).with_name("outpost")
OUTPOST_SECONDS = 60


@dataclass(frozen=True)
class Sandbox:
    """A home and a workspace of one machine."""

    home: Path
    workspace: Path

    @property
    def target(self) -> str:
        """Name it as the command line does."""
        return f"local:{self.home},{self.workspace}"


def new_sandbox(program: Program, home: Path, workspace: Path) -> Sandbox:
    """Make a home in which the program talks to the stub, and a workspace that is a repository."""
    home.mkdir(parents=True)
    workspace.mkdir(parents=True)
    subprocess.run(["git", "init", "--quiet", str(workspace)], check=True, env={"PATH": "/usr/bin:/bin"})
    program.configure(home)
    return Sandbox(home, workspace)


def outpost(home: Path, *arguments: str) -> dict[str, Any]:
    """Run our command as a script of the user with that home would, and read its result."""
    command = [str(OUTPOST), *arguments, "--json"]
    environment = {"HOME": str(home), "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=OUTPOST_SECONDS, check=False
    )
    assert done.returncode == 0, f"{command}: status {done.returncode}\n{done.stdout}\n{done.stderr}"
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def carry(program: Program, conversation_id: str, source: Sandbox, target: Sandbox, host: Path) -> dict[str, Any]:
    """Move the conversation with our command; return what the restore says, the command that resumes included.

    Args:
        program: Whose conversation it is.
        conversation_id: Its id.
        source: Where it is.
        target: Where it goes.
        host: Folder of what the user of our command has: a home and a repository, which keep it on the way.
    """
    home, repository = host / "home", host / "repository"
    for folder in (home, repository):
        folder.mkdir(parents=True, exist_ok=True)
    kept = [program.name, conversation_id, "--repository", str(repository)]
    outpost(home, "capture", source.target, *kept)
    return outpost(home, "restore", target.target, *kept)
