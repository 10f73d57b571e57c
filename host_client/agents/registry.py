"""The built-in formats and agents by name. Each is made from public parts alone, as a user's own is."""

from __future__ import annotations

from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING

from host_client.agents.harness import CliHarness, create_agent
from host_client.agents.preset import PresetOptions
from host_client.errors import ConfigurationError, printable
from host_client.sandbox.task import in_thread
from host_client.session.bundle import read_identity
from host_client.stores.bundle import SessionBundleConversations
from host_client.stores.transcript import TranscriptConversations

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path, PurePosixPath
    from types import ModuleType

    from host_client.agents.adapter import AgentAdapter
    from host_client.agents.harness import Agent
    from host_client.stores.contract import ConversationRecord, ConversationStore, NativeConversationStore
    from sandbox_api.limits import Limits

_NAMES = ("claude", "codex", "copilot", "kimi")


def format_names() -> Sequence[str]:
    """Return the names of the built-in formats, sorted."""
    return _NAMES


def agent_names() -> Sequence[str]:
    """Return the names of the built-in agents, sorted; each has the format of its name."""
    return _NAMES


def builtin_agent(
    name: str,
    *,
    conversations: ConversationStore | None = None,
    model: str = "",
    arguments: Sequence[str] = (),
    variables: Mapping[str, str] | None = None,
) -> Agent:
    """Return a built-in agent.

    It runs without asking anything and with all its tools allowed: what they may do is for the sandbox to bound.

    Args:
        name: One of `agent_names()`.
        conversations: Store that keeps its conversations in place of the built-in one, such as an archive; of the
            agent's format, or of no certain one.
        model: Model it is told to use; empty: its own choice.
        arguments: Further arguments of its command line, before the prompt.
        variables: Environment of all its commands; a name that the sandbox's provider sets as well is refused.

    Raises:
        ConfigurationError: `unknown_agent`; `format_mismatch`: the store is of another format; `invalid_argument`.
    """
    _check_name(name, "unknown_agent", "agent")
    if isinstance(arguments, str):
        raise ConfigurationError("invalid_argument", "arguments are a sequence of words", hint="give a list")
    its_format = getattr(conversations, "format", None)
    if its_format not in (name, None):
        raise ConfigurationError(
            "format_mismatch",
            f"a store of the format '{printable(str(its_format))[:140]}' cannot keep conversations of {name}",
            hint=f"give a store of the format {name}",
        )
    options = PresetOptions(
        storage=builtin_format(name) if conversations is None else conversations,
        model=model,
        arguments=tuple(arguments),
        variables=MappingProxyType(dict(variables or {})),
    )
    adapter: Callable[[PresetOptions], AgentAdapter] = import_module(f"host_client.agents.{name}_agent").AGENT
    return create_agent(CliHarness(lambda: adapter(options)))


def builtin_format(name: str) -> NativeConversationStore:
    """Return a store of a built-in format.

    Raises:
        ConfigurationError: `unknown_format`; names those there are.
    """
    module = _module(name)
    layout = getattr(module, "LAYOUT", None)
    return SessionBundleConversations(module.PROFILE) if layout is None else TranscriptConversations(layout)


def resume_command(name: str, conversation_id: str, sandbox_workspace: PurePosixPath) -> Sequence[str]:
    """Return the command that resumes a restored conversation; it is to be run in the workspace.

    Raises:
        ConfigurationError: `unknown_format`.
    """
    command: list[str] = _module(name).resume_command(conversation_id, sandbox_workspace)
    return command


async def validate_file(host_path: Path, *, limits: Limits | None = None) -> ConversationRecord:
    """Verify a bundle file of any built-in format, wherever it lies; format and id are those it names.

    Raises:
        SessionError: `not_found`, or what is wrong with the file.
        ConfigurationError: `unknown_format`, `format_mismatch`, `invalid_id`: the file names a format that is not built
            in, one that is not kept in bundles, or an id that cannot be.
        LimitError: `max_bytes`, `max_files`.
    """
    identity = await in_thread(read_identity, host_path)
    store = builtin_format(identity.format)
    if not isinstance(store, SessionBundleConversations):
        raise ConfigurationError(
            "format_mismatch",
            f"{printable(str(host_path))} is said to be of {store.format}, whose conversations are no bundles",
            hint="it was not made by a capture",
        )
    return await store.validate(host_path, identity.conversation_id, limits=limits)


def _module(name: str) -> ModuleType:
    # Imported by name and only when asked for: a command about one CLI does not pay for the hooks of all.
    _check_name(name, "unknown_format", "format")
    return import_module(f"host_client.agents.{name}")


def _check_name(name: str, reason: str, what: str) -> None:
    if name not in _NAMES:
        raise ConfigurationError(
            reason,
            f"'{printable(name)[:140]}' is no built-in {what}",
            hint=f"built in are {', '.join(_NAMES)}",
            facts={"known": ",".join(_NAMES)},
        )
