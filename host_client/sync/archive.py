"""Archives as a whole, blocking."""

from __future__ import annotations

from typing import TYPE_CHECKING

from host_client.stores import archive_maintenance as _maintenance
from host_client.sync.blocking import Blocking, call, every

if TYPE_CHECKING:
    from collections.abc import Callable

    from host_client.stores.archive_key import ArchiveKey
    from host_client.transports.contract import Transport


class ConversationArchive(Blocking[_maintenance.ConversationArchive]):
    """All conversations of a namespace; see `host_client.stores.archive_maintenance.ConversationArchive`."""

    def __init__(
        self, transport: Transport, namespace: str, key: ArchiveKey | Callable[[], bytes] | None = None
    ) -> None:
        super().__init__(_maintenance.ConversationArchive(transport, namespace, key))

    conversations = every(_maintenance.ConversationArchive.conversations)
    verify = call(_maintenance.ConversationArchive.verify)
    prune = call(_maintenance.ConversationArchive.prune)
    stats = call(_maintenance.ConversationArchive.stats)
