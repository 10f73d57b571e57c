"""Every row of the error table can happen: code raises it and a test provokes it."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from sandbox_api.errors import FAMILIES, TABLE, Row

ROOT = Path(__file__).parents[2]
CLASSES = {family.__name__: code for code, family in FAMILIES.items()}
THE_TABLE = ROOT / "proto/sandbox_api/errors.py"


@cache
def _said(*folders: str) -> set[tuple[str, str]]:
    """Return each code with each text said in one module with it; docstrings and the table itself say nothing."""
    pairs: set[tuple[str, str]] = set()
    for folder in folders:
        for module in (ROOT / folder).rglob("*.py"):
            if module != THE_TABLE and "contract" not in module.parts:
                nodes = list(ast.walk(ast.parse(module.read_text())))
                texts = {part for text in _texts(nodes) for part in text.split("/")}
                names = {node.id for node in nodes if isinstance(node, ast.Name)}
                codes = texts & set(FAMILIES) | {CLASSES[name] for name in names & set(CLASSES)}
                pairs |= {(code, text) for code in codes for text in texts}
    return pairs


def _texts(nodes: list[ast.AST]) -> set[str]:
    documents = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}  # texts that stand alone
    return {
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documents
    }


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row.code}-{row.reason}")
def test_every_row_can_be_raised(row: Row) -> None:
    """A module of the product names code and reason: what nothing raises has no place in the table."""
    assert (row.code, row.reason) in _said("host_client", "sandbox_agent", "proto/sandbox_api")


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row.code}-{row.reason}")
def test_every_row_is_provoked_by_a_test(row: Row) -> None:
    """A test module beside those of the contract names code and reason."""
    said = _said("tests/unit", "tests/integration", "tests/faults", "tests/conformance")
    assert (row.code, row.reason) in said
