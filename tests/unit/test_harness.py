"""What makes an adapter an agent: features that can be, checked once when it is made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from host_client.agents.adapter import AgentAdapter
from host_client.agents.harness import CliHarness, create_agent
from host_client.errors import ConfigurationError
from support.scripted_agent import ScriptedAdapter, agent_of

if TYPE_CHECKING:
    from collections.abc import Callable


def refusal(**features: Any) -> ConfigurationError:
    """Return why an agent with these features cannot be."""
    with pytest.raises(ConfigurationError) as caught:
        agent_of(**features)
    return caught.value


def test_an_agent_has_the_features_of_its_adapter() -> None:
    """The adapter is bound once to look at it, then once for every turn."""
    bound: list[AgentAdapter] = []

    def bind() -> AgentAdapter:
        bound.append(ScriptedAdapter())
        return bound[-1]

    agent = create_agent(CliHarness(bind))
    assert (agent.name, agent.features) == ("mycli", bound[0])
    assert agent.bind() is bound[1]
    assert len(bound) == 2


@pytest.mark.parametrize("name", ["", "two\nlines", "n" * 65, None, 5])
def test_a_name_is_required(name: object) -> None:
    """Printable text of a bounded length."""
    assert refusal(name=name).reason == "invalid_argument"


def test_an_adapter_without_a_name_is_refused() -> None:
    """The name has no default."""

    class Nameless(AgentAdapter):
        request = ScriptedAdapter.request
        events = ScriptedAdapter.events

    with pytest.raises(ConfigurationError) as caught:
        create_agent(CliHarness(Nameless))
    assert caught.value.reason == "invalid_argument"


def test_what_is_no_adapter_is_refused() -> None:
    """The harness returns adapters."""
    with pytest.raises(ConfigurationError) as caught:
        create_agent(CliHarness(cast("Callable[[], AgentAdapter]", object)))
    assert caught.value.reason == "invalid_argument"


def test_an_unknown_tool_is_refused() -> None:
    """`bootstrap` names a tool of the catalogue; the error says which there are."""
    error = refusal(bootstrap="emacs")
    assert error.reason == "unknown_agent"
    assert "codex" in error.facts["known"]
    assert agent_of(bootstrap="codex").features.bootstrap == "codex"


@pytest.mark.parametrize(
    "features",
    [
        {"usage": "guess"},
        {"usage": "session"},
        {"storage": None, "capture": True},
        {"variables": {"a-b": "1"}},
        {"variables": {"A": 1}},
        {"variables": {"A": "secret\0"}},
        {"variables": {1: "1"}},
        {"variables": None},
        {"variables": ["secret"]},
        {"bootstrap": 5},
        {"storage": "secret"},
        {"requires_finished_event": None},
        {"requires_finished_event": "no"},
        {"capture": "no"},
        {"resumable": "no"},
        {"forkable": 0},
    ],
)
def test_features_that_cannot_be_are_refused(features: dict[str, Any]) -> None:
    """A mode that is none, one without its hook, a capture without a storage, and whatever has not its type."""
    error = refusal(**features)
    assert error.reason == "invalid_argument"
    assert "secret" not in str(error)
