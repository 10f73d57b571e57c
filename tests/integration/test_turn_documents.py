"""docs/agents.md and docs/orchestrators.md: every block of Python in them runs as it stands there."""

from __future__ import annotations

import asyncio
import os
import re
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import host_client
from host_client import (
    Agent,
    AgentFeatures,
    ConfigurationError,
    ConnectedSandbox,
    ProcessError,
    TurnInput,
    TurnRunner,
    Usage,
)
from support.guide_cli import write_guide_cli

if TYPE_CHECKING:
    from collections.abc import Sequence

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page: str) -> Sequence[str]:
    """Return the Python blocks of a page."""
    return re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


def names_of(page: str, *numbers: int) -> dict[str, Any]:
    """Run some blocks of a page, one after the other, and return what they define."""
    names: dict[str, Any] = {"__name__": "example"}
    for number in numbers:
        exec(compile(blocks(page)[number], f"{page}:{number}", "exec"), names)  # noqa: S102 - our own document
    return names


class Scene:
    """A repository, and a sandbox in whose PATH `mycli` is."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.repository, self.workspace = tmp_path / "repository", tmp_path / "workspace"
        self.homes, self.home = tmp_path / "homes", tmp_path / "home"
        for folder in (self.repository, self.workspace, self.home, tmp_path / "user"):
            folder.mkdir()
        monkeypatch.setenv("HOME", str(tmp_path / "user"))
        monkeypatch.setenv("PATH", f"{write_guide_cli(tmp_path / 'bin').parent}:{os.environ['PATH']}")
        self.target = f"local:{self.home},{self.workspace}"

    def runner(self, agent: Agent) -> TurnRunner:
        """Return a runner of turns in the sandbox."""
        return TurnRunner(agent, ConnectedSandbox(self.target), repository=self.repository)


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """All places."""
    return Scene(tmp_path, monkeypatch)


@pytest.fixture
def agent() -> Agent:
    """Return the agent of docs/agents.md."""
    made = names_of("agents.md", 0)["agent"]
    assert isinstance(made, Agent)
    return made


def run(page: str, number: int, function: str, *arguments: object) -> Any:
    """Run a coroutine function that a block defines."""
    return asyncio.run(names_of(page, number)[function](*arguments))


def test_every_block_is_run_by_a_test() -> None:
    """A block that is added needs a test of its own: here, or of many sandboxes in `test_fleet_documents`."""
    assert (len(blocks("agents.md")), len(blocks("orchestrators.md"))) == (3, 6 + 3)


@pytest.mark.anyio
async def test_the_adapter_of_the_guide_runs_and_resumes(scene: Scene, agent: Agent) -> None:
    """docs/agents.md, the first block: a turn, its capture on the host, and the turn that goes on."""
    first = await scene.runner(agent).run("hello")
    assert (first.text, first.usage) == ("told 1: hello", None)
    assert first.record is not None
    assert first.record.path.parts[-3:] == (".mycli", "sessions", f"{first.conversation_id}.jsonl")
    second = await first.resume("again")
    assert (second.text, second.conversation_id) == ("told 2: again", first.conversation_id)
    assert str(scene.repository) in first.record.path.read_text()
    assert str(scene.workspace) not in first.record.path.read_text()


@pytest.mark.anyio
async def test_the_second_adapter_of_the_guide_forks_and_counts(scene: Scene) -> None:
    """docs/agents.md, the second block: its own fork, tokens of each turn alone, variables, and its final event."""
    runner = scene.runner(names_of("agents.md", 0, 1)["agent"])
    first = await runner.run("hello")
    assert (first.text, first.usage) == ("told 1: hello", Usage(input_tokens=10, output_tokens=1))
    copy = await first.fork("instead")
    assert (copy.text, copy.usage) == ("told 2: instead", Usage(input_tokens=10, output_tokens=1))
    assert copy.conversation_id != first.conversation_id
    assert (await first.resume("on")).text == "told 2: on"
    unfinished = names_of("agents.md", 0, 1)["MyCli2"]
    unfinished.variables = {}
    with pytest.raises(ProcessError) as caught:
        await scene.runner(host_client.create_agent(host_client.CliHarness(unfinished))).run("hello")
    assert caught.value.reason == "unfinished"


def test_the_presets_of_the_guide_are_there() -> None:
    """docs/agents.md, the third block: all presets by name, and one with options that reach its command line."""
    names = names_of("agents.md", 2)
    assert [made.name for made in names["agents"]] == ["claude", "codex", "copilot", "kimi"]
    place = Path("/w")
    command = names["careful"].bind().request(TurnInput(text="hi", workspace=place, home=place))  # type: ignore[arg-type]
    assert {"opus", "--max-turns", "20"} <= set(command.arguments)
    assert command.stdin == "hi"


def test_the_guide_tells_every_feature_and_event() -> None:
    """docs/agents.md: no feature, event or counter is missing."""
    page = (DOCS / "agents.md").read_text()
    features = set(AgentFeatures.__annotations__) | {"transcript_usage"}
    events = {name for name in host_client.__all__ if name.endswith("Event")}
    for name in features | events | {field.name for field in fields(Usage)} | {f.name for f in fields(TurnInput)}:
        assert re.search(rf"`{name}\b", page), name


def test_a_turn_and_what_goes_on_from_it(scene: Scene) -> None:
    """docs/orchestrators.md, the first block, by the `mycli` that forks."""
    made = names_of("agents.md", 0, 1)["agent"]
    answer, variant = run("orchestrators.md", 0, "work", made, scene.target, scene.repository)
    assert answer.text == "told 2: Now make it pass"
    assert variant.text == "told 3: Try it without a new dependency"


def test_a_turn_that_is_watched(scene: Scene, agent: Agent) -> None:
    """docs/orchestrators.md, the second block: the events are those of the result."""
    first = asyncio.run(scene.runner(agent).run("hello"))
    watched = run("orchestrators.md", 1, "watch", agent, scene.target, scene.repository, first.conversation_id)
    shown, result = watched
    assert shown == result.text == "told 2: Go on"


def test_a_sandbox_for_each_turn(scene: Scene, agent: Agent) -> None:
    """docs/orchestrators.md, the third block: the conversation goes on in homes that are gone each time."""
    arguments = (agent, scene.homes, scene.repository, scene.workspace)
    results = run("orchestrators.md", 2, "one_for_each", *arguments)
    assert [result.text[:7] for result in results] == ["told 1:", "told 2:", "told 3:"]
    assert len({result.conversation_id for result in results}) == 1
    assert list(scene.homes.iterdir()) == []


@pytest.mark.anyio
async def test_a_provider_of_ones_own(scene: Scene, agent: Agent) -> None:
    """docs/orchestrators.md, the fourth block: started, connected with its variables, stopped, also after a failure."""
    stopped: list[str] = []

    async def start(repository: Path) -> str:
        assert repository == scene.repository
        return scene.target

    async def stop(target: str) -> None:
        stopped.append(target)

    provider = names_of("orchestrators.md", 3)["Containers"](start, stop)
    runner = TurnRunner(agent, provider, repository=scene.repository)
    assert (await runner.run("hello")).text == "told 1: hello"
    agent.features.variables = {"HTTPS_PROXY": "http://other"}
    with pytest.raises(ConfigurationError) as caught:
        await runner.run("hello")
    assert caught.value.reason == "variable_collision"
    assert stopped == [scene.target, scene.target]
    assert provider.opened == {}


@pytest.mark.anyio
async def test_a_turn_that_is_tried_again_goes_on(scene: Scene, agent: Agent) -> None:
    """docs/orchestrators.md, the fifth block: the second attempt goes on with what the first left."""
    run_until_done = names_of("orchestrators.md", 4)["run_until_done"]
    agent.features.variables = {"MYCLI_FAILS_AT": "hello"}
    result = await run_until_done(scene.runner(agent), "hello")
    assert result.text == "told 2: You were interrupted. Go on."
    agent.features.variables = {"MYCLI_FAILS_AT": "hello"}
    with pytest.raises(ProcessError) as caught:
        await run_until_done(scene.runner(agent), "hello", attempts_count=1)
    assert caught.value.reason == "failed"


def test_turns_without_an_event_loop(scene: Scene, agent: Agent) -> None:
    """docs/orchestrators.md, the last block: a turn, one whose events are taken, and the one that goes on."""
    answer, other = names_of("orchestrators.md", 5)["work_blocking"](agent, scene.target, scene.repository)
    assert answer.text == "told 2: Now make it pass"
    assert other == ["conversation", "text", "text", "text"]
