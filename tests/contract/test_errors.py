"""The error table: families, classes, exit statuses and what crosses the wire."""

from __future__ import annotations

import ast
import copy
import os
import pickle
import re
from pathlib import Path

import pytest
from google.rpc import code_pb2, error_details_pb2, status_pb2
from hypothesis import given
from hypothesis import strategies as st

from sandbox_api.errors import (
    DOMAIN,
    FAMILIES,
    ROWS,
    TABLE,
    Offender,
    OutpostError,
    Row,
    SessionError,
    printable,
)
from sandbox_api.wire import MAX_STATUS_BYTES, pack_status, unpack_status

ROOT = Path(__file__).parents[2]


def test_every_family_has_one_class_and_one_exit_status() -> None:
    """Eight families; statuses are distinct and away from those that shells and click use."""
    assert set(FAMILIES) == {row.code for row in TABLE}
    statuses = [family.exit_status for family in FAMILIES.values()]
    assert len(set(statuses)) == len(FAMILIES) == 8
    assert all(10 <= status < 64 for status in statuses)
    assert set(FAMILIES.values()) == set(OutpostError.__subclasses__())


def test_no_row_stands_twice() -> None:
    """Code and reason together name one row."""
    assert len(ROWS) == len(TABLE)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row.code}-{row.reason}")
def test_every_row_crosses_the_wire(row: Row) -> None:
    """Code, reason, message, hint, facts and offenders arrive as they were; ErrorInfo speaks to foreign tools."""
    error = FAMILIES[row.code](
        row.reason, "it broke", hint="mend it", facts={"k": "v"}, offenders=[Offender("a", "bad")]
    )
    data = pack_status(error)
    status = status_pb2.Status.FromString(data)
    assert status.code == code_pb2.Code.Value(row.grpc_status)
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    assert (info.domain, info.reason) == (DOMAIN, f"{row.code}_{row.reason}".upper())
    got = unpack_status(data)
    assert type(got) is FAMILIES[row.code]
    assert (got.reason, got.message, got.hint, got.facts) == (row.reason, "it broke", "mend it", {"k": "v"})
    assert (got.offenders, got.offender_count, got.retryable) == (error.offenders, 1, row.retryable)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row.code}-{row.reason}")
def test_every_row_survives_pickling(row: Row) -> None:
    """Another process gets the same class with all that is told, what was added later included; so does a copy."""
    error = FAMILIES[row.code](
        row.reason, "it broke", facts={"k": "v"}, offenders=[Offender("p", "q")], offender_count=99
    )
    error.hint = "added later"
    error.add_note("a note")
    for got in (pickle.loads(pickle.dumps(error)), copy.copy(error)):  # noqa: S301 - our own bytes
        assert type(got) is type(error)
        assert vars(got) == vars(error)
        assert (got.args, str(got)) == (error.args, str(error))


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row.code}-{row.reason}")
def test_every_row_is_in_the_manual(row: Row) -> None:
    """docs/errors.md lists each code, reason and meaning."""
    assert f"| `{row.code}` | `{row.reason}` | {row.meaning} |" in (ROOT / "docs/errors.md").read_text()


def test_every_notice_is_in_the_manual() -> None:
    """docs/errors.md lists exactly the reasons of notices that the product gives."""
    calls = [
        node
        for module in (ROOT / "host_client").rglob("*.py")
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Notice"
    ]
    given = {call.args[0].value for call in calls if call.args and isinstance(call.args[0], ast.Constant)}
    assert len(calls) == len([call for call in calls if call.args and isinstance(call.args[0], ast.Constant)])
    table = (ROOT / "docs/errors.md").read_text().partition("## Notices")[2]
    assert given == set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))


def test_details_are_cut_to_fit_the_metadata_of_a_call() -> None:
    """Huge offenders, facts and texts still fit, and the count of offenders stays true."""
    error = SessionError(
        "symlink",
        "m" * 9000,
        hint="h" * 9000,
        facts={str(index): "f" * 9000 for index in range(50)},
        offenders=[Offender("p" * 5000, "q" * 5000) for _ in range(100)],
    )
    data = pack_status(error)
    assert len(data) <= MAX_STATUS_BYTES
    got = unpack_status(data)
    assert got is not None
    assert got.offender_count == 100
    assert "and" in str(got)


@given(st.binary(max_size=300))
def test_garbage_details_are_no_failure(data: bytes) -> None:
    """Whatever bytes a hostile daemon puts there: a failure of the table, or None."""
    got = unpack_status(data)
    assert got is None or (got.code, got.reason) in ROWS


def test_an_unknown_reason_is_not_invented() -> None:
    """A row that this side does not know is left to the status code."""
    data = pack_status(SessionError("symlink", "x")).replace(b"symlink", b"fumbled")
    assert unpack_status(data) is None


def test_printable_shows_what_a_terminal_must_not_run() -> None:
    """Escapes, newlines and foreign bytes are shown, text stays."""
    assert printable(b"a\x1b[31m\nb\xff") == "a\\x1b[31m\\nb\\xff"
    assert printable("süß") == "süß"
    assert printable(os.fsdecode(b"s\xfc\xc3\x9f\n")) == "s\\xfcß\\n"
