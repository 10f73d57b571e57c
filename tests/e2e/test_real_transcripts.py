"""What only CLIs with transcripts have: agents and forks with files of their own, folders named after the workspace.

The CLIs are the vendors' own, as in `test_real_clis`, and so is the judge: the stub model's log of what it was sent.
"""

import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath

import pytest
import zstandard

from e2e.clis.host import Host, Sandbox, new_sandbox
from e2e.clis.transcript_program import Claude, Codex, TranscriptProgram
from support.stub_model import StubModel
from support.stub_model.conversation import Request, said_by_user
from support.wait import wait_until

pytestmark = [pytest.mark.clis, pytest.mark.timeout(300)]

both = pytest.mark.parametrize("program", [Claude, Codex], indirect=True, ids=lambda program: program.name)
only_claude = pytest.mark.parametrize("program", [Claude], indirect=True, ids=["claude"])
only_codex = pytest.mark.parametrize("program", [Codex], indirect=True, ids=["codex"])

FORGOTTEN_SECONDS = 40 * 24 * 3600
"""Age at which Claude Code deletes what it keeps; 30 days is its default."""


def questions(requests: Sequence[Request], newest: str) -> list[Request]:
    """Select what was asked in the turn of a prompt, by the agent that got it."""
    return [request for request in requests if newest in said_by_user(request.messages)[-1]]


def results(request: Request) -> list[str]:
    """List what tools answered, as far as a request tells."""
    return [message.text for message in request.messages if message.role == "tool"]


def delegate(program: TranscriptProgram, model: StubModel, place: Sandbox, prompt: str) -> tuple[str, str]:
    """Begin a conversation that delegates; return its id and the agent's."""
    conversation_id = program.turn(place.home, place.workspace, prompt)
    found = program.agent.search("\n".join(results(questions(model.requests(), prompt)[-1])))
    assert found, "no agent was started"
    return conversation_id, found[1]


@pytest.fixture
def longer(program: TranscriptProgram, tmp_path: Path) -> Sandbox:
    """Make a place whose workspace has a much longer name; Codex cannot open its databases in such a home."""
    return new_sandbox(program, tmp_path / "b" / "home", tmp_path.joinpath("b", *["a folder of many"] * 30))


@both
def test_an_agent_is_continued_after_each_move(
    program: TranscriptProgram, model: StubModel, sandboxes: tuple[Sandbox, Sandbox], host: Host
) -> None:
    """The conversation goes on with the agent it had started elsewhere: both remember all and work in the new place."""
    first, second = sandboxes
    told = ["count RUN{pwd}"]
    history = [f"please DELEGATE{{{told[0]}}}"]
    conversation_id, agent = delegate(program, model, first, history[0])
    for number, (source, target) in enumerate([(first, second), (second, first)]):
        restored = host.carry(conversation_id, source, target)
        before = len(model.requests())
        told.append(f"and again {number} RUN{{pwd}}")
        history.append(f"now TELL{{{agent}: {told[-1]}}}")
        program.turn(target.home, target.workspace, history[-1], resume=restored["resume"])
        requests = model.requests()[before:]
        own = [request for request in requests if said_by_user(request.messages)[0] == history[0]]
        assert own
        assert all(said_by_user(request.messages) == history for request in own)
        heard = [request for request in requests if said_by_user(request.messages)[0] == told[0]]
        assert len(heard) == 2, "one question and one with the tool's result"
        for request in heard:
            texts = said_by_user(request.messages)
            assert len(texts) == len(told)
            assert all(words in text for words, text in zip(told, texts, strict=True))
        assert str(target.workspace) in results(heard[-1])[-1]


@only_codex
def test_the_thread_of_an_agent_is_resumed_by_its_own_id(
    program: TranscriptProgram, model: StubModel, sandboxes: tuple[Sandbox, Sandbox], host: Host
) -> None:
    """It came with the conversation that started it."""
    first, second = sandboxes
    conversation_id, agent = delegate(program, model, first, "please DELEGATE{count to ten}")
    host.carry(conversation_id, first, second)
    resume = program.resume_command(agent, PurePosixPath(second.workspace))
    assert program.turn(second.home, second.workspace, "and to twenty", resume=resume) == agent
    assert said_by_user(model.requests()[-1].messages) == ["count to ten", "and to twenty"]


