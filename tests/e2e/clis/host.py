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


class Host:
    """The user of our command: a home and a repository, which keep conversations on their way.

    Args:
        program: Whose conversations they are.
        folder: Of both.

    Attributes:
        own: Both, where the user may run the program as well.
    """

    def __init__(self, program: Program, folder: Path) -> None:
        self._program = program
        self.own = new_sandbox(program, folder / "home", folder / "repository")

    def capture(self, conversation_id: str, source: Sandbox) -> dict[str, Any]:
        """Take a conversation out of a sandbox."""
        return self._result("capture", source, conversation_id)

    def restore(self, conversation_id: str, target: Sandbox) -> dict[str, Any]:
        """Put it in another; return what the command says, the command that resumes included."""
        return self._result("restore", target, conversation_id)

    def carry(self, conversation_id: str, source: Sandbox, target: Sandbox) -> dict[str, Any]:
        """Do both."""
        self.capture(conversation_id, source)
        return self.restore(conversation_id, target)

    def refusal(self, conversation_id: str, target: Sandbox) -> str:
        """Try to put it in another, which must be refused; return the reason."""
        done = self._run("restore", target, conversation_id)
        assert done.returncode, f"it was not refused: {done.stdout}"
        return str(json.loads(done.stdout)["error"]["reason"])

    def _result(self, action: str, sandbox: Sandbox, conversation_id: str) -> dict[str, Any]:
        done = self._run(action, sandbox, conversation_id)
        assert done.returncode == 0, f"{done.args}: status {done.returncode}\n{done.stdout}\n{done.stderr}"
        result: dict[str, Any] = json.loads(done.stdout)
        return result

    def _run(self, action: str, sandbox: Sandbox, conversation_id: str) -> subprocess.CompletedProcess[str]:
        kept = [self._program.name, conversation_id, "--repository", str(self.own.workspace)]
        return subprocess.run(
            [str(OUTPOST), action, sandbox.target, *kept, "--json"],
            env={"HOME": str(self.own.home), "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"},
            capture_output=True,
            text=True,
            timeout=OUTPOST_SECONDS,
            check=False,
        )
