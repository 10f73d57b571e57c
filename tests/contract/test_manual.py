"""docs/outpost.md is complete and true: every command with its arguments and options, and no option but these."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from host_client.cli.__main__ import outpost
from sandbox_api.errors import FAMILIES

if TYPE_CHECKING:
    from collections.abc import Iterator

MANUAL = (Path(__file__).parents[2] / "docs/outpost.md").read_text()


def _commands(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from _commands(command, f"{path}{name} ")
        else:
            yield path + name, command


COMMANDS = dict(_commands(outpost))


def _section(title: str) -> str:
    found = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^##|\Z)", MANUAL, re.MULTILINE | re.DOTALL)
    assert found, f"no section {title}"
    return found[1]


def _title(name: str, command: click.Command) -> str:
    arguments = [param for param in command.params if isinstance(param, click.Argument)]
    return " ".join([name, *(argument.metavar or str(argument.name).upper() for argument in arguments)])


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_its_section(name: str) -> None:
    """Its title names the arguments in their order; the section names exactly its options."""
    command = COMMANDS[name]
    section = _section(_title(name, command))
    options = {
        flag for param in command.params if isinstance(param, click.Option) for flag in param.opts if flag[:2] == "--"
    }
    documented = set(re.findall(r"`(--[a-z-]+)", section))
    assert documented == options


def test_every_exit_status_is_told() -> None:
    """The manual and the help name the status of each family."""
    for code, family in FAMILIES.items():
        assert f"{family.exit_status} `{code}`" in MANUAL
        assert f"{family.exit_status} {code}" in " ".join(str(outpost.help).split())


def test_shared_options_are_explained_once() -> None:
    """Every option that two commands have stands in the table of shared ones."""
    counts: dict[str, int] = {}
    for command in COMMANDS.values():
        for param in command.params:
            if isinstance(param, click.Option):
                counts[param.opts[0]] = counts.get(param.opts[0], 0) + 1
    shared = _section("Options that commands share")
    assert {flag for flag, count in counts.items() if count > 1} == set(re.findall(r"`(--[a-z-]+)", shared))
