"""What a daemon is asked to run: encoded byte for byte, refused when it cannot be meant, and secrets never told."""

from __future__ import annotations

import math
import os
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import pytest

from host_client.errors import ConfigurationError
from host_client.sandbox.process_request import packed_terminal, program_name, start_request

if TYPE_CHECKING:
    from sandbox_api.v1 import process_pb2

SECRET = "hunter2"  # noqa: S105 - that it is not told is what is tested
PROPER: dict[str, Any] = {
    "cwd": None,
    "variables": {},
    "input": b"",
    "open_input": False,
    "terminal": None,
    "deadline_seconds": 0,
    "idle_seconds": 0,
    "grace_seconds": 5.0,
    "max_output_bytes": 0,
    "keep_bytes": 0,
    "hold_seconds": 60.0,
}


def request(argv: Any = ("p",), process_id: str = "x", **options: Any) -> process_pb2.StartProcessRequest:
    """Return a request with these parts."""
    return start_request(process_id, argv, **{**PROPER, **options})


def test_words_paths_and_variables_keep_their_bytes() -> None:
    """Text is encoded as names of files are, so that foreign bytes come out as they came in."""
    odd = os.fsdecode(b"\xff\xc3\xa4")
    made = request(["p", odd, b"\xfe"], cwd=PurePosixPath("/a/" + odd), variables={"A": odd}, terminal=(24, 80))
    assert list(made.argv) == [b"p", b"\xff\xc3\xa4", b"\xfe"]
    assert made.cwd == b"/a/\xff\xc3\xa4"
    assert [(item.name, item.value) for item in made.variables] == [(b"A", b"\xff\xc3\xa4")]
    assert (made.terminal.rows, made.terminal.columns) == (24, 80)
    assert not request().HasField("terminal")
    assert request().cwd == b""


@pytest.mark.parametrize(
    "options",
    [
        {"argv": []},
        {"argv": SECRET},
        {"argv": SECRET.encode()},
        {"argv": [""]},
        {"argv": ["p", f"{SECRET}\0"]},
        {"argv": ["p", f"{SECRET}\ud800"]},
        {"argv": ["p", 7]},
        {"argv": ["p", SECRET * 1_000_000]},
        {"variables": {"": SECRET}},
        {"variables": {"A=B": SECRET}},
        {"variables": {"A\0": SECRET}},
        {"variables": {"A": f"{SECRET}\0"}},
        {"input": bytes((1 << 20) + 1)},
        {"deadline_seconds": -1},
        {"idle_seconds": math.nan},
        {"grace_seconds": math.inf},
        {"hold_seconds": -0.1},
        {"max_output_bytes": -1},
        {"keep_bytes": 1 << 64},
        {"terminal": (0, 80)},
        {"terminal": (24, 1 << 16)},
    ],
    ids=lambda options: " ".join(f"{name} {str(value)[:20]!r}" for name, value in options.items()),
)
def test_what_cannot_be_meant_is_refused_without_secrets(options: dict[str, Any]) -> None:
    """`configuration`/`invalid_argument`, and no argument and no value in the message."""
    with pytest.raises(ConfigurationError) as caught:
        request(**options)
    assert caught.value.reason == "invalid_argument"
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("process_id", ["", "a b", "a/b", "x" * 65, "ä"])
def test_an_id_keeps_its_rule(process_id: str) -> None:
    """`configuration`/`invalid_id`."""
    with pytest.raises(ConfigurationError) as caught:
        request(process_id=process_id)
    assert caught.value.reason == "invalid_id"


def test_a_program_is_named_without_its_folder() -> None:
    """What a terminal must not run is escaped."""
    assert program_name(["/usr/bin/git", SECRET]) == "git"
    assert program_name([b"a\x1b[31m"]) == "a\\x1b[31m"


def test_a_terminal_has_a_size_that_can_be() -> None:
    """Up to 65,535 of each."""
    assert packed_terminal(65_535, 1).rows == 65_535
