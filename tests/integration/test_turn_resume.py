"""Conversations that go on: in the same sandbox, in another one, as a fork; and what is refused before that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from host_client.agents.adapter import Command, Continuation
from host_client.agents.event import ConversationEvent, TextEvent
from host_client.errors import (
    ConfigurationError,
    ConflictError,
    OutpostError,
    ProcessError,
    SessionError,
    WorkspaceError,
)
from host_client.stores.transcript import TranscriptConversations
from support.scripted_agent import ChoosingAdapter, ForkingAdapter, ScriptedAdapter, script
from support.transcript_format import LAYOUT
from support.turn_scene import Scene

if TYPE_CHECKING:
    from pathlib import Path

    from host_client.agents.adapter import TurnInput
    from host_client.stores.context import ConversationContext
    from host_client.stores.contract import ConversationRecord, RestoreOutcome
    from support.daemon import RunningDaemon

pytestmark = pytest.mark.anyio

ID = "S-1"


@pytest.fixture
def here(tmp_path: Path, shared_daemon: RunningDaemon) -> Scene:
    """A host whose turns all run in one sandbox."""
    return Scene(tmp_path, shared_daemon.target)


@pytest.fixture
def anywhere(tmp_path: Path) -> Scene:
    """A host whose turns each run in a new sandbox."""
    return Scene(tmp_path)


class NotedStore(TranscriptConversations):
    """A store that notes what it does."""

    def __init__(self) -> None:
        super().__init__(LAYOUT)
        self.steps: list[str] = []

    async def locate(self, conversation_id: str, context: ConversationContext) -> ConversationRecord:
        """Locate."""
        self.steps.append("locate")
        return await super().locate(conversation_id, context)

    async def capture(self, conversation_id: str, context: ConversationContext) -> ConversationRecord:
        """Capture."""
        self.steps.append("capture")
        return await super().capture(conversation_id, context)

    async def restore(self, record: ConversationRecord, context: ConversationContext) -> RestoreOutcome:
        """Restore."""
        self.steps.append("restore")
        return await super().restore(record, context)


async def test_a_conversation_goes_on_in_another_sandbox(anywhere: Scene) -> None:
    """A cold resume finds all that was said, in its own workspace, and is captured again."""
    first = await anywhere.runner().run(script(["say", "one"]))
    second = await first.resume(script(["recall"], ["say", "two"], ["where"]))
    assert second.text == f"onetwo{anywhere.provider.acquired[1].root}"
    assert second.conversation_id == first.conversation_id
    assert anywhere.provider.wanted[1].conversation_id == first.conversation_id
    third = await anywhere.runner().resume(str(first.conversation_id), script(["recall"]))
    assert third.text.startswith("one|two")
    assert list(anywhere.boxes.iterdir()) == []


async def test_a_warm_resume_does_not_restore(here: Scene, shared_daemon: RunningDaemon) -> None:
    """In the sandbox of the last turn the conversation is taken as it is, newer state than the host's included."""
    store = NotedStore()
    runner = here.runner(features={"storage": store})
    first = await runner.run(script(["say", "one"]))
    session = shared_daemon.home / f".mycli/sessions/{first.conversation_id}.jsonl"
    newer = '{"type": "assistant", "text": "by hand", "cwd": "/elsewhere"}\n'
    session.write_text(session.read_text() + newer)
    second = await first.resume(script(["recall"]))
    assert second.text == "one|by hand"
    assert store.steps == ["capture", "locate", "capture"]


async def test_another_runner_leaves_a_sandbox_alone_that_has_more(here: Scene) -> None:
    """What a sandbox has is compared with what the host has, by whoever resumes."""
    first = await here.runner().run(script(["say", "one"]))
    kept = here.said(str(first.conversation_id))
    second = await first.resume(script(["say", "two"]))
    here.kept(str(first.conversation_id)).write_text(kept)  # the host has less than the sandbox
    third = await here.runner().resume(str(second.conversation_id), script(["recall"]))
    assert third.text == "one|two"
    assert '"two"' in here.said(str(first.conversation_id))


async def test_a_store_of_ones_own_is_restored_from_by_another_runner(here: Scene) -> None:
    """A store that cannot compare restores, unless the runner itself was there last."""

    class Hidden:
        """Only what `ConversationStore` asks for."""

        format = None

        def __init__(self) -> None:
            self.native = NotedStore()
            self.locate, self.capture = self.native.locate, self.native.capture
            self.restore = self.native.restore

    store = Hidden()
    first = await here.runner(features={"storage": store}).run(script(["say", "one"]))
    again = await here.runner(features={"storage": store}).resume(str(first.conversation_id), script(["recall"]))
    assert again.text == "one"
    assert store.native.steps == ["capture", "locate", "restore", "capture"]


