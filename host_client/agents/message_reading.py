"""Read the messages of a conversation that is kept on this host.

The one rule: nothing is changed, and what cannot be read of a transcript never hides the rest of it.
"""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import dataclass, field
from importlib import import_module
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from host_client.agents.message_source import Tally
from host_client.agents.registry import builtin_format, format_names
from host_client.errors import ConfigurationError, SessionError, printable
from host_client.sandbox.task import in_thread
from host_client.session.bundle import SavedBundle, read_identity
from host_client.session.line_file import LineFile
from host_client.stores.bundle import SessionBundleConversations
from host_client.stores.transcript_home import HostFiles, HostHome
from sandbox_api.limits import Limits

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator
    from types import ModuleType

    from host_client.agents.message import Message
    from host_client.agents.message_source import MessageSource
    from host_client.stores.contract import ConversationRecord

_TOGETHER_COUNT = 64
"""Messages that are read in one turn in a thread."""
_PIECE_BYTES = 1 << 20
_THREAD_ID = re.compile(r"[0-9a-zA-Z-]{1,128}")
_TRANSCRIPTS = (".jsonl", ".jsonl.zst")
_ROLLOUTS = ("sessions", "archived_sessions")
_BIG = Limits(max_bytes=1 << 40, max_files=1 << 20)


class Messages:
    """The messages of a conversation, to be iterated with `for`, which blocks, or `async for`; again and again.

    Memory does not grow with the conversation, but for a few bytes a record; a line beyond 1 MiB is shown with its
    texts cut.

    Attributes:
        format: The conversation's format.

    Raises:
        SessionError: while it is iterated: `corrupt`, `digest_mismatch`, `not_found`, `missing_required`.
        WorkspaceError: while it is iterated: `not_found`, `not_a_file`, `unsafe_path`, `access`.
    """

    def __init__(self, format_name: str, source: MessageSource) -> None:
        self.format = format_name
        self._source = source
        self._tally = Tally()

    @property
    def skipped_count(self) -> int:
        """Lines that the last iteration passed over, since they are no records of a kind that is known."""
        return self._tally.skipped_count

    @property
    def has_torn_tail(self) -> bool:
        """Whether the last iteration found the last line cut off."""
        return self._tally.has_torn_tail

    def __iter__(self) -> Iterator[Message]:
        """Read from the beginning."""
        self._tally = Tally()
        reader = _reader(self.format)
        found: Iterator[Message] = reader.messages(self._source, self._tally)
        return found

    async def __aiter__(self) -> AsyncGenerator[Message, None]:
        """Read from the beginning, in a thread."""
        found = iter(self)
        try:
            while together := await in_thread(lambda: list(islice(found, _TOGETHER_COUNT))):
                for message in together:
                    yield message
        finally:
            await in_thread(found.close)  # type: ignore[attr-defined] # it is a generator


def read_messages(record: ConversationRecord) -> Messages:
    """Return the messages of a kept conversation, of a record that `locate` or `capture` gave.

    Raises:
        ConfigurationError: `not_supported`: a format that is not built in.
    """
    _reader(record.format)
    store = builtin_format(record.format)
    if isinstance(store, SessionBundleConversations):
        limits = Limits(max(record.bytes_count, 1), max(record.files_count, 1))
        return Messages(record.format, _BundleSource(store, record.path, record.conversation_id, limits))
    return Messages(record.format, _FileSource(record.path))


def read_message_file(format_name: str, host_path: Path) -> Messages:
    """Return the messages of a file, wherever it lies: a transcript of a CLI, or a bundle that a capture made.

    A file whose name ends with `.jsonl` or `.jsonl.zst` is a transcript, of Copilot its `events.jsonl` and of Kimi Code
    its `wire.jsonl`; any other is a bundle.

    Looks at the file, and blocks.

    Raises:
        ConfigurationError: `not_supported`: a format that is not built in; `format_mismatch`: the bundle is of another.
        SessionError: `not_found`, `corrupt`: it is no bundle.
        WorkspaceError: `unsafe_path`, `access`.
    """
    _reader(format_name)
    store = builtin_format(format_name)
    is_bundle = not host_path.name.endswith(_TRANSCRIPTS)
    if not (isinstance(store, SessionBundleConversations) and is_bundle):
        return Messages(format_name, _FileSource(host_path))
    identity = read_identity(host_path)
    if identity.format != format_name:
        raise ConfigurationError(
            "format_mismatch",
            f"{printable(str(host_path))} is of the format '{printable(identity.format)[:140]}', not {format_name}",
            hint="name the format that it is of",
        )
    return Messages(format_name, _BundleSource(store, host_path, identity.conversation_id, _BIG))


def _reader(format_name: str) -> ModuleType:
    if format_name not in format_names():
        raise ConfigurationError(
            "not_supported",
            f"messages of the format '{printable(format_name)[:140]}' cannot be read: it is not built in",
            hint=f"built in are {', '.join(format_names())}; the record's path has what the CLI itself wrote",
        )
    return import_module(f"host_client.agents.{format_name}_messages")


@dataclass
class _FileSource:
    """A transcript in a file of this host."""

    host_path: Path

    def pieces(self) -> Iterator[bytes]:
        with LineFile(self.host_path) as file:
            yield from file.pieces()

    def other(self, conversation_id: str) -> _FileSource | None:
        """Find a rollout below the CLI home that this one lies in; a link is never followed."""
        folders = [folder for folder in self.host_path.absolute().parents if folder.name in _ROLLOUTS]
        if not folders or not _THREAD_ID.fullmatch(conversation_id):
            return None
        home = folders[0].parent
        files = HostFiles(HostHome(home, home, home, home, ()))
        for name in _ROLLOUTS:
            for path in sorted(files.walk(PurePosixPath(name), f"rollout-*-{conversation_id}.jsonl*")):
                if path.name.endswith(_TRANSCRIPTS):
                    return _FileSource(home / path)
        return None


@dataclass
class _BundleSource:
    """The transcript among the files of a bundle."""

    store: SessionBundleConversations
    host_path: Path
    conversation_id: str
    limits: Limits
    _name: bytes = field(init=False)

    def __post_init__(self) -> None:
        self._name = str(_reader(self.store.format).FILE).encode()

    def pieces(self) -> Iterator[bytes]:
        with SavedBundle.open(self.host_path, self.store.profile, self.conversation_id, self.limits) as saved:
            found = [number for number, entry in enumerate(saved.entries) if entry.path == self._name]
            if not found:
                raise SessionError("missing_required", f"the bundle {printable(str(self.host_path))} has no transcript")
            with closing(saved.pieces(found[0], lambda: _PIECE_BYTES)) as pieces:  # type: ignore[type-var] # a generator
                yield from pieces

    def other(self, conversation_id: str) -> None:
        """Return None: no bundle goes on from another one."""
