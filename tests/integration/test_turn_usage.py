"""Tokens of a turn, by each way that an agent has of telling them."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import pytest

from host_client.agents.usage import Usage
from host_client.turns import consumption
from support.scripted_agent import CountingAdapter, ForkingAdapter, ScriptedAdapter, script
from support.turn_scene import Scene

if TYPE_CHECKING:
    from pathlib import Path

    from support.daemon import RunningDaemon

pytestmark = pytest.mark.anyio

TWO_STEPS = [["tell", {"usage": {"input_tokens": 10, "output_tokens": 1}}]] * 2
TOTALS = [["tell", {"usage": {"input_tokens": count, "output_tokens": count}, "cumulative": True}] for count in (5, 9)]
PARTLY = [["tell", {"usage": {"input_tokens": 10}}]]


@pytest.fixture
def scene(tmp_path: Path, shared_daemon: RunningDaemon) -> Scene:
    """A host whose turns run at the module's daemon."""
    return Scene(tmp_path, shared_daemon.target)


@pytest.mark.parametrize(
    ("mode", "steps", "expected"),
    [
        ("events", TWO_STEPS, Usage(input_tokens=20, output_tokens=2)),
        ("events", TOTALS, Usage(input_tokens=9, output_tokens=9)),
        ("events", PARTLY, Usage(input_tokens=10, complete=False)),
        ("events", [], Usage(complete=False)),
        (None, TWO_STEPS, Usage(input_tokens=20, output_tokens=2)),
        (None, PARTLY, Usage(input_tokens=10)),
        (None, [], None),
        ("unavailable", TWO_STEPS, None),
    ],
)
async def test_events_are_counted(scene: Scene, mode: str | None, steps: list[Any], expected: Usage | None) -> None:
    """By the mode: added up, replaced by totals, checked for what is missing, or not recorded at all."""
    result = await scene.runner(features={"usage": mode}).run(script(["say", "x"], *steps))
    assert result.usage == expected


async def test_a_session_is_counted_from_where_the_turn_began(scene: Scene) -> None:
    """Of a resumed conversation and of a fork only the turn's share counts; the session has the sum."""
    runner = scene.runner(CountingAdapter)
    first = await runner.run(script(["count", 100, 10], ["count", 1, 1]))
    assert first.usage == Usage(input_tokens=101, output_tokens=11)
    second = await first.resume(script(["count", 20, 2]))
    assert second.usage == Usage(input_tokens=20, output_tokens=2)
    child = await second.fork(script(["count", 3, 4]))
    assert child.usage == Usage(input_tokens=3, output_tokens=4)


async def test_a_session_is_counted_in_a_new_sandbox(tmp_path: Path) -> None:
    """What was used before is read from what was restored, and of a fork by a hook from its parent."""
    scene = Scene(tmp_path)

    class Adapter(CountingAdapter, ForkingAdapter):
        pass

    first = await scene.runner(Adapter).run(script(["count", 100, 10]))
    second = await first.resume(script(["count", 20, 2]))
    assert second.usage == Usage(input_tokens=20, output_tokens=2)
    assert (await first.fork(script(["count", 7, 7]))).usage == Usage(input_tokens=7, output_tokens=7)


@pytest.mark.parametrize("broken", ["result", "command", "status", "garbage", "hook", "nonsense"])
async def test_a_session_that_cannot_be_read_is_incomplete(scene: Scene, broken: str) -> None:
    """The turn succeeds, and nothing is made up: hooks that fail, have nothing, or whose command fails."""

    class Adapter(CountingAdapter):
        def usage_command(self, conversation_id: str) -> Any:
            made = super().usage_command(conversation_id)
            if broken == "hook":
                raise KeyError(conversation_id)
            if broken in ("command", "nonsense"):
                return None if broken == "command" else "ask it"
            return super().usage_command("missing") if broken == "status" else made

        def usage_result(self, text: str) -> Any:
            return None if broken == "result" else super().usage_result("[" if broken == "garbage" else text)

    result = await scene.runner(Adapter).run(script(["count", 1, 1]))
    assert result.usage == Usage(complete=False)
    assert result.record is not None


async def test_a_session_that_says_nothing_new_is_incomplete(scene: Scene) -> None:
    """A turn that used nothing is less likely than one whose use was not written down; the numbers stay."""
    result = await scene.runner(CountingAdapter).run(script(["count", 0, 0]))
    assert result.usage == Usage(input_tokens=0, output_tokens=0, complete=False)


async def test_an_unannounced_session_is_incomplete(scene: Scene) -> None:
    """Without an id no session can be asked."""
    result = await scene.runner(CountingAdapter).run(script(["count", 1, 1], quiet=True))
    assert result.usage == Usage(complete=False)


class ReadingAdapter(ScriptedAdapter):
    """An agent whose transcript says what its last turn used."""

    def transcript_usage(self, text: str) -> Usage | None:
        """Read the last count."""
        counts = [line for line in map(json.loads, text.splitlines()) if line["type"] == "usage"]
        return Usage(input_tokens=counts[-1]["input"], output_tokens=counts[-1]["output"]) if counts else None


@pytest.mark.parametrize(
    ("mode", "steps", "expected"),
    [
        ("events", [["count", 3, 4]], Usage(input_tokens=3, output_tokens=4)),
        ("events", [], Usage(input_tokens=20, output_tokens=2)),
        (None, [["count", 3, 4]], Usage(input_tokens=3, output_tokens=4)),
        ("unavailable", [["count", 3, 4]], None),
    ],
)
async def test_a_transcript_replaces_what_events_told(
    scene: Scene, mode: str | None, steps: list[Any], expected: Usage | None
) -> None:
    """What the captured transcript says holds; where it says nothing, events do; not recorded is not recorded."""
    runner = scene.runner(ReadingAdapter, features={"usage": mode})
    assert (await runner.run(script(*TWO_STEPS, *steps))).usage == expected


@pytest.mark.parametrize("error", [ValueError, StopIteration])
async def test_a_transcript_that_cannot_be_read_changes_nothing(scene: Scene, error: type[Exception]) -> None:
    """An adapter that fails at it, in whatever way, leaves what events told."""

    class Adapter(ScriptedAdapter):
        def transcript_usage(self, text: str) -> Usage | None:
            raise error(text)

    result = await scene.runner(Adapter, features={"usage": "events"}).run(script(*TWO_STEPS))
    assert result.usage == Usage(input_tokens=20, output_tokens=2)


async def test_of_a_large_transcript_the_last_whole_lines_are_read(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is bounded; a line that the limit cuts is left out. The event loop does not wait for the adapter."""
    monkeypatch.setattr(consumption, "MAX_TRANSCRIPT_BYTES", 4096)
    monkeypatch.setattr(consumption, "_PIECE_BYTES", 1000)
    texts: list[str] = []
    loop_thread = threading.current_thread()

    class Adapter(ReadingAdapter):
        def transcript_usage(self, text: str) -> Usage | None:
            assert threading.current_thread() is not loop_thread
            texts.append(text)
            return super().transcript_usage(text)

    steps = [["say", "x" * 500]] * 40
    result = await scene.runner(Adapter).run(script(*steps, ["count", 3, 4]))
    assert result.usage == Usage(input_tokens=3, output_tokens=4)
    assert 2048 < len(texts[0]) <= 4096
