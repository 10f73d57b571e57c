"""What a line of a transcript says about itself, in any spelling."""

from __future__ import annotations

from hypothesis import given, settings

from host_client.session.line_header import Header, read_headers
from support.transcript_text import LINES, directory_of, values_of


@settings(max_examples=150)
@given(line=LINES)
def test_the_directory_is_that_of_the_parsed_line(line: bytes) -> None:
    """The last of equal names counts, the top of a value before its payload, an earlier value before a later one."""
    named = [header.directory for header in read_headers(line) if header.directory is not None]
    assert (named[0] if named else None) == directory_of(line)


@given(line=LINES)
def test_both_ways_to_read_a_header_agree(line: bytes) -> None:
    """A line that the fast parser refuses for one value reads as it would without that value."""
    values = values_of(line)
    headers = read_headers(line)
    assert len(headers) == len(values or ())
    if values and len(values) == 1 and isinstance(values[0], dict) and values[0] and line.startswith(b"{"):
        assert read_headers(b'{"surrogate":"\\ud800",' + line[1:]) == headers


def test_a_header_is_found_in_any_spelling() -> None:
    """Escaped names, equal names and several values are read as a parser reads them."""
    assert read_headers(
        b'{"\\u0074ype":"a","type":"b","payload":{"type":"c"},"payload":{}}{"payload":{"type":"d"}}'
    ) == [
        Header("b", (), None, None, None, has_ordinal=False, is_paginated=False),
        Header(None, (), None, None, None, has_ordinal=False, is_paginated=False),
    ]
