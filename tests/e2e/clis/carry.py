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


def outpost(*arguments: str) -> dict[str, Any]:
    """Run our command as a script would, and read its result."""
    command = [str(OUTPOST), *arguments, "--json"]
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=OUTPOST_SECONDS, check=False
    )
    assert done.returncode == 0, f"{command}: status {done.returncode}\n{done.stdout}\n{done.stderr}"
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def carry(program: Program, conversation_id: str, source: Sandbox, target: Sandbox, repository: Path) -> dict[str, Any]:
    """Move the conversation with our command; return what the restore says, the command that resumes included."""
    repository.mkdir(exist_ok=True)
    outpost("capture", source.target, program.name, conversation_id, "--repository", str(repository))
    restored = outpost("restore", target.target, program.name, conversation_id, "--repository", str(repository))
    assert not restored["unchanged"]
    return restored
