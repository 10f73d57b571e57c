"""The conversation of a turn that was killed before it told its id."""

from __future__ import annotations

import pytest

from host_client.agents.adapter import Command
from host_client.stores.context import ConversationContext
from host_client.turns.unannounced import Unannounced

pytestmark = pytest.mark.anyio

CHOSEN = "6f1c1a52-8c9e-4e0f-9b9e-0d5f2f6f7a10"


@pytest.mark.parametrize(
    ("command", "found"),
    [
        (Command("mycli", ["--session-id", CHOSEN]), CHOSEN),
        (Command("mycli", [f"--session-id={CHOSEN}"]), CHOSEN),
        (Command("mycli", variables={"MYCLI_SESSION": CHOSEN}), CHOSEN),
        (Command("mycli", ["--print"], CHOSEN), ""),
    ],
)
async def test_the_id_that_was_chosen_is_the_turns(command: Command, found: str) -> None:
    """Where the command gives it to the CLI, as a word, in one or in a variable; its input is what the user says."""
    unannounced = Unannounced(None, ConversationContext(), CHOSEN)
    await unannounced.look(command)
    assert await unannounced.find() == found
