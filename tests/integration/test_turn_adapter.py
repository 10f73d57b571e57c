"""Turns of adapters that are careless with what they return."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from host_client.agents.adapter import Command
from host_client.agents.event import RawEvent
from host_client.errors import ConfigurationError
from support.scripted_agent import script
from support.turn_scene import Scene

if TYPE_CHECKING:
    from pathlib import Path

    from support.daemon import RunningDaemon

pytestmark = pytest.mark.anyio


@pytest.fixture
def scene(tmp_path: Path, shared_daemon: RunningDaemon) -> Scene:
    """A host whose turns all run in one sandbox."""
    return Scene(tmp_path, shared_daemon.target)


async def test_an_event_that_is_none_does_not_end_a_turn(scene: Scene) -> None:
    """Whoever iterates gets events until the agent has ended, and then its result."""

    def events(*_: Any) -> Any:
        return [None]

    async with scene.runner(features={"events": events}).turn(script(["say", "one"], ["say", "two"])) as turn:
        told = [event async for event in turn]
        result = await turn.result()
    assert [type(event) for event in told] == [RawEvent] * 3
    assert result.events_count == 3


@pytest.mark.parametrize(
    "command",
    [
        None,
        ["mycli", "secret"],
        Command("mycli", "secret"),
        Command("mycli", cast("Any", 5)),
        Command("mycli", ["secret", cast("Any", 5)]),
        Command("mycli", [], cast("Any", None)),
        Command("mycli", [], "secret \udcff"),
        Command("mycli", [], variables=cast("Any", ["secret"])),
        Command("mycli", [], variables={"secret": cast("Any", 5)}),
        Command(cast("Any", None)),
    ],
)
async def test_what_is_no_command_is_refused(scene: Scene, command: Any) -> None:
    """An adapter is somebody's own: the error names it and says what is wrong, and tells nothing of the command."""

    def request(*_: Any) -> Any:
        return command

    with pytest.raises(ConfigurationError) as caught:
        await scene.runner(features={"request": request}).run("x")
    assert caught.value.reason == "invalid_argument"
    assert "mycli" in str(caught.value)
    assert "secret" not in str(caught.value)
    assert scene.provider.released == scene.provider.acquired
