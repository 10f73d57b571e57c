"""One way to drive each real CLI: a fresh home, nothing of the machine's own, a time limit, the stub as its model."""

import json
import os
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from e2e.clis.install import installed
from host_client.agents import copilot, kimi
from support.stub_model.conversation import Message

TURN_SECONDS = 90


class Program(ABC):
    """A CLI of one version.

    Attributes:
        name: Name of the format, and of the program in a resume command.
        path: Folders of the PATH it runs with, besides the system's.
        begin: Words that come after the program to begin a conversation.
    """

    name: str
    path: tuple[Path, ...] = ()
    begin: Sequence[str] = ()

    def __init__(self, model_url: str) -> None:
        self._folder = installed(self.name, self.finish)
        self._model_url = model_url

    @abstractmethod
    def finish(self, folder: Path) -> None:
        """Do once, in a fresh installation, what the CLI would else do in each home."""

    @abstractmethod
    def configure(self, home: Path) -> None:
        """Write what the CLI needs in a fresh home to talk to the stub."""

    @abstractmethod
    def resume_command(self, conversation_id: str, workspace: PurePosixPath) -> list[str]:
        """Give the format's own command that resumes."""

    @abstractmethod
    def variables(self) -> Mapping[str, str]:
        """Give the CLI's own environment."""

    @abstractmethod
    def executable(self) -> Sequence[str]:
        """Give the command that stands for the program's name."""

    @abstractmethod
    def flags(self, prompt: str) -> list[str]:
        """Give what every turn without a terminal needs, the prompt included."""

    @abstractmethod
    def told_place(self, messages: Sequence[Message]) -> str:
        """Join what tells the model where it is now, from a request."""

    @abstractmethod
    def conversation_id(self, printed: Sequence[Mapping[str, Any]]) -> str:
        """Find the conversation's id in what a turn printed."""

    def turn(self, home: Path, workspace: Path, prompt: str, *, resume: Sequence[str] = ()) -> str:
        """Run one turn to its end and return the conversation's id.

        Args:
            home: HOME of the CLI.
            workspace: Where it runs.
            prompt: What the user says.
            resume: The command that resumes, as a restore gave it; empty: a new conversation.
        """
        assert not resume or resume[0] == self.name
        words = resume[1:] if resume else self.begin
        printed = self._run([*self.executable(), *words, *self.flags(prompt)], home, workspace)
        return self.conversation_id(list(_objects(printed)))

    def environment(self, home: Path) -> dict[str, str]:
        """Give everything the CLI sees, and nothing of the machine's own."""
        return {
            "HOME": str(home),
            "PATH": os.pathsep.join([*map(str, self.path), "/usr/local/bin", "/usr/bin", "/bin"]),
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "CI": "true",
            **self.variables(),
        }

    def _run(self, command: Sequence[str], home: Path, workspace: Path) -> str:
        process = subprocess.Popen(
            command,
            cwd=workspace,
            env=self.environment(home),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        with process:
            try:
                out, err = process.communicate(timeout=TURN_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        assert process.returncode == 0, f"{command}: status {process.returncode}\n{out[-2000:]}\n{err[-2000:]}"
        return out


class Copilot(Program):
    """GitHub Copilot CLI 1.0.102."""

    name = "copilot"

    def finish(self, folder: Path) -> None:
        """Let it unpack its 235 MB into a cache that all homes share."""
        environment = {"HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache"), "COPILOT_AUTO_UPDATE": "false"}
        command = [*self._executable_in(folder), "--version"]
        subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            timeout=TURN_SECONDS,
            check=True,
        )

    def configure(self, home: Path) -> None:
        """Leave the home empty: the environment has it all."""

    def resume_command(self, conversation_id: str, workspace: PurePosixPath) -> list[str]:
        """Ask the format."""
        return copilot.resume_command(conversation_id, workspace)

    def variables(self) -> Mapping[str, str]:
        """Use the stub as an own provider, and neither account nor update."""
        return {
            "COPILOT_OFFLINE": "true",
            "COPILOT_AUTO_UPDATE": "false",
            "COPILOT_PROVIDER_TYPE": "openai",
            "COPILOT_PROVIDER_BASE_URL": f"{self._model_url}/v1",
            "COPILOT_PROVIDER_API_KEY": "dummy",
            "COPILOT_MODEL": "stub-model",
            "XDG_CACHE_HOME": str(self._folder / "cache"),
        }

    def executable(self) -> Sequence[str]:
        """Start the native program of this machine's kind."""
        return self._executable_in(self._folder)

    @staticmethod
    def _executable_in(folder: Path) -> Sequence[str]:
        (program,) = folder.glob("node_modules/@github/copilot-linux-*/copilot")
        return [str(program)]

    def flags(self, prompt: str) -> list[str]:
        """Allow all tools and print JSON lines."""
        return ["-p", prompt, "--allow-all", "--output-format", "json"]

    def conversation_id(self, printed: Sequence[Mapping[str, Any]]) -> str:
        """Take it from the last line, the only one that has it."""
        return str(printed[-1]["sessionId"])

    def told_place(self, messages: Sequence[Message]) -> str:
        """Take all instructions: they are made anew in the new place."""
        return instructions(messages)


class Kimi(Program):
    """Kimi Code 2.1.0, on the Node that is installed beside it."""

    name = "kimi"

    def __init__(self, model_url: str) -> None:
        super().__init__(model_url)
        self._modules = self._folder / "node_modules"
        self.path = (self._modules / ".bin",)

    def finish(self, folder: Path) -> None:
        """Leave it as npm made it."""

    def configure(self, home: Path) -> None:
        """Name the stub as the only provider."""
        folder = home / ".kimi-code"
        folder.mkdir()
        (folder / "config.toml").write_text(
            'default_model = "stub/stub-model"\n'
            f'[providers.stub]\ntype = "openai"\nbase_url = "{self._model_url}/v1"\napi_key = "dummy"\n'
            '[models."stub/stub-model"]\nprovider = "stub"\nmodel = "stub-model"\nmax_context_size = 128000\n'
        )

    def resume_command(self, conversation_id: str, workspace: PurePosixPath) -> list[str]:
        """Ask the format."""
        return kimi.resume_command(conversation_id, workspace)

    def variables(self) -> Mapping[str, str]:
        """Send no telemetry."""
        return {"KIMI_DISABLE_TELEMETRY": "1"}

    def executable(self) -> Sequence[str]:
        """Start the script on the pinned Node."""
        return [str(self._modules / ".bin" / "node"), str(self._modules / "@moonshot-ai/kimi-code/dist/main.mjs")]

    def flags(self, prompt: str) -> list[str]:
        """Print JSON lines; without a terminal all tools are allowed."""
        return ["-p", prompt, "--output-format", "stream-json"]

    def conversation_id(self, printed: Sequence[Mapping[str, Any]]) -> str:
        """Take it from the hint at the end."""
        return str(next(line["session_id"] for line in reversed(printed) if "session_id" in line))

    def told_place(self, messages: Sequence[Message]) -> str:
        """Take all instructions: they are replayed as the moved session has them."""
        return instructions(messages)


def instructions(messages: Sequence[Message]) -> str:
    """Join what the system said."""
    return "\n".join(message.text for message in messages if message.role == "system")


def _objects(printed: str) -> Iterator[Mapping[str, Any]]:
    """Read the JSON objects among the lines."""
    for line in printed.splitlines():
        if line.startswith("{"):
            yield json.loads(line)
