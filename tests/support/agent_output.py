"""Output of built-in agents: adapters bound for one turn, recorded lines, and lines that nobody would print."""

import json
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any, get_args

from hypothesis import strategies as st

from host_client.agents.adapter import AgentAdapter, Continuation, TurnInput
from host_client.agents.event import AgentEvent
from host_client.agents.registry import builtin_agent

DATA = Path(__file__).parents[1] / "data"
EVENTS = get_args(AgentEvent)


def bound(name: str, **options: Any) -> AgentAdapter:
    """Return the adapter of one turn of a built-in agent."""
    return builtin_agent(name, **options).bind()


def turn(text: str = "hello", *, resume: str = "", fork: str = "", conversation_id: str = "") -> TurnInput:
    """Return what a turn is asked to do: a new conversation, one that goes on, or a copy of one."""
    return TurnInput(
        text=text,
        continuation=Continuation(id=resume or fork, fork=bool(fork)) if resume or fork else None,
        conversation_id=conversation_id,
        workspace=PurePosixPath("/work space"),
        home=PurePosixPath("/home/dev"),
    )


def recorded(name: str, recording: str) -> list[str]:
    """Return what the CLI printed in the recording's last turn, cut where the runner cuts."""
    text = (DATA / name / recording / "stdout.jsonl").read_bytes().decode()
    return [line for line in text.split("\n") if line]


def recordings(name: str) -> list[str]:
    """Name every recording that has the CLI's output."""
    return sorted(str(path.parent.relative_to(DATA / name)) for path in DATA.glob(f"{name}/*/*/stdout.jsonl"))


def read(adapter: AgentAdapter, lines: Sequence[str]) -> list[AgentEvent]:
    """Return what all lines mean."""
    return [event for line in lines for event in adapter.events(line)]


def line(**fields: object) -> str:
    """Word a line of JSON."""
    return json.dumps(fields)


def check_any_line(adapter: AgentAdapter, text: str) -> None:
    """Make sure that a line is understood or refused in the one way that adapters have."""
    try:
        found = adapter.events(text)
    except ValueError:
        return
    for event in found:
        assert isinstance(event, EVENTS)
        words = [getattr(event, name) for name in event.__slots__ if name not in ("tokens", "cumulative")]
        assert all(isinstance(word, str) for word in words)


def odd_lines(words: Sequence[str]) -> st.SearchStrategy[str]:
    """Make lines of JSON whose members have the names that an adapter looks for, and any values at all.

    Args:
        words: Names of members, and values of theirs that mean something.
    """
    leaf = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.sampled_from(words))
    value = st.recursive(
        leaf,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(words), inner, max_size=4),
        max_leaves=12,
    )
    members = st.dictionaries(st.sampled_from(words), value, max_size=6)
    with_kind = st.builds(lambda fields, kind: {**fields, "type": kind, "role": kind}, members, st.sampled_from(words))
    return st.one_of(with_kind.map(json.dumps), value.map(json.dumps), st.text())
