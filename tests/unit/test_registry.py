"""The built-in formats by name."""

from __future__ import annotations

import asyncio
from pathlib import Path, PurePosixPath
from typing import Any, cast

import pytest

from host_client.agents.registry import (
    agent_names,
    builtin_agent,
    builtin_format,
    format_names,
    resume_command,
    validate_file,
)
from host_client.errors import ConfigurationError, SessionError
from support.saved import FILES, document, save, saved_path, write_document, write_text


@pytest.mark.parametrize("name", format_names())
def test_every_name_gives_its_format(name: str) -> None:
    """A built-in format has the name it is asked for by, and a command that resumes."""
    assert builtin_format(name).format == name
    assert ID in resume_command(name, ID, PurePosixPath("/w"))


ID = "be154688-9dce-4f8b-bdc0-13dc165232e6"


@pytest.mark.parametrize("name", ["", "Copilot", "../kimi", "registry", "os"])
def test_an_unknown_name_is_refused_and_the_known_are_named(name: str) -> None:
    """A name that is not built in is `unknown_format`; nothing is imported for it."""
    for use in (lambda: builtin_format(name), lambda: resume_command(name, ID, PurePosixPath("/w"))):
        with pytest.raises(ConfigurationError) as caught:
            use()
        assert caught.value.reason == "unknown_format"
        assert all(known in caught.value.hint for known in format_names())


def test_a_file_is_judged_by_the_format_it_names(tmp_path: Path) -> None:
    """Format and id come from the file; without them it is no bundle, and a foreign format is not guessed at."""
    save(tmp_path, FILES)
    with pytest.raises(ConfigurationError) as unknown:
        asyncio.run(validate_file(saved_path(tmp_path)))
    assert unknown.value.reason == "unknown_format"
    write_document(tmp_path, {**document(FILES), "format": "kimi"})
    with pytest.raises(SessionError) as wrong:
        asyncio.run(validate_file(saved_path(tmp_path)))
    assert wrong.value.reason == "missing_required"
    write_document(tmp_path, {**document(FILES), "format": "claude"})
    with pytest.raises(ConfigurationError) as foreign:
        asyncio.run(validate_file(saved_path(tmp_path)))
    assert foreign.value.reason == "format_mismatch"
    for text in ("[]", "{}", '{"format":"kimi"}', "{"):
        write_text(tmp_path, text)
        with pytest.raises(SessionError) as caught:
            asyncio.run(validate_file(saved_path(tmp_path)))
        assert caught.value.reason == "corrupt"
    with pytest.raises(SessionError) as missing:
        asyncio.run(validate_file(tmp_path / "none.json"))
    assert missing.value.reason == "not_found"


@pytest.mark.parametrize("name", agent_names())
def test_every_agent_has_its_own_format_and_tool(name: str) -> None:
    """What is built in fits together: agent, format, and the tool that is installed where it is missing."""
    agent = builtin_agent(name, variables={"KEY": "value"})
    assert agent.name == agent.features.bootstrap == name
    assert agent.features.storage is not None
    assert agent.features.storage.format == name
    assert agent.features.requires_finished_event
    assert dict(agent.features.variables) == {"KEY": "value"}
    assert agent.bind() is not agent.bind(), "an adapter remembers one turn"


@pytest.mark.parametrize("name", ["", "Copilot", "../kimi", "registry", "preset"])
def test_an_unknown_agent_is_refused_and_the_known_are_named(name: str) -> None:
    """A name that is not built in is `unknown_agent`; nothing is imported for it."""
    with pytest.raises(ConfigurationError) as caught:
        builtin_agent(name)
    assert caught.value.reason == "unknown_agent"
    assert all(known in caught.value.hint for known in agent_names())


class _Archive:
    """A store that does not say which format it keeps."""

    async def locate(self, *_: Any) -> Any:
        """Never called."""
        raise NotImplementedError

    capture = restore = locate


@pytest.mark.parametrize("said", [{}, {"format": None}, {"format": "kimi"}, {"__len__": lambda _: 0}])
def test_a_replacement_store_keeps_the_conversations(said: dict[str, Any]) -> None:
    """One of the agent's format, or of no certain one, is taken as it is, also while it is empty."""
    store: Any = type("Store", (_Archive,), said)()
    assert builtin_agent("kimi", conversations=store).features.storage is store


def test_a_replacement_store_of_another_format_is_refused_at_once() -> None:
    """It could not restore what the agent needs."""
    with pytest.raises(ConfigurationError) as caught:
        builtin_agent("kimi", conversations=builtin_format("claude"))
    assert caught.value.reason == "format_mismatch"


def test_what_is_no_store_is_refused_at_once() -> None:
    """It could keep nothing when the turn is over."""
    with pytest.raises(ConfigurationError) as caught:
        builtin_agent("kimi", conversations=cast("Any", 5))
    assert caught.value.reason == "invalid_argument"


def test_one_word_is_no_list_of_arguments() -> None:
    """Its letters would be taken for them."""
    with pytest.raises(ConfigurationError) as caught:
        builtin_agent("claude", arguments="--verbose")
    assert caught.value.reason == "invalid_argument"
