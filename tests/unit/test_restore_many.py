"""The promise of many restores: each target has its outcome, bounded in number and time, whatever the others do."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, cast

import pytest

from host_client.errors import ConfigurationError, ConflictError, OutpostError, UnavailableError
from host_client.fleet.restore import restore_many
from host_client.fleet.retry import Retry
from host_client.stores.context import ConversationContext
from host_client.stores.contract import ConversationRecord, RestoreOutcome
from support.named_sandbox import named_sandboxes
from support.outcome import outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from host_client.stores.delivery import DeliveryProgress

pytestmark = pytest.mark.anyio

AT_ONCE = Retry(base_seconds=0.0)
RECORD = ConversationRecord(
    format="mycli",
    conversation_id="S1",
    path=Path("/kept"),
    digest="00" * 32,
    files_count=1,
    bytes_count=1,
    source=PurePosixPath("/s"),
)


class ScriptedStore:
    """A store whose restores hang, or fail as often as they are told to."""

    format = "mycli"

    def __init__(self, failures: dict[str, Sequence[Exception]] | None = None, hanging: Sequence[str] = ()) -> None:
        self.failures = {target: list(found) for target, found in (failures or {}).items()}
        self.hanging = hanging
        self.running_count = self.most_running_count = self.cancelled_count = 0
        self.restored: list[tuple[str, str]] = []
        self.restore_ids: dict[str, set[str]] = {}
        self.has_begun = asyncio.Event()

    async def capture(self, conversation_id: str, context: ConversationContext) -> ConversationRecord:
        """Never called."""
        raise NotImplementedError

    async def locate(self, conversation_id: str, context: ConversationContext) -> ConversationRecord:
        """Never called."""
        raise NotImplementedError

    async def restore(self, record: ConversationRecord, context: ConversationContext) -> RestoreOutcome:
        """Hang, fail or restore."""
        target = context.connected.target
        self.restore_ids.setdefault(target, set()).add(context.restore_id)
        self.running_count += 1
        self.most_running_count = max(self.most_running_count, self.running_count)
        self.has_begun.set()
        try:
            await asyncio.sleep(0)
            if failures := self.failures.get(target):
                raise failures.pop(0)
            if target in self.hanging:
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled_count += 1
            raise
        finally:
            self.running_count -= 1
        self.restored.append((target, record.conversation_id))
        return outcome(1)


def _away() -> OutpostError:
    return UnavailableError("unreachable", "the connection broke")


async def test_every_target_has_its_own_outcome_in_the_order_given() -> None:
    """One refuses, one fails for good, one passes after two failures, one hangs: the others are restored."""
    targets = named_sandboxes(5)
    tested = ScriptedStore(
        {
            "unix:/1": [ConflictError("in_use", "a process has it open")],
            "unix:/2": [_away() for _ in range(9)],
            "unix:/3": [_away(), ConflictError("busy", "another restore")],
        },
        hanging=["unix:/4"],
    )
    ended = await restore_many(RECORD, targets, tested, retry=AT_ONCE, target_seconds=0.5)
    assert [one.target for one in ended] == targets
    assert [one.error and (one.error.code, one.error.reason) for one in ended] == [
        None,
        ("conflict", "in_use"),
        ("unavailable", "unreachable"),
        None,
        ("timeout", "deadline"),
    ]
    assert [one.attempts_count for one in ended] == [1, 1, 4, 3, 1]
    assert [one.outcome is None for one in ended] == [one.error is not None for one in ended]


async def test_all_attempts_of_one_target_have_one_restore_id() -> None:
    """A broken restore goes on where it was, and never where that of another target was."""
    tested = ScriptedStore({f"unix:/{number}": [_away(), _away()] for number in range(3)})
    await restore_many(RECORD, named_sandboxes(3), tested, retry=AT_ONCE)
    ids = list(tested.restore_ids.values())
    assert [len(one) for one in ids] == [1, 1, 1]
    assert len(set.union(*ids)) == 3
    assert "" not in set.union(*ids)


async def test_the_restore_id_of_the_caller_is_kept() -> None:
    """A program that was started again goes on with what it had begun."""
    tested = ScriptedStore()
    await restore_many(RECORD, named_sandboxes(1), tested, ConversationContext(restore_id="mine"))
    assert tested.restore_ids == {"unix:/0": {"mine"}}


async def test_the_deadline_covers_all_attempts_and_tells_the_last_failure() -> None:
    """A target that failed and hangs now is told with both."""
    tested = ScriptedStore({"unix:/0": [_away()]}, hanging=["unix:/0"])
    (ended,) = await restore_many(RECORD, named_sandboxes(1), tested, retry=AT_ONCE, target_seconds=0.2)
    assert ended.error
    assert (ended.error.reason, ended.attempts_count) == ("deadline", 2)
    assert "the connection broke" in ended.error.hint
    assert ended.error.message == "unix:/0 took longer than 0.2 s"


async def test_a_fault_ends_the_call() -> None:
    """What is no failure of the product, a time-out of somebody else's included, is nobody's outcome."""
    tested = ScriptedStore({"unix:/1": [TimeoutError("of a library")]})
    with pytest.raises(TimeoutError, match="of a library"):
        await restore_many(RECORD, named_sandboxes(2), tested, target_seconds=60)


async def test_restores_at_a_time_are_bounded() -> None:
    """Never more run than was asked for, and all run in the end."""
    tested = ScriptedStore()
    ended = await restore_many(RECORD, named_sandboxes(9), tested, concurrency_count=3)
    assert tested.most_running_count == 3
    assert all(one.outcome for one in ended)


async def test_many_records_go_each_to_its_own_target() -> None:
    """By their places."""
    tested = ScriptedStore()
    records = [replace(RECORD, conversation_id=f"S{number}") for number in range(3)]
    await restore_many(records, named_sandboxes(3), tested)
    assert sorted(tested.restored) == [("unix:/0", "S0"), ("unix:/1", "S1"), ("unix:/2", "S2")]


async def test_a_cancel_ends_all_restores() -> None:
    """What runs is cancelled and waited for, and what waits never begins."""
    tested = ScriptedStore(hanging=["unix:/0", "unix:/1"])
    running = asyncio.ensure_future(restore_many(RECORD, named_sandboxes(4), tested, concurrency_count=2))
    await tested.has_begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (tested.running_count, tested.restored) == (0, [])
    assert tested.cancelled_count == len(tested.restore_ids) <= 2


async def test_every_end_is_told() -> None:
    """The callback hears of each target, with what came of it."""
    told: list[DeliveryProgress] = []
    tested = ScriptedStore({"unix:/1": [ConflictError("in_use", "a process has it open")]})
    ended = await restore_many(RECORD, named_sandboxes(3), tested, progress=told.append)
    assert {id(one.ended) for one in told if one.ended} == {id(one) for one in ended}
    assert (told[-1].targets_count, told[-1].failed_count, told[-1].share) == (3, 1, 1.0)


async def test_what_the_callback_raises_ends_the_call() -> None:
    """A fault of the caller's is not taken for one of a target."""

    class Mine(Exception):  # noqa: N818 - somebody's
        pass

    def fail(_: DeliveryProgress) -> None:
        raise Mine

    with pytest.raises(Mine):
        await restore_many(RECORD, named_sandboxes(2), ScriptedStore(), progress=fail)


async def test_nothing_to_do_is_no_error() -> None:
    """No targets, no outcomes."""
    assert await restore_many([], [], ScriptedStore()) == ()


@pytest.mark.parametrize(
    ("records", "targets", "numbers"),
    [
        ([RECORD], ["unix:/1", "unix:/2"], {}),
        ([], ["unix:/1"], {}),
        (RECORD, "unix:/1", {}),
        (RECORD, ["unix:/1"], {"concurrency_count": 0}),
        (RECORD, ["unix:/1"], {"target_seconds": 0}),
    ],
)
async def test_what_is_unclear_is_refused(records: object, targets: object, numbers: dict[str, int]) -> None:
    """Different numbers of records and targets, a text for targets, and numbers that no run can keep."""
    with pytest.raises(ConfigurationError) as caught:
        await restore_many(
            cast("ConversationRecord", records),
            cast("list[str]", targets),
            ScriptedStore(),
            **numbers,  # type: ignore[arg-type]
        )
    assert caught.value.reason == "invalid_argument"
