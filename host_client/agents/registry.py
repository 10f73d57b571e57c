"""The built-in formats by name. Each is made from public parts alone, as a user's own format is."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from host_client.errors import ConfigurationError, printable
from host_client.sandbox.task import in_thread
from host_client.session.bundle import read_identity
from host_client.stores.bundle import SessionBundleConversations
from host_client.stores.transcript import TranscriptConversations

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path, PurePosixPath
    from types import ModuleType

    from host_client.stores.contract import ConversationRecord, NativeConversationStore
    from sandbox_api.limits import Limits

_NAMES = ("claude", "codex", "copilot", "kimi")


def format_names() -> Sequence[str]:
    """Return the names of the built-in formats, sorted."""
    return _NAMES


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
    if name not in _NAMES:
        raise ConfigurationError(
            "unknown_format",
            f"'{printable(name)[:140]}' is no built-in format",
            hint=f"built in are {', '.join(_NAMES)}",
            facts={"known": ",".join(_NAMES)},
        )
    return import_module(f"host_client.agents.{name}")
