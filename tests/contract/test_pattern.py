"""Regular expressions that every supported Python reads alike."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import host_client
import sandbox_agent
import sandbox_api

SOURCES = sorted(
    path
    for package in (host_client, sandbox_agent, sandbox_api)
    for path in Path(package.__file__ or "").parent.rglob("*.py")
    if "_pb2" not in path.name
)
POSSESSIVE_GROUP = re.compile(r"\)(?:[*+?]|\{\d*,?\d*\})\+")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_no_group_is_repeated_possessively(path: Path) -> None:
    """Python up to 3.11.4, Debian 12's among them, can fail such a match (python/cpython#106052)."""
    lines = [line for line in path.read_text().split("\n") if "re.compile(" in line]
    assert not [line for line in lines if POSSESSIVE_GROUP.search(line)]