@pytest.mark.parametrize("adapter", [ScriptedAdapter, ChoosingAdapter, ForkingAdapter])
async def test_a_fork_is_a_conversation_of_its_own(anywhere: Scene, adapter: type[ScriptedAdapter]) -> None:
    """By a request, by one with a chosen id, and by a hook: the parent stays, the child has all of it."""
    first = await anywhere.runner(adapter).run(script(["say", "one"]))
    before = anywhere.said(str(first.conversation_id))
    child = await first.fork(script(["recall"], ["say", "two"]))
    assert child.text == "onetwo"
    assert child.conversation_id not in (None, first.conversation_id)
    assert '"two"' in anywhere.said(str(child.conversation_id))
    assert anywhere.said(str(first.conversation_id)) == before


@pytest.mark.parametrize("returned", [None, 5, "../x", "the parent"])
async def test_a_fork_that_is_none_is_refused(here: Scene, tmp_path: Path, returned: Any) -> None:
    """A hook that returns no id, or its parent's: the agent is not started."""
    first = await here.runner().run(script(["say", "one"]))

    class Adapter(ForkingAdapter):
        async def fork(self, conversation_id: str, run: Any) -> Any:  # noqa: ARG002  nothing is run
            return conversation_id if returned == "the parent" else returned

    with pytest.raises(OutpostError) as caught:
        await here.runner(Adapter).fork(str(first.conversation_id), script(["touch", str(tmp_path / "ran")]))
    assert caught.value.reason == ("invalid_id" if returned == "../x" else "reported_failure")
    assert not (tmp_path / "ran").exists()


async def test_a_child_is_announced_before_the_agent_runs(anywhere: Scene) -> None:
    """With a hook the id of a fork is the first event, and the failed turn of the child is captured."""
    first = await anywhere.runner(ForkingAdapter).run(script(["say", "one"]))
    runner = anywhere.runner(ForkingAdapter)
    continuation = Continuation(id=str(first.conversation_id), fork=True)
    async with runner.turn(script(["say", "two"], ["exit", 1], quiet=True), continuation=continuation) as turn:
        event = await anext(turn)
        assert isinstance(event, ConversationEvent)
        assert turn.conversation_id == event.id != first.conversation_id
        with pytest.raises(ProcessError):
            await turn.result()
    assert '"two"' in anywhere.said(str(turn.conversation_id))


async def test_no_announced_id_is_said_by_resume(here: Scene) -> None:
    """The turn succeeds, nothing is captured, and going on says why not before anything is allocated."""
    result = await here.runner().run(script(["say", "x"], quiet=True))
    assert (result.text, result.conversation_id, result.record) == ("x", None, None)
    for go_on in (result.resume, result.fork):
        with pytest.raises(ConfigurationError) as caught:
            await go_on(script(["say", "y"]))
        assert caught.value.reason == "no_conversation"
    assert len(here.provider.acquired) == 1


@pytest.mark.parametrize(
    ("features", "conversation_id", "text", "fork", "expected"),
    [
        ({"resumable": False}, ID, "go on", False, "configuration/not_supported"),
        ({"resumable": False}, ID, "go on", True, "configuration/not_supported"),
        ({"forkable": False}, ID, "go on", True, "configuration/not_supported"),
        ({"storage": None}, ID, "go on", False, "configuration/not_supported"),
        ({}, ID, "go on", False, "session/not_found"),
        ({}, ID, "go on", True, "session/not_found"),
        ({}, "../" + ID, "go on", False, "configuration/invalid_id"),
        ({}, "", "go on", False, "configuration/invalid_id"),
        ({}, None, "", False, "configuration/invalid_argument"),
        ({}, None, " \n", False, "configuration/invalid_argument"),
        ({}, None, "a\0b", False, "configuration/invalid_argument"),
        ({}, None, "\ud800", False, "configuration/invalid_argument"),
    ],
)
async def test_what_cannot_work_is_refused_before_anything_is_allocated(
    here: Scene, features: dict[str, Any], conversation_id: str | None, text: str, *, fork: bool, expected: str
) -> None:
    """An agent that cannot, a conversation that is nowhere, an id or a text that cannot be."""
    continuation = None if conversation_id is None else Continuation(id=conversation_id, fork=fork)
    with pytest.raises(OutpostError) as caught:
        async with here.runner(features=features).turn(text, continuation=continuation) as turn:
            await turn.result()
    assert f"{caught.value.code}/{caught.value.reason}" == expected
    assert here.provider.wanted == []


async def test_a_place_for_the_conversation_is_needed_before(here: Scene, tmp_path: Path) -> None:
    """A host that cannot keep the conversation is found out before the turn, not after it."""
    with pytest.raises(WorkspaceError) as missing:
        await here.runner(conversation_home=tmp_path / "missing").run("x")
    assert missing.value.reason == "not_found"
    with pytest.raises(ConfigurationError) as nowhere:
        await here.runner(conversation_home=None, repository=None).run("x")
    assert nowhere.value.reason == "invalid_argument"
    assert here.provider.wanted == []


