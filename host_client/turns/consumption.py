"""Tokens of a turn by what the agent keeps: asked for by a command in the sandbox, or read from the captured copy.

The one rule: what cannot be learned makes the usage incomplete, never the turn fail.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from host_client.agents.adapter import AgentFeatures
from host_client.agents.usage import Usage
from host_client.sandbox.task import in_thread
from host_client.session.compression import decompressed, is_compressed
from host_client.turns.account import checked, difference, is_sound

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from host_client.agents.adapter import AgentAdapter
    from host_client.stores.contract import ConversationRecord
    from host_client.turns.command import Commands

MAX_TRANSCRIPT_BYTES = 64 << 20
"""Of a longer transcript, the end is looked at."""

_PIECE_BYTES = 1 << 20


class SessionUsage:
    """What a conversation used in one turn, by `AgentAdapter.usage_command` before and after it.

    Args:
        adapter: Has the hooks.
        commands: Runs them.
        is_new: The conversation did not exist before the turn.
    """

    def __init__(self, adapter: AgentAdapter, commands: Commands, *, is_new: bool) -> None:
        self._adapter = adapter
        self._commands = commands
        self._before = Usage(input_tokens=0, output_tokens=0) if is_new else None

    async def start(self, conversation_id: str) -> None:
        """Read what was used before the turn, by the conversation it goes on with."""
        self._before = await self._total(conversation_id)

    async def end(self, conversation_id: str) -> Usage:
        """Return what was used in the turn; incomplete without counters when that cannot be learned.

        A total that did not change is incomplete as well: more likely than a turn without a token is one that the agent
        did not write down, or not where it did before.
        """
        after = await self._total(conversation_id) if conversation_id else None
        used = difference(after, self._before)
        return replace(used, complete=used.complete and after != self._before)

    async def _total(self, conversation_id: str) -> Usage | None:
        try:
            command = self._adapter.usage_command(conversation_id)
            if command is None:
                return None
            result = await self._commands.look(command)
            if result.status:
                return None
            usage = self._adapter.usage_result(result.stdout.decode("utf-8", "replace"))
        except Exception:  # noqa: BLE001  what the agent keeps may be anything, and adapters are written by users
            return None
        return usage if is_sound(usage) else None


async def transcript_usage(
    adapter: AgentAdapter, record: ConversationRecord | None, told: Usage | None
) -> Usage | None:
    """Return the tokens that the captured transcript tells of the turn, or else what was told before."""
    reads = type(adapter).transcript_usage is not AgentFeatures.transcript_usage
    if record is None or not reads or adapter.usage == "unavailable":
        return told
    usage = await in_thread(_read, adapter, record.path)
    if usage is None or not is_sound(usage):
        return told
    return usage if adapter.usage is None else checked(usage)


def _read(adapter: AgentAdapter, host_path: Path) -> Usage | None:
    """Have the adapter read a transcript; None: it does not say. Blocks, and not for the file alone: it may be long."""
    try:
        return adapter.transcript_usage(_end_of(host_path))
    except Exception:  # noqa: BLE001  as above; and the file is that of any store
        return None


def _end_of(host_path: Path) -> str:
    """Return the text of a file, or the last whole lines of it; blocks."""
    kept, is_cut = bytearray(), False
    for piece in _pieces(host_path):
        kept += piece
        if len(kept) > 2 * MAX_TRANSCRIPT_BYTES:
            del kept[:-MAX_TRANSCRIPT_BYTES]
            is_cut = True
    if len(kept) > MAX_TRANSCRIPT_BYTES:
        del kept[:-MAX_TRANSCRIPT_BYTES]
        is_cut = True
    if is_cut:
        del kept[: kept.find(b"\n") + 1]
    return kept.decode("utf-8", "replace")


def _pieces(host_path: Path) -> Iterator[bytes]:
    with host_path.open("rb") as file:
        pieces = iter(lambda: file.read(_PIECE_BYTES), b"")
        yield from decompressed(pieces) if is_compressed(host_path) else pieces
