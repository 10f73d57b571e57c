"""Where the objects of an archive lie in its store, and which of the keys that a store lists are among them.

The one rule: a listed key is ours only if it is exactly what we would have written; everything else is passed over, so
that one namespace may continue another (`team`, `team/a`) and the store may hold what is no archive.
"""

from __future__ import annotations

import re
import secrets
import uuid
from dataclasses import dataclass

from host_client.errors import ConfigurationError
from host_client.transports.contract import check_key
from sandbox_api.names import CONVERSATION_ID, KEY_SEGMENT

MAX_NAMESPACE_CHARACTERS_COUNT = 128

_SNAPSHOT_ID = r"[0-9a-f]{32}"
_NAME = r"[0-9a-f]{64}(?:\.[0-9a-f]{8})?"
_CONVERSATION = rf"({KEY_SEGMENT.pattern})/({CONVERSATION_ID.pattern})/(?:index|snapshots/({_SNAPSHOT_ID}))"

SNAPSHOT_ID = re.compile(_SNAPSHOT_ID, re.ASCII)
OBJECT_NAME = re.compile(_NAME, re.ASCII)
"""How a manifest names a data object: by its content, and by a generation if it was written again."""

_CONVERSATION_KEY = re.compile(_CONVERSATION, re.ASCII)
_DATA_KEY = re.compile(rf"([0-9a-f]{{2}})/({_NAME})", re.ASCII)


@dataclass(frozen=True, slots=True)
class ConversationKey:
    """What a listed key below the conversations is.

    Attributes:
        format: The conversation's format.
        archive_id: Its id in the archive.
        snapshot_id: The snapshot whose manifest it is; empty: it is the index.
    """

    format: str
    archive_id: str
    snapshot_id: str = ""


@dataclass(frozen=True, slots=True)
class Layout:
    """The keys of one namespace.

    Attributes:
        namespace: Its name: a key of at most 128 characters.

    Raises:
        ConfigurationError: `invalid_key`.
    """

    namespace: str

    def __post_init__(self) -> None:
        check_key(self.namespace, "namespace")
        if len(self.namespace) > MAX_NAMESPACE_CHARACTERS_COUNT:
            raise ConfigurationError(
                "invalid_key",
                f"a namespace has at most {MAX_NAMESPACE_CHARACTERS_COUNT} characters",
                hint="choose a shorter name",
            )

    @property
    def conversations_prefix(self) -> str:
        """What to list for all indexes and manifests; of other namespaces that continue this one as well."""
        return f"conversations/{self.namespace}"

    @property
    def data_prefix(self) -> str:
        """What to list for all data."""
        return f"data/{self.namespace}"

    @property
    def marks_prefix(self) -> str:
        """What to list for all marks."""
        return f"marks/{self.namespace}"

    def conversation_prefix(self, format_name: str, archive_id: str) -> str:
        """Return what to list for the index and the manifests of one conversation."""
        return f"{self.conversations_prefix}/{format_name}/{archive_id}"

    def index_key(self, format_name: str, archive_id: str) -> str:
        """Return the key of a conversation's index."""
        return f"{self.conversation_prefix(format_name, archive_id)}/index"

    def snapshot_key(self, format_name: str, archive_id: str, snapshot_id: str) -> str:
        """Return the key of a snapshot's manifest."""
        return f"{self.conversation_prefix(format_name, archive_id)}/snapshots/{snapshot_id}"

    def data_key(self, name: str) -> str:
        """Return the key of a data object, by its name in a manifest."""
        return f"{self.data_prefix}/{name[:2]}/{name}"

    def mark_key(self, name: str) -> str:
        """Return the key of the mark of a data object, by its name in a manifest."""
        return f"{self.marks_prefix}/{name}"

    def probe_key(self) -> str:
        """Return a key that nobody has used, to find out what the store can do and what time it has."""
        return f"probe/{self.namespace}/{uuid.uuid4()}"

    def parse_conversation(self, key: str) -> ConversationKey | None:
        """Tell what a key listed below `conversations_prefix` is; None: not of this namespace."""
        found = self._parsed(_CONVERSATION_KEY, self.conversations_prefix, key)
        return ConversationKey(found[1], found[2], found[3] or "") if found else None

    def parse_data(self, key: str) -> str | None:
        """Return the name of a data object listed below `data_prefix`; None: not of this namespace."""
        found = self._parsed(_DATA_KEY, self.data_prefix, key)
        return found[2] if found and found[2].startswith(found[1]) else None

    def parse_mark(self, key: str) -> str | None:
        """Return the name of the data object whose mark is listed there; None: not of this namespace."""
        found = self._parsed(OBJECT_NAME, self.marks_prefix, key)
        return found[0] if found else None

    @staticmethod
    def _parsed(pattern: re.Pattern[str], prefix: str, key: str) -> re.Match[str] | None:
        return pattern.fullmatch(key, len(prefix) + 1) if key.startswith(f"{prefix}/") else None


def content_name(name: str) -> str:
    """Return the part of a data object's name that says its content."""
    return name.partition(".")[0]


def new_generation(name: str) -> str:
    """Return a new name for the content of a data object that must be written again."""
    return f"{content_name(name)}.{secrets.token_hex(4)}"
