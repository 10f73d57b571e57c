"""What `outpost show` prints of a transcript with several ends is what its CLI goes on with.

The CLI is the vendor's own, and the judge is the stub model's log of what it was sent.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest

from e2e.clis.host import Sandbox
from e2e.clis.transcript_program import Claude, TranscriptProgram
from host_client import TextPart, read_message_file
from support.stub_model import StubModel
from support.stub_model.conversation import said_by_user

pytestmark = [pytest.mark.clis, pytest.mark.timeout(300)]

NOTE = b'"type":"last-prompt"'


@pytest.mark.parametrize("program", [Claude], indirect=True, ids=["claude"])
@pytest.mark.parametrize("kept", ["both notes", "the first note", "the second note", "no note", "turned around"])
def test_of_two_branches_the_one_is_shown_that_is_resumed(
    program: TranscriptProgram, model: StubModel, sandboxes: tuple[Sandbox, Sandbox], kept: str
) -> None:
    """Two processes went on with one conversation: whatever they noted, what is shown is what the model is told."""
    home, workspace = sandboxes[0].home, sandboxes[0].workspace
    conversation_id = program.turn(home, workspace, "the beginning")
    (path,) = program.transcripts(home).glob(f"*/{conversation_id}.jsonl")
    begin = path.read_bytes()
    resume = program.resume_command(conversation_id, workspace)
    branches = []
    for prompt in ("one way", "another way"):
        path.write_bytes(begin)
        program.turn(home, workspace, prompt, resume=resume)
        branches.append(path.read_bytes()[len(begin) :])
    first, second = branches if kept != "turned around" else reversed(branches)
    if kept in ("the second note", "no note"):
        first = without_notes(first)
    if kept in ("the first note", "no note"):
        second = without_notes(second)
    path.write_bytes((begin if kept != "no note" else without_notes(begin)) + first + second)
    shown = typed(path)
    before = len(model.requests())
    program.turn(home, workspace, "the end", resume=resume)
    told = [said_by_user(request.messages) for request in model.requests()[before:]]
    (texts,) = [one for one in told if any("the end" in text for text in one)]
    ways = ("the beginning", "one way", "another way")
    assert [way for way in ways if any(way in text for text in texts)] == [way for way in ways if way in shown]
    assert len(shown) == 2


def without_notes(lines: bytes) -> bytes:
    """Return lines without those by which Claude Code notes where it is."""
    return b"".join(line for line in lines.splitlines(keepends=True) if NOTE not in line)


def typed(path: Path) -> Sequence[str]:
    """Return what is shown as typed."""
    messages = [message for message in read_message_file("claude", path) if message.role == "user"]
    return [part.text for message in messages for part in message.parts if isinstance(part, TextPart)]