@pytest.mark.parametrize(
    ("program", "is_longer_first"),
    [(Claude, False), (Codex, False), (Codex, True)],
    indirect=["program"],
    ids=["claude", "codex-to-longer-name", "codex-to-shorter-name"],
)
def test_forks_and_their_parent_go_on_after_each_move(
    program: TranscriptProgram,
    model: StubModel,
    sandboxes: tuple[Sandbox, Sandbox],
    longer: Sandbox,
    host: Host,
    *,
    is_longer_first: bool,
) -> None:
    """Each remembers what was common and what was its own, however long the names of the places are.

    A fork of Codex is the parent's file up to a byte, and a file of its own from there on: a number of bytes that is
    not that of the new place cuts off what was said last, or is more than there are.
    """
    first, second = (longer, sandboxes[0]) if is_longer_first else (sandboxes[0], longer)
    common = ["please remember alpha", "then RUN{pwd}"]
    parent = program.turn(first.home, first.workspace, common[0])
    resume = program.resume_command(parent, PurePosixPath(first.workspace))
    program.turn(first.home, first.workspace, common[1], resume=resume)
    fork = program.turn(first.home, first.workspace, "forked", resume=program.fork_command(parent))
    second_fork = program.turn(first.home, first.workspace, "and again", resume=program.fork_command(fork))
    histories = {second_fork: [*common, "forked", "and again"], fork: [*common, "forked"], parent: common}
    assert len(histories) == 3

    for number, (source, target) in enumerate([(first, second), (second, first)]):
        for conversation_id, history in histories.items():
            restored = host.carry(conversation_id, source, target)
            history.append(f"move {number} RUN{{pwd}}")
            program.turn(target.home, target.workspace, history[-1], resume=restored["resume"])
            request = model.requests()[-1]
            assert said_by_user(request.messages) == history
            answers = [message.text for message in request.messages if message.role == "model" and message.text]
            assert [text.split(":")[0] for text in answers] == [
                f"I was told {count} things" for count in range(1, len(history))
            ]
            assert str(target.workspace) in results(request)[-1]


@only_codex
def test_a_parent_that_went_on_is_left_as_it_is(
    program: TranscriptProgram, model: StubModel, sandboxes: tuple[Sandbox, Sandbox], host: Host
) -> None:
    """A fork that is moved again finds the parent it needs, and takes nothing from it."""
    first, second = sandboxes
    parent = program.turn(first.home, first.workspace, "please remember alpha")
    fork = program.turn(first.home, first.workspace, "forked", resume=program.fork_command(parent))
    host.carry(fork, first, second)
    went_on = program.resume_command(parent, PurePosixPath(second.workspace))
    program.turn(second.home, second.workspace, "went on there", resume=went_on)
    resume = program.resume_command(fork, PurePosixPath(first.workspace))
    program.turn(first.home, first.workspace, "went on here", resume=resume)
    restored = host.carry(fork, first, second)
    program.turn(second.home, second.workspace, "and on", resume=restored["resume"])
    history = ["please remember alpha", "forked", "went on here", "and on"]
    assert said_by_user(model.requests()[-1].messages) == history
    program.turn(second.home, second.workspace, "and on", resume=went_on)
    assert said_by_user(model.requests()[-1].messages) == ["please remember alpha", "went on there", "and on"]


@only_codex
def test_a_fork_of_a_compressed_rollout_goes_on(
    program: TranscriptProgram, model: StubModel, sandboxes: tuple[Sandbox, Sandbox], longer: Sandbox, host: Host
) -> None:
    """Codex compresses old rollouts; the bytes that a fork counts are those of the content, and move with it."""
    first, second = sandboxes[0], longer
    history = ["please remember alpha", "forked"]
    parent = program.turn(first.home, first.workspace, history[0])
    fork = program.turn(first.home, first.workspace, history[1], resume=program.fork_command(parent))
    (plain,) = program.transcripts(first.home).rglob(f"*{parent}.jsonl")
    plain.with_name(f"{plain.name}.zst").write_bytes(zstandard.compress(plain.read_bytes()))
    plain.unlink()
    restored = host.carry(fork, first, second)
    assert [path.suffix for path in program.transcripts(second.home).rglob(f"*{parent}*")] == [".zst"]
    program.turn(second.home, second.workspace, "and on", resume=restored["resume"])
    request = model.requests()[-1]
    assert said_by_user(request.messages) == [*history, "and on"]
    assert [message.text for message in request.messages if message.role == "model"] == [
        "I was told 1 things: please remember alpha. Tools answered 0 times.",
        "I was told 2 things: please remember alpha | forked. Tools answered 0 times.",
    ]


@only_codex
def test_codex_finds_it_as_the_newest_of_the_workspace(
    program: TranscriptProgram, model: StubModel, sandboxes: tuple[Sandbox, Sandbox], host: Host
) -> None:
    """`--last` looks for the directory that the rollout names last: that is the new one."""
    first, second = sandboxes
    conversation_id = program.turn(first.home, first.workspace, "please remember alpha")
    host.carry(conversation_id, first, second)
    last = ["codex", "exec", "resume", "--last"]
    assert program.turn(second.home, second.workspace, "and on", resume=last) == conversation_id
    assert said_by_user(model.requests()[-1].messages) == ["please remember alpha", "and on"]


