"""The promise itself: a conversation of a real CLI goes on in another home and workspace, and comes back.

The CLIs are the vendors' own, run offline against a stub model that shows what history it was sent. Ours are the
`outpost` command and the daemon it starts. Run by `make test-clis`.
"""

from collections.abc import Sequence
from pathlib import PurePosixPath

import pytest

from e2e.clis.host import Host, Sandbox
from e2e.clis.program import Copilot, Program
from e2e.clis.terminal import Terminal
from support.stub_model import StubModel
from support.stub_model.conversation import Message, Request, said_by_user

pytestmark = [pytest.mark.clis, pytest.mark.timeout(900)]


def turn_of(request: Request, prompt: str) -> Sequence[Message]:
    """Cut what was said from the prompt on."""
    starts = [number for number, message in enumerate(request.messages) if message.text.find(prompt) >= 0]
    return request.messages[starts[-1] :]


def check_resumed(
    program: Program, requests: Sequence[Request], history: Sequence[str], here: Sandbox, there: Sandbox
) -> None:
    """Check from what the model was sent that the conversation went on, here and not there."""
    prompt = history[-1]
    assert requests, "the model was not asked"
    asked = [request for request in requests if said_by_user(request.messages)[-1] == prompt]
    assert len(asked) == 2, "one question and one with the tool's result"
    for request in asked:
        assert said_by_user(request.messages) == list(history)
        answers = [message.text for message in request.messages if message.role == "model" and message.text]
        for number in range(1, len(history)):
            assert any(f"I was told {number} things: {' | '.join(history[:number])}." in text for text in answers)
        told = program.told_place(request.messages)
        assert str(here.workspace) in told
        assert str(there.workspace) not in told
        assert str(there.home) not in told
        said = [message.text for message in turn_of(request, prompt) if message.role != "system"]
        assert not any(str(there.workspace) in text for text in said)
    results = [message.text for message in turn_of(asked[-1], prompt) if message.role == "tool"]
    assert any(str(here.workspace) in text for text in results), "the tool ran elsewhere"


def test_a_conversation_goes_on_elsewhere_and_comes_back(
    program: Program, model: StubModel, sandboxes: tuple[Sandbox, Sandbox], host: Host
) -> None:
    """History, tools and instructions follow the conversation to another home and workspace, there and back again."""
    first, second = sandboxes
    history = ["please remember alpha", "then RUN{pwd; echo one > first.txt}"]
    conversation_id = program.turn(first.home, first.workspace, history[0])
    resume = program.resume_command(conversation_id, PurePosixPath(first.workspace))
    assert program.turn(first.home, first.workspace, history[1], resume=resume) == conversation_id
    assert (first.workspace / "first.txt").read_text() == "one\n"

    for number, (source, target) in enumerate([(first, second), (second, first)]):
        before = len(model.requests())
        restored = host.carry(conversation_id, source, target)
        assert not restored["unchanged"]
        assert bool(restored["recovery"]) == (target is first), "a session that was there is set aside"
        history.append(f"move {number} RUN{{pwd; echo {number} > moved-{number}.txt}}")
        assert program.turn(target.home, target.workspace, history[-1], resume=restored["resume"]) == conversation_id
        check_resumed(program, model.requests()[before:], history, target, source)
        assert (target.workspace / f"moved-{number}.txt").read_text() == f"{number}\n"
        assert not (source.workspace / f"moved-{number}.txt").exists()


@pytest.mark.parametrize("program", [Copilot], indirect=True, ids=["copilot"])
def test_copilot_finds_the_new_workspace_by_itself(
    program: Program, sandboxes: tuple[Sandbox, Sandbox], host: Host
) -> None:
    """Resumed from anywhere and without `-C`, it goes to the recorded directory: that is the new one, not the old."""
    first, second = sandboxes
    conversation_id = program.turn(first.home, first.workspace, "please remember alpha")
    host.carry(conversation_id, first, second)
    resume = ["copilot", "--resume", conversation_id]
    program.turn(second.home, second.home, "then RUN{echo here > here.txt}", resume=resume)
    assert (second.workspace / "here.txt").read_text() == "here\n"
    assert not (first.workspace / "here.txt").exists()


@pytest.mark.parametrize("program", [Copilot], indirect=True, ids=["copilot"])
def test_copilot_takes_back_a_change_of_before_the_move(
    program: Program, sandboxes: tuple[Sandbox, Sandbox], host: Host
) -> None:
    """The rewind index fits the new place: its paths, their hex forms and the keys made from them.

    With any of them left as it was, Copilot takes the file for one that the user has edited, and leaves it.
    """
    first, second = sandboxes
    conversation_id = program.turn(first.home, first.workspace, "please remember alpha")
    resume = program.resume_command(conversation_id, PurePosixPath(first.workspace))
    program.turn(first.home, first.workspace, "then RUN{echo one > made.txt}", resume=resume)
    (second.workspace / "made.txt").write_bytes((first.workspace / "made.txt").read_bytes())
    restored = host.carry(conversation_id, first, second)

    command = [*program.executable(), *restored["resume"][1:], "--allow-all"]
    environment = program.environment(second.home)
    del environment["CI"]
    with Terminal(command, environment, second.workspace) as terminal:
        terminal.wait_for("Do you trust the files in this folder?")
        terminal.type("\r")
        terminal.wait_for("help")
        terminal.type("/rewind")
        terminal.wait_for("/rewind")
        terminal.type("\r")
        terminal.wait_for("Rewind to a previous point")
        terminal.type("\r")
        terminal.wait_for("Conversation + files")
        terminal.type("\x1b[B")
        terminal.wait_for("❯ Conversation + files")
        terminal.type("\r")
        terminal.wait_for("Enter Restore")
        terminal.type("\r")
        terminal.wait_for("restored 1 file(s)")
    assert not (second.workspace / "made.txt").exists()
    assert (first.workspace / "made.txt").exists()
