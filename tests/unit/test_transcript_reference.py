"""References between transcripts: which are believed, and what becomes of the number."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePosixPath

import pytest

from host_client.errors import ConfigurationError
from host_client.stores.layout import Reference
from host_client.stores.transcript_reference import new_digits, read_reference
from support.transcript_format import LAYOUT

PARENT, FORK = PurePosixPath("parent.jsonl"), PurePosixPath("fork.jsonl")
LINE = b'{"from":99,"of":"parent"}'
REFERENCE = Reference(PARENT, 99, (8, 10))
REFERRING = replace(LAYOUT, reference=lambda line, path, _: REFERENCE if (line, path) == (LINE, FORK) else None)


def test_a_reference_to_one_of_the_transcripts_is_believed() -> None:
    """The layout is asked; what it names must belong to the conversation."""
    assert read_reference(REFERRING, LINE, FORK, [PARENT, FORK]) == REFERENCE
    assert read_reference(REFERRING, LINE, PARENT, [PARENT, FORK]) is None
    with pytest.raises(ConfigurationError, match="refers to parent") as caught:
        read_reference(REFERRING, LINE, FORK, [FORK])
    assert caught.value.reason == "invalid_argument"


def test_a_number_changes_only_with_its_place() -> None:
    """No other byte of the first line does, and the line becomes so much longer."""
    assert new_digits(REFERENCE, 99) is None
    digits = new_digits(REFERENCE, 100)
    assert digits is not None
    assert digits.put(LINE + b"\n{}\n") == b'{"from":100,"of":"parent"}\n{}\n'
    assert digits.growth_bytes == 1