@both
def test_the_user_goes_on_at_home(
    program: TranscriptProgram, model: StubModel, sandboxes: tuple[Sandbox, Sandbox], host: Host
) -> None:
    """What is captured, again and again, is a conversation that the user's own CLI resumes; what it adds moves on."""
    first, second = sandboxes
    history = ["please remember alpha", "then RUN{seq 2000}", "at home RUN{pwd}", "and on"]
    conversation_id = program.turn(first.home, first.workspace, history[0])
    host.capture(conversation_id, first)
    resume = program.resume_command(conversation_id, PurePosixPath(first.workspace))
    program.turn(first.home, first.workspace, history[1], resume=resume)
    captured = host.capture(conversation_id, first)
    assert captured["received_bytes"] < captured["bytes"], "what was there already came again"
    resume = program.resume_command(conversation_id, PurePosixPath(host.own.workspace))
    program.turn(host.own.home, host.own.workspace, history[2], resume=resume)
    request = model.requests()[-1]
    assert said_by_user(request.messages) == history[:3]
    assert str(host.own.workspace) in results(request)[-1]
    restored = host.restore(conversation_id, second)
    program.turn(second.home, second.workspace, history[3], resume=restored["resume"])
    assert said_by_user(model.requests()[-1].messages) == history


@both
def test_a_running_conversation_is_captured_and_not_replaced(
    program: TranscriptProgram, model: StubModel, sandboxes: tuple[Sandbox, Sandbox], host: Host
) -> None:
    """The CLI's own sign is understood: what is there so far goes on elsewhere, and nothing is put over it."""
    first, second = sandboxes
    history = ["please remember alpha", "RUN{touch begun; until [ -e over ]; do sleep 0.1; done}"]
    conversation_id = program.turn(first.home, first.workspace, history[0])
    host.carry(conversation_id, first, second)
    resume = program.resume_command(conversation_id, PurePosixPath(first.workspace))
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(program.turn, first.home, first.workspace, history[1], resume=resume)
        try:
            wait_until((first.workspace / "begun").exists, "the tool to run")
            assert host.refusal(conversation_id, first) == "in_use"
            captured = host.capture(conversation_id, first)
            assert "in_use" in [notice["reason"] for notice in captured["notices"]]
            restored = host.restore(conversation_id, second)
        finally:
            (first.workspace / "over").touch()
        running.result()
    program.turn(second.home, second.workspace, "and on", resume=restored["resume"])
    assert said_by_user(model.requests()[-1].messages) == [*history, "and on"]
    assert not host.carry(conversation_id, second, first)["unchanged"], "it is in use no more"


@only_claude
def test_what_was_restored_is_not_deleted_as_old(
    program: TranscriptProgram, model: StubModel, sandboxes: tuple[Sandbox, Sandbox], host: Host
) -> None:
    """Claude Code deletes files that are older than 30 days when it starts: what is restored counts from now."""
    first, second = sandboxes
    history = ["please DELEGATE{count to ten}", "and RUN{seq 1 40000}", "and on"]
    conversation_id, _ = delegate(program, model, first, history[0])
    resume = program.resume_command(conversation_id, PurePosixPath(first.workspace))
    program.turn(first.home, first.workspace, history[1], resume=resume)
    old = time.time() - FORGOTTEN_SECONDS
    for path in program.transcripts(first.home).rglob("*"):
        os.utime(path, (old, old))
    restored = host.carry(conversation_id, first, second)
    folder = program.transcripts(second.home)
    arrived = [path for path in folder.rglob("*") if path.is_file()]
    assert sorted(path.parent.name for path in arrived if path.parent.parent != folder) == [
        "subagents",
        "subagents",
        "tool-results",
    ]
    forgotten = folder / "-elsewhere" / "5a0c3f63-5c0e-4b57-9d0d-0a2f6a3f5e7b.jsonl"
    forgotten.parent.mkdir()
    forgotten.write_text('{"type":"user"}\n')
    os.utime(forgotten, (old, old))

    # It does so some seconds after its start.
    cleaned = folder.parent / ".last-cleanup"
    wait = f"until [ -e '{cleaned}' ] && ! [ -e '{forgotten}' ]; do sleep 0.1; done"
    program.turn(second.home, second.workspace, f"another conversation RUN{{{wait}}}")
    assert not forgotten.exists()
    assert all(path.exists() for path in arrived)
    program.turn(second.home, second.workspace, history[2], resume=restored["resume"])
    assert said_by_user(model.requests()[-1].messages) == history


@only_claude
@pytest.mark.parametrize("name", ["long/" * 45 + "demo-app", "Ünï_côdé.d/日本 語/🧪 (x)~"], ids=["long", "odd"])
def test_claude_finds_it_by_the_name_of_the_workspace(
    program: TranscriptProgram,
    model: StubModel,
    sandboxes: tuple[Sandbox, Sandbox],
    host: Host,
    tmp_path: Path,
    *,
    name: str,
) -> None:
    """What is restored lies in the folder that Claude Code itself makes for the workspace, and goes on there."""
    first, _ = sandboxes
    place = new_sandbox(program, tmp_path / "named" / "home", tmp_path / "named" / name)
    conversation_id = program.turn(first.home, first.workspace, "please remember alpha")
    restored = host.carry(conversation_id, first, place)
    other = program.turn(place.home, place.workspace, "another conversation")
    program.turn(place.home, place.workspace, "and on", resume=restored["resume"])
    assert said_by_user(model.requests()[-1].messages) == ["please remember alpha", "and on"]
    folders = {path.stem: path.parent for path in program.transcripts(place.home).rglob("*.jsonl")}
    assert set(folders) == {conversation_id, other}
    assert len(set(folders.values())) == 1
