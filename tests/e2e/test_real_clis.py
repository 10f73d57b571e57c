"""The promise itself: a conversation of a real CLI goes on in another home and workspace, and comes back.

The CLIs are the vendors' own, run offline against a stub model that shows what history it was sent. Ours are the
`outpost` command and the daemon it starts. Run by `make test-clis`.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from e2e.clis.install import UnavailableError
from e2e.clis.program import Copilot, Kimi, Program
from support.stub_model import StubModel
from support.stub_model.conversation import Message, Request, said_by_user

pytestmark = [pytest.mark.clis, pytest.mark.timeout(900)]

OUTPOST = Path(sys.executable).with_name("outpost")
OUTPOST_SECONDS = 60


@dataclass(frozen=True)
class Sandbox:
    """A home and a workspace of one machine."""

    home: Path
    workspace: Path

    @property
    def target(self) -> str:
        """Name it as the command line does."""
        return f"local:{self.home},{self.workspace}"


@pytest.fixture
def model(tmp_path: Path) -> Iterator[StubModel]:
    """Serve the stub model for one test."""
    with StubModel(tmp_path / "requests.jsonl") as serving:
        yield serving


@pytest.fixture(params=[Copilot, Kimi], ids=lambda program: program.name)
def program(request: pytest.FixtureRequest, model: StubModel) -> Program:
    """Provide each CLI, or say why it cannot be had here."""
    try:
        made: Program = request.param(model.url)
    except UnavailableError as reason:
        pytest.skip(f"{request.param.name} cannot be installed here: {reason}")
    return made


@pytest.fixture
def sandboxes(tmp_path: Path, program: Program) -> tuple[Sandbox, Sandbox]:
    """Make two places that share nothing but the machine; the second is longer and has a space in its name."""
    made = []
    for place in ("a", "another place/further down"):
        sandbox = Sandbox(tmp_path / place / "home", tmp_path / place / "code/demo-app")
        sandbox.home.mkdir(parents=True)
        sandbox.workspace.mkdir(parents=True)
        subprocess.run(["git", "init", "--quiet", str(sandbox.workspace)], check=True, env={"PATH": "/usr/bin:/bin"})
        program.configure(sandbox.home)
        made.append(sandbox)
    return made[0], made[1]


def outpost(*arguments: str) -> dict[str, Any]:
    """Run our command as a script would, and read its result."""
    command = [str(OUTPOST), *arguments, "--json"]
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=OUTPOST_SECONDS, check=False
    )
    assert done.returncode == 0, f"{command}: status {done.returncode}\n{done.stdout}\n{done.stderr}"
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def carry(program: Program, conversation_id: str, source: Sandbox, target: Sandbox, repository: Path) -> Sequence[str]:
    """Move the conversation with our command; return the command that resumes it."""
    outpost("capture", source.target, program.name, conversation_id, "--repository", str(repository))
    restored = outpost("restore", target.target, program.name, conversation_id, "--repository", str(repository))
    assert not restored["unchanged"]
    resume: Sequence[str] = restored["resume"]
    return resume


def turn_of(request: Request, prompt: str) -> Sequence[Message]:
    """Cut what was said from the prompt on."""
    starts = [number for number, message in enumerate(request.messages) if message.text.find(prompt) >= 0]
    return request.messages[starts[-1] :]


def check_resumed(requests: Sequence[Request], history: Sequence[str], here: Sandbox, there: Sandbox) -> None:
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
        told = "\n".join(message.text for message in request.messages if message.role == "system")
        assert str(here.workspace) in told
        assert str(there.workspace) not in told
        assert str(there.home) not in told
        assert not any(str(there.workspace) in message.text for message in turn_of(request, prompt))
    results = [message.text for message in turn_of(asked[-1], prompt) if message.role == "tool"]
    assert any(str(here.workspace) in text for text in results), "the tool ran elsewhere"


def test_a_conversation_goes_on_elsewhere_and_comes_back(
    program: Program, model: StubModel, sandboxes: tuple[Sandbox, Sandbox], tmp_path: Path
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
        resume = carry(program, conversation_id, source, target, tmp_path / "repository")
        history.append(f"move {number} RUN{{pwd; echo {number} > moved-{number}.txt}}")
        assert program.turn(target.home, target.workspace, history[-1], resume=resume) == conversation_id
        check_resumed(model.requests()[before:], history, target, source)
        assert (target.workspace / f"moved-{number}.txt").read_text() == f"{number}\n"
        assert not (source.workspace / f"moved-{number}.txt").exists()
