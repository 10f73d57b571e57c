"""A kept conversation and sandboxes on this machine, for workers that find both by their names alone."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from host_client.fleet.job import RestoreJob
from host_client.sandbox.sandbox import connect
from host_client.stores.context import ConversationContext
from support.conversation import ID, files_below, make_session, store

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from host_client.fleet.job import ArchiveSource
    from host_client.stores.contract import ConversationStore

LOOKED_UP = "TEST_LOOKED_UP"
"""Variable with the path of a file in which workers note every look-up of `noting_store`."""


def noting_store() -> ConversationStore:
    """Return the store, and note that this process asked for it."""
    with Path(os.environ[LOOKED_UP]).open("a") as file:
        file.write(f"{os.getpid()}\n")
    return store()


def deadly_store() -> ConversationStore:
    """End the worker as a kill does."""
    os._exit(9)


def faulty_store() -> ConversationStore:
    """Fail as a fault in somebody's module does."""
    raise ZeroDivisionError("secret")


@dataclass(frozen=True)
class Fleet:
    """A folder with a kept conversation, and the homes of sandboxes.

    Attributes:
        directory: All of it lies there.
        kept: The conversation home of this host.
    """

    directory: Path
    kept: Path

    @classmethod
    def make(cls, directory: Path) -> Fleet:
        """Capture a session into a folder."""
        source, kept = directory / "source", directory / "kept"
        make_session(source / ".mycli")
        kept.mkdir()

        async def capture() -> None:
            async with connect(f"local:{source}") as sandbox:
                await store().capture(ID, ConversationContext(sandbox=sandbox, conversation_home=kept))

        asyncio.run(capture())
        return cls(directory, kept)

    def targets(self, count: int) -> Sequence[str]:
        """Return targets of sandboxes that have nothing yet; each restore starts its own daemon."""
        homes = [self.directory / "homes" / f"{os.getpid()}-{id(self)}-{number}" for number in range(count)]
        for home in homes:
            home.mkdir(parents=True)
        return [f"local:{home}" for home in homes]

    def job(
        self,
        target: str,
        made_by: str | Callable[[], ConversationStore] = store,
        archive: ArchiveSource | None = None,
    ) -> RestoreJob:
        """Return the restore of the conversation there."""
        context = ConversationContext(conversation_home=self.kept, durability="none")
        return RestoreJob(target=target, format=made_by, conversation_id=ID, context=context, archive=archive)


def restored(target: str) -> dict[str, bytes]:
    """Return the session's files at a target, but for the one that is relocated."""
    found = files_below(Path(target.removeprefix("local:")) / ".mycli/sessions" / ID)
    return {path: data for path, data in found.items() if path != "session.json"}
