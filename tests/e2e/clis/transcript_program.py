"""How the CLIs that keep transcripts are driven: Claude Code and Codex."""

import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from e2e.clis.program import Program
from host_client.agents import claude, codex
from support.stub_model.conversation import Message


class TranscriptProgram(Program):
    """A CLI that keeps transcripts, can fork a conversation and delegate to agents with transcripts of their own."""

    agent: re.Pattern[str]
    """Finds the id of an agent in what the tool that delegates answers."""

    @abstractmethod
    def transcripts(self, home: Path) -> Path:
        """Give the folder below which transcripts lie."""

    @abstractmethod
    def fork_command(self, conversation_id: str) -> list[str]:
        """Give the command that goes on with a copy of the conversation, under an id of its own."""


class Claude(TranscriptProgram):
    """Claude Code 2.1.332."""

    name = "claude"
    agent = re.compile(r"agentId: (\w+)")

    def finish(self, folder: Path) -> None:
        """Leave it as npm made it."""

    def configure(self, home: Path) -> None:
        """Leave the home empty: the environment has it all."""

    def resume_command(self, conversation_id: str, workspace: PurePosixPath) -> list[str]:
        """Ask the format."""
        return claude.resume_command(conversation_id, workspace)

    def fork_command(self, conversation_id: str) -> list[str]:
        """Resume it under another id."""
        return ["claude", "--resume", conversation_id, "--fork-session"]

    def transcripts(self, home: Path) -> Path:
        """Give the folder of all projects."""
        return home / ".claude" / "projects"

    def variables(self) -> Mapping[str, str]:
        """Use the stub, send no telemetry, and allow all tools to root as well."""
        return {
            "ANTHROPIC_BASE_URL": self._model_url,
            "ANTHROPIC_API_KEY": "dummy",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_ERROR_REPORTING": "1",
            "DISABLE_TELEMETRY": "1",
            "ENABLE_TOOL_SEARCH": "false",
            "IS_SANDBOX": "1",
        }

    def executable(self) -> Sequence[str]:
        """Start the native program of this machine's kind."""
        (program,) = self._folder.glob("node_modules/@anthropic-ai/claude-code-linux-*/claude")
        return [str(program)]

    def flags(self, prompt: str) -> list[str]:
        """Allow all tools and print JSON lines."""
        return ["-p", prompt, "--dangerously-skip-permissions", "--output-format", "stream-json", "--verbose"]

    def conversation_id(self, printed: Sequence[Mapping[str, Any]]) -> str:
        """Take it from the first line; all lines have it."""
        return str(printed[0]["session_id"])

    def told_place(self, messages: Sequence[Message]) -> str:
        """Take the newest note on the environment, without the place that it says was before."""
        told = re.findall(r"^ - Primary working directory: (.*?)(?: \(was .*)?$", _join(messages), re.MULTILINE)
        return str(told[-1])


class Codex(TranscriptProgram):
    """Codex 0.171.0."""

    name = "codex"
    agent = re.compile(r'"agent_id":"([\w-]+)"')
    begin = ("exec",)

    def finish(self, folder: Path) -> None:
        """Leave it as npm made it."""

    def configure(self, home: Path) -> None:
        """Name the stub as the only provider, and allow all tools."""
        folder = home / ".codex"
        folder.mkdir()
        (folder / "config.toml").write_text(
            'model = "stub-model"\nmodel_provider = "stub"\n'
            'approval_policy = "never"\nsandbox_mode = "danger-full-access"\ncheck_for_update_on_startup = false\n'
            f'[model_providers.stub]\nname = "stub"\nbase_url = "{self._model_url}/v1"\nwire_api = "responses"\n'
            'env_key = "STUB_KEY"\nrequest_max_retries = 1\nstream_max_retries = 1\n'
            "[analytics]\nenabled = false\n"
        )

    def resume_command(self, conversation_id: str, workspace: PurePosixPath) -> list[str]:
        """Ask the format."""
        return codex.resume_command(conversation_id, workspace)

    def fork_command(self, conversation_id: str) -> list[str]:
        """Use the fork of `codex exec`."""
        return ["codex", "exec", "fork", conversation_id]

    def transcripts(self, home: Path) -> Path:
        """Give the folder of all dates."""
        return home / ".codex" / "sessions"

    def variables(self) -> Mapping[str, str]:
        """Give the key that the stub does not ask for."""
        return {"STUB_KEY": "dummy"}

    def executable(self) -> Sequence[str]:
        """Start the native program of this machine's kind."""
        (program,) = self._folder.glob("node_modules/@openai/codex-linux-*/vendor/*/bin/codex")
        return [str(program)]

    def flags(self, prompt: str) -> list[str]:
        """Print JSON lines; all tools are allowed by the configuration."""
        return ["--json", "--skip-git-repo-check", prompt]

    def conversation_id(self, printed: Sequence[Mapping[str, Any]]) -> str:
        """Take it from the first line."""
        return str(printed[0]["thread_id"])

    def told_place(self, messages: Sequence[Message]) -> str:
        """Take the newest note on the environment: it repeats only what changed."""
        return re.findall(r"<environment_context>.*?</environment_context>", _join(messages), re.DOTALL)[-1]


def _join(messages: Sequence[Message]) -> str:
    return "\n".join(message.text for message in messages)
