"""Turns that end well: what the agent is given, what it tells, and what is kept."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from host_client.agents.adapter import Command
from host_client.agents.event import ConversationEvent, RawEvent, TextEvent
from host_client.errors import ConfigurationError
from host_client.session.redaction import LiteralRule, Redaction
from support.scripted_agent import ScriptedAdapter, script
from support.turn_scene import Scene

if TYPE_CHECKING:
    from host_client.agents.adapter import TurnInput
    from host_client.agents.event import AgentEvent
    from support.daemon import RunningDaemon

pytestmark = pytest.mark.anyio


@pytest.fixture
def scene(tmp_path: Path, shared_daemon: RunningDaemon) -> Scene:
    """A host whose turns run at the module's daemon."""
    return Scene(tmp_path, shared_daemon.target)


async def test_a_turn_gives_text_events_conversation_and_record(scene: Scene, shared_daemon: RunningDaemon) -> None:
    """The result has what was said, the conversation is on the host, and the sandbox is released once."""
    result = await scene.runner().run(script(["say", "one "], ["where"]))
    assert result.text == f"one {shared_daemon.workspace.resolve()}"
    assert result.events == (
        ConversationEvent(str(result.conversation_id)),
        TextEvent("one "),
        TextEvent(str(shared_daemon.workspace.resolve())),
    )
    assert (result.agent, result.events_count, result.usage, result.notices) == ("mycli", 3, None, ())
    assert result.record is not None
    assert result.record.path == scene.kept(str(result.conversation_id))
    assert '"one "' in scene.said(str(result.conversation_id))
    assert str(scene.repository.resolve()) in scene.said(str(result.conversation_id))
    (wanted,) = scene.provider.wanted
    assert (wanted.agent, wanted.repository, wanted.conversation_id) == ("mycli", scene.repository, "")
    assert scene.provider.released == scene.provider.acquired
    assert result.duration_seconds > 0


async def test_events_are_iterated_and_observed(scene: Scene) -> None:
    """The iterator and both observers, also one that is a coroutine function, are told every event in order."""
    seen: list[AgentEvent] = []
    awaited: list[AgentEvent] = []

    async def observe(event: AgentEvent) -> None:
        await asyncio.sleep(0)
        awaited.append(event)

    runner = scene.runner(on_event=seen.append)
    async with runner.turn(script(["say", "a"], ["say", "b"]), on_event=observe) as turn:
        iterated = [event async for event in turn]
        result = await turn.result()
    assert iterated == seen == awaited == list(result.events)
    assert turn.record == result.record
    assert turn.conversation_id == result.conversation_id


async def test_more_events_than_wait_arrive_when_they_are_taken(scene: Scene) -> None:
    """A flood of events waits in the sandbox for whoever takes them; none is lost."""
    async with scene.runner().turn(script(["flood", 3000], quiet=True)) as turn:
        first = await anext(turn)
        assert first == TextEvent("0 ")
        texts = [event.text async for event in turn if isinstance(event, TextEvent)]
    assert texts == [f"{number} " for number in range(1, 3000)]


async def test_a_result_passes_over_events(scene: Scene) -> None:
    """Asking for the result needs no iteration, whatever the number of events."""
    result = await scene.runner().run(script(["flood", 3000]))
    assert result.events_count == 3001
    assert result.text.startswith("0 1 2 ")


async def test_what_is_no_event_is_raw(scene: Scene) -> None:
    """Garbage, bytes that are no text and a last line without an end become raw events, and the turn succeeds."""
    steps = [["print", "{garbage\r\n\n"], ["bytes", "ff0a"], ["say", "fine"], ["print", "end"]]
    result = await scene.runner().run(script(*steps))
    raw = [event for event in result.events if isinstance(event, RawEvent)]
    assert raw == [RawEvent("{garbage"), RawEvent("\ufffd"), RawEvent("end")]
    assert result.text == "fine"


async def test_a_long_line_is_one_event(scene: Scene) -> None:
    """Lines of up to 16 MiB are events."""
    result = await scene.runner().run(script(["line", 16 << 20]))
    (event,) = result.events[1:]
    assert isinstance(event, RawEvent)
    assert event.line == "x" * (16 << 20)


async def test_a_long_text_reaches_the_agent(scene: Scene) -> None:
    """What the user says is not limited by what one message holds."""
    text = "long " * (1 << 19)
    result = await scene.runner().run(script(["say", text]))
    assert result.text == text


async def test_an_agent_that_does_not_read_is_no_failure(scene: Scene) -> None:
    """A long text that the program does not take does not hold the turn up."""

    class DeafAdapter(ScriptedAdapter):
        def request(self, turn: TurnInput) -> Command:
            return Command("true", (), turn.text)

    result = await scene.runner(DeafAdapter).run("x" * (3 << 20))
    assert (result.text, result.conversation_id) == ("", None)