async def test_a_conversation_has_one_turn_at_a_time(here: Scene, tmp_path: Path) -> None:
    """A second turn of a conversation that is being worked on is refused before it has a sandbox; a fork is not."""
    runner = here.runner()
    first = await runner.run(script(["say", "one"]))
    go_on = Continuation(id=str(first.conversation_id))
    async with runner.turn(script(["say", "two"], ["await", str(tmp_path / "go")]), continuation=go_on) as turn:
        while not isinstance(await anext(turn), TextEvent):
            pass
        with pytest.raises(ConflictError) as caught:
            await first.resume(script(["say", "three"]))
        assert caught.value.reason == "busy"
        assert len(here.provider.wanted) == 2
        assert (await first.fork(script(["recall"]))).text == "one|two"
        (tmp_path / "go").touch()
        await turn.result()
    assert (await first.resume(script(["recall"]))).text == "one|two"


async def test_variables_that_cannot_be_read_are_found_out_before(here: Scene, tmp_path: Path) -> None:
    """A link in place of the repository's file of variables is refused before anything is allocated."""
    (here.repository / ".outpost").mkdir()
    (here.repository / ".outpost/.env").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(WorkspaceError) as caught:
        await here.runner().run("x")
    assert caught.value.reason == "unsafe_path"
    assert here.provider.wanted == []


async def test_a_failed_restore_starts_nothing(anywhere: Scene, tmp_path: Path) -> None:
    """Nothing is resumed from nothing: no program runs, nothing is captured, and no result exists."""

    class Store(NotedStore):
        async def restore(self, record: ConversationRecord, context: ConversationContext) -> RestoreOutcome:
            del record, context
            self.steps.append("restore")
            raise SessionError("digest_mismatch", "it is not what it was")

    first = await anywhere.runner().run(script(["say", "one"]))
    store = Store()
    runner = anywhere.runner(features={"storage": store})
    with pytest.raises(SessionError) as caught:
        await runner.resume(str(first.conversation_id), script(["touch", str(tmp_path / "ran")]))
    assert caught.value.reason == "digest_mismatch"
    assert "conversation" not in caught.value.facts
    assert not (tmp_path / "ran").exists()
    assert store.steps[-1] == "restore"
    assert anywhere.provider.released == anywhere.provider.acquired


async def test_an_agent_that_begins_anew_is_ended(anywhere: Scene, tmp_path: Path) -> None:
    """A CLI that resumes nothing without a word does not get to work, and the failure names both conversations."""

    class ForgetfulAdapter(ScriptedAdapter):
        def request(self, turn: TurnInput) -> Command:
            made = super().request(turn)
            return Command(made.executable, made.arguments[:3], made.stdin)

    first = await anywhere.runner().run(script(["say", "one"]))
    with pytest.raises(ProcessError) as caught:
        await anywhere.runner(ForgetfulAdapter).resume(
            str(first.conversation_id), script(["await", str(tmp_path / "never")])
        )
    assert caught.value.reason == "reported_failure"
    assert caught.value.facts["resumed"] == first.conversation_id
    assert caught.value.facts["conversation"] != first.conversation_id


async def test_an_agent_that_does_not_know_the_conversation_fails(here: Scene) -> None:
    """What the CLI itself says of a session that it has not got is the failure; nothing is captured for it."""
    first = await here.runner().run(script(["say", "one"]))

    class Adapter(ScriptedAdapter):
        variables = {"HOME": "/nonexistent"}  # noqa: RUF012  as users write it

    with pytest.raises(ProcessError) as caught:
        await here.runner(Adapter).resume(str(first.conversation_id), script(["say", "x"]))
    assert caught.value.reason == "failed"
    assert "No conversation found" in caught.value.facts["stderr"]


async def test_without_a_storage_a_conversation_goes_on_where_it_is(here: Scene) -> None:
    """The runner that ran it resumes it in the same sandbox; in another one it is refused there."""
    runner = here.runner(features={"storage": None})
    first = await runner.run(script(["say", "one"]))
    second = await first.resume(script(["recall"]))
    assert second.text == "one"


async def test_without_a_storage_another_sandbox_is_refused(anywhere: Scene) -> None:
    """What the new sandbox has not got is not resumed there, and the sandbox is released."""
    first = await anywhere.runner(features={"storage": None}).run(script(["say", "one"]))
    with pytest.raises(ConfigurationError) as caught:
        await first.resume(script(["recall"]))
    assert caught.value.reason == "not_supported"
    assert anywhere.provider.released == anywhere.provider.acquired
