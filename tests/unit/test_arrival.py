"""Contents that arrive in chunks of any size reach the sink whole and in order."""

from __future__ import annotations

import hashlib
from itertools import pairwise
from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_client.sandbox.arrival import Arrival
from sandbox_api.errors import SessionError
from sandbox_api.manifest import Entry
from support.bundle_end import MemorySink

CONTENTS = st.lists(st.binary(max_size=50), min_size=1, max_size=8)


def _payload(contents: list[bytes]) -> bytes:
    return b"".join(content + hashlib.sha256(content).digest() for content in contents)


def _arrival(contents: list[bytes]) -> tuple[Arrival, MemorySink]:
    sink = MemorySink()
    entries = [Entry(b"%d" % number, len(content)) for number, content in enumerate(contents)]
    sink.begin(PurePosixPath("/s"), entries)
    return Arrival(sink, entries, range(len(entries))), sink


@given(contents=CONTENTS, cuts=st.lists(st.integers(0, 700), max_size=20))
def test_any_split_gives_the_same(contents: list[bytes], cuts: list[int]) -> None:
    """Wherever the payload is cut, every entry ends once, with its content and its digest."""
    payload = _payload(contents)
    arrival, sink = _arrival(contents)
    bounds = [0, *sorted(min(cut, len(payload)) for cut in cuts), len(payload)]
    for start, stop in pairwise(bounds):
        arrival.feed(memoryview(payload)[start:stop])
    assert sink.contents == {b"%d" % number: content for number, content in enumerate(contents)}
    assert arrival.sha256s == [hashlib.sha256(content).digest() for content in contents]
    assert arrival.bytes_count == sum(map(len, contents))


@pytest.mark.parametrize("cut", [0, 40, 70])
def test_bytes_after_the_last_digest_are_refused(cut: int) -> None:
    """What follows the last digest is a breach of the protocol, in the same chunk or in a later one."""
    payload = memoryview(_payload([b"abc", b""]) + b"x")
    arrival, _ = _arrival([b"abc", b""])
    with pytest.raises(SessionError) as caught:  # noqa: PT012 - either of the two may be the one
        arrival.feed(payload[:cut])
        arrival.feed(payload[cut:])
    assert caught.value.reason == "protocol"
