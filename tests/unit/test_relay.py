"""The relay's promise: what happens at one target changes nothing for the others."""

from __future__ import annotations

import asyncio
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, cast

import pytest

from host_client.errors import ConfigurationError, ConflictError, SessionError
from host_client.stores.contract import ConversationRecord, RestoreOutcome
from host_client.stores.relay import relay
from support.conversation import ID
from support.named_sandbox import named_sandboxes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from host_client.sandbox.sandbox import Sandbox
    from host_client.stores.context import ConversationContext

pytestmark = pytest.mark.anyio


class ScriptedStore:
    """A store whose restores do what each target is told to; it notes how many run at once."""

    format = "mycli"

    def __init__(self, *, hanging: Sequence[Sandbox] = (), refusing: Sequence[Sandbox] = ()) -> None:
        self.hanging, self.refusing = hanging, refusing
        self.running_count = self.most_running_count = self.captures_count = 0
        self.bases: set[Path] = set()

    async def capture(self, conversation_id: str, context: ConversationContext) -> ConversationRecord:
        """Keep one file in the context's base."""
        self.captures_count += 1
        self.bases.add(context.base)
        path = context.base / "kept.json"
        path.touch()
        return ConversationRecord(
            format="mycli",
            conversation_id=conversation_id,
            path=path,
            digest="00" * 32,
            files_count=1,
            bytes_count=1,
            source=PurePosixPath("/s"),
        )

    async def locate(self, conversation_id: str, context: ConversationContext) -> ConversationRecord:
        """Never called."""
        raise NotImplementedError

    async def restore(self, record: ConversationRecord, context: ConversationContext) -> RestoreOutcome:
        """Hang, refuse or restore."""
        assert record.path.exists()
        self.running_count += 1
        self.most_running_count = max(self.most_running_count, self.running_count)
        try:
            await asyncio.sleep(0)
            if context.sandbox in self.hanging:
                await asyncio.Event().wait()
            if context.sandbox in self.refusing:
                raise ConflictError("in_use", "a process has it open")
        finally:
            self.running_count -= 1
        return cast("RestoreOutcome", ("restored", context.sandbox))


async def test_a_refusal_and_a_hang_are_outcomes_of_their_own() -> None:
    """A target that never answers ends as `timeout`, one that refuses with its error; the others are restored."""
    targets = named_sandboxes(5)
    tested = ScriptedStore(hanging=targets[1:2], refusing=targets[3:4])
    result = await relay(cast("Any", None), ID, targets, tested, target_seconds=0.2)
    assert [delivery.target for delivery in result.outcomes] == targets
    assert [delivery.error and (delivery.error.code, delivery.error.reason) for delivery in result.outcomes] == [
        None,
        ("timeout", "deadline"),
        None,
        ("conflict", "in_use"),
        None,
    ]
    assert [delivery.outcome is None for delivery in result.outcomes] == [False, True, False, True, False]
    assert tested.captures_count == 1


async def test_the_number_of_restores_at_a_time_is_bounded() -> None:
    """Never more run than was asked for, and all run in the end."""
    tested = ScriptedStore()
    result = await relay(cast("Any", None), ID, named_sandboxes(9), tested, concurrency_count=3)
    assert tested.most_running_count == 3
    assert all(delivery.outcome for delivery in result.outcomes)


@pytest.mark.parametrize("bounds", [{"concurrency_count": 0}, {"target_seconds": 0.0}, {"max_spool_bytes": 0}])
async def test_bounds_that_nothing_can_keep_are_refused(bounds: dict[str, Any]) -> None:
    """They are told, instead of waiting for ever or failing at every target; nothing is captured."""
    tested = ScriptedStore()
    with pytest.raises(ConfigurationError) as caught:
        await relay(cast("Any", None), ID, named_sandboxes(1), tested, **bounds)
    assert caught.value.reason == "invalid_argument"
    assert tested.captures_count == 0


async def test_the_private_copy_is_removed() -> None:
    """Nothing of the conversation stays on the host, and the copy was no one else's to read."""
    tested = ScriptedStore()
    await relay(cast("Any", None), ID, named_sandboxes(1), tested)
    (base,) = tested.bases
    assert not base.exists()


async def test_a_failed_capture_fails_the_relay() -> None:
    """Without a capture there is nothing to deliver: its error is the call's, and nothing is left."""

    class Broken(ScriptedStore):
        async def capture(self, conversation_id: str, context: ConversationContext) -> ConversationRecord:
            await super().capture(conversation_id, context)
            raise SessionError("not_found", "nothing there")

    tested = Broken()
    with pytest.raises(SessionError):
        await relay(cast("Any", None), ID, named_sandboxes(2), tested)
    (base,) = tested.bases
    assert not base.exists()