async def test_layers_of_the_environment(scene: Scene) -> None:
    """The repository's file, then the provider, then the agent, then the command's own."""
    (scene.repository / ".outpost").mkdir()
    (scene.repository / ".outpost/.env").write_text("A=file\nB=file\nC=file\nD=file\n")
    scene.provider = scene.watched(variables={"B": "provider"})

    class Adapter(ScriptedAdapter):
        variables = {"C": "agent", "D": "agent"}  # noqa: RUF012  as users write it

        def request(self, turn: TurnInput) -> Command:
            made = super().request(turn)
            return Command(made.executable, made.arguments, made.stdin, {"D": "command"})

    names = [["variable", name] for name in ("A", "B", "C", "D", "HOME")]
    result = await scene.runner(Adapter).run(script(*names))
    texts = [event.text for event in result.events if isinstance(event, TextEvent)]
    assert texts == ["file", "provider", "agent", "command", str(scene.provider.acquired[0].home)]


async def test_a_variable_of_provider_and_agent_is_refused_before_anything_runs(scene: Scene, tmp_path: Path) -> None:
    """The sandbox is released, nothing was started, and no value is told."""
    scene.provider = scene.watched(variables={"TOKEN": "secret"})
    runner = scene.runner(features={"variables": {"TOKEN": "secret"}})
    with pytest.raises(ConfigurationError) as caught:
        await runner.run(script(["touch", str(tmp_path / "ran")]))
    assert caught.value.reason == "variable_collision"
    assert "secret" not in repr(caught.value) + str(caught.value.facts)
    assert scene.provider.released == scene.provider.acquired
    assert not (tmp_path / "ran").exists()


async def test_variables_are_in_no_list_of_processes(scene: Scene, tmp_path: Path) -> None:
    """Values are handed over as an environment, never as arguments of a process in the sandbox."""
    runner = scene.runner(features={"variables": {"TOKEN": "secret-value"}})
    await_path = tmp_path / "go"
    async with runner.turn(script(["say", "x"], ["await", str(await_path)])) as turn:
        async for event in turn:
            if isinstance(event, TextEvent):
                break
        assert "secret-value" not in await asyncio.to_thread(_command_lines)
        await asyncio.to_thread(await_path.touch)
        await turn.result()


def _command_lines() -> str:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_text())
        except (OSError, UnicodeDecodeError):
            continue
    return "\n".join(found)


@pytest.mark.parametrize("features", [{"storage": None}, {"capture": False}])
async def test_what_is_not_to_be_captured_is_not(scene: Scene, features: dict[str, Any]) -> None:
    """An agent without a storage, or one that says so, leaves nothing on the host."""
    result = await scene.runner(features=features).run(script(["say", "x"]))
    assert result.conversation_id
    assert result.record is None
    assert list(scene.home.iterdir()) == []


async def test_secrets_are_not_saved(scene: Scene) -> None:
    """The runner's redaction holds for what is captured."""
    redaction = Redaction([LiteralRule("token", "s3cr3t")])
    result = await scene.runner(redaction=redaction).run(script(["say", "it is s3cr3t"]))
    assert "s3cr3t" not in scene.said(str(result.conversation_id))
    assert result.record is not None
    assert result.record.redactions == {"token": 1}


async def test_turns_run_at_the_same_time(scene: Scene, tmp_path: Path) -> None:
    """Two turns of one runner, each of which waits for the other."""
    runner, paths = scene.runner(), [str(tmp_path / "a"), str(tmp_path / "b")]
    texts = [script(["touch", mine], ["await", other], ["say", mine]) for mine, other in (paths, paths[::-1])]
    results = await asyncio.gather(*map(runner.run, texts))
    assert [result.text for result in results] == paths
    assert len({result.conversation_id for result in results}) == 2


async def test_the_offered_id_is_a_new_one_each_time(scene: Scene) -> None:
    """An agent whose caller chooses ids gets one that is free, for new conversations alone."""
    offered: list[str] = []

    class Adapter(ScriptedAdapter):
        def request(self, turn: TurnInput) -> Command:
            offered.append(turn.conversation_id)
            assert (turn.workspace, turn.home) == (scene.provider.acquired[0].root, scene.provider.acquired[0].home)
            return super().request(turn)

    runner = scene.runner(Adapter)
    first = await runner.run(script(["say", "a"]))
    await runner.run(script(["say", "a"]))
    await first.resume(json.dumps([{}, ["say", "b"]]))
    assert len(set(offered)) == 3
    assert offered[2] == ""
