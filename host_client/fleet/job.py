"""One restore as plain data, which a worker in another process or on another host can do by itself."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from host_client.errors import ConfigurationError, printable
from host_client.stores.archive import TransportConversations
from host_client.stores.archive_key import ArchiveKey
from host_client.stores.context import ConversationContext

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from host_client.stores.contract import ConversationStore
    from host_client.transports.contract import Transport

_UNPICKLABLE = (pickle.PicklingError, AttributeError, TypeError)
"""What pickle raises about an object that has no name to be found by, or that is no data."""


@dataclass(frozen=True, kw_only=True)
class ArchiveSource:
    """An archive, as every worker opens it by itself. The key is nowhere in it, only where a worker has it from.

    Attributes:
        url: Its store, as for `open_transport`. Credentials are those of the worker's environment.
        namespace: The namespace.
        key_path: File of the worker's host that holds the key.
        key_variable: Or the variable of the worker's environment that does; both empty: nothing is encrypted.
        cache: Directory of the worker's host for copies, which all its processes share; None: the user's.

    Raises:
        ConfigurationError: `invalid_argument`: the key is said to be in two places.
    """

    url: str
    namespace: str
    key_path: Path | None = None
    key_variable: str = ""
    cache: Path | None = None

    def __post_init__(self) -> None:
        if self.key_path and self.key_variable:
            raise ConfigurationError(
                "invalid_argument", "the key of an archive is in two places", hint="give key_path or key_variable"
            )

    def conversations(self, base: ConversationStore, transport: Transport) -> TransportConversations:
        """Return the store of a format's conversations; blocks.

        Raises:
            ConfigurationError: `invalid_argument`, `invalid_key`; those of the key.
            WorkspaceError: those of the key's file.
        """
        key = None
        if self.key_path:
            key = ArchiveKey.from_file(self.key_path)
        elif self.key_variable:
            key = ArchiveKey.from_environment(self.key_variable)
        return TransportConversations(base, transport=transport, namespace=self.namespace, key=key, cache=self.cache)


@dataclass(frozen=True, kw_only=True)
class RestoreJob:
    """A kept conversation and the target that it is for.

    Attributes:
        target: What the worker connects to, by itself: it must mean the same sandbox there.
        format: A built-in format; or a function of a module, without arguments, that returns the store.
        conversation_id: The conversation, as the store's `locate` knows it.
        context: The rules of the restore; and without an archive, where the worker finds the conversation:
            `conversation_home` or `repository`. It has no sandbox, no redaction and no progress: those are of one
            process.
        archive: Where the worker finds the conversation instead.
        snapshot: Which state of an archived conversation, as for its `locate`; empty: the newest.

    Raises:
        ConfigurationError: `invalid_argument`: the target is no text, a snapshot is of no archive, or something here is
            no plain data.
    """

    target: str
    format: str | Callable[[], ConversationStore]
    conversation_id: str
    context: ConversationContext = field(default_factory=ConversationContext)
    archive: ArchiveSource | None = None
    snapshot: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.target, str):
            raise ConfigurationError(
                "invalid_argument",
                "the target of a job is a text",
                hint="give what connect takes; a connected sandbox is of one process",
            )
        if self.snapshot and self.archive is None:
            raise ConfigurationError(
                "invalid_argument", "a snapshot is of an archive, and the job names none", hint="give archive="
            )
        given = (self.context.sandbox, self.context.redaction, self.context.progress)
        if any(one is not None for one in given):
            raise ConfigurationError(
                "invalid_argument",
                "the context of a job has a sandbox, a redaction or a progress",
                hint="leave them out: the worker connects by itself",
            )
        plain = replace(self.context, variables=dict(self.context.variables))
        object.__setattr__(self, "context", plain)
        try:
            pickle.dumps(self)
        except _UNPICKLABLE as error:
            raise ConfigurationError(
                "invalid_argument",
                f"the job for {printable(self.target)} cannot be sent to a worker: {error}",
                hint="name the format, or give a function of a module that the worker can import",
            ) from error
