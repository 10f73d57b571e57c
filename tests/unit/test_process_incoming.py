"""What a daemon tells of a process: taken when it can be, refused when it cannot, over any number of calls."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_client.errors import SessionError
from host_client.sandbox.process_exit import Output
from host_client.sandbox.process_incoming import Incoming
from sandbox_api.v1 import process_pb2
from support.fake_process import stderr, stdout, taken, told_end

BEAT = process_pb2.AttachResponse(beat=process_pb2.ProcessBeat())


def begun(**offsets: int) -> Incoming:
    """Return what a first call has begun with."""
    incoming = Incoming("p", **offsets)
    incoming.begin(taken())
    return incoming


def test_output_is_counted_for_the_next_call() -> None:
    """Both streams go on where they are, so does a call that is begun anew."""
    incoming = begun(stdout_offset=5)
    assert incoming.accept(stdout(5, b"abc")) == Output("stdout", 5, b"abc")
    assert incoming.accept(stderr(0, b"x")) == Output("stderr", 0, b"x")
    assert incoming.accept(BEAT) is None
    begin = incoming.request.begin
    assert (begin.id, begin.stdout_offset, begin.stderr_offset) == ("p", 8, 1)


def test_the_end_comes_after_all_output() -> None:
    """It is taken when its sizes are those of what came."""
    incoming = begun()
    incoming.accept(stdout(0, b"ab"))
    incoming.accept(told_end(2, status=4))
    assert incoming.exit is not None
    assert (incoming.exit.status, incoming.exit.ok) == (4, False)


@pytest.mark.parametrize(
    "message",
    [
        stdout(1, b"gap"),
        stdout(0, b""),
        stdout(0, bytes((1 << 20) + 1)),
        stderr(7, b"gap"),
        told_end(1),
        told_end(0, stderr_bytes=1),
        told_end(0, cause=0),
        told_end(0, cause=99),
        told_end(0, status=256),
        told_end(0, signal=65),
        told_end(0, status=1, signal=9),
        told_end(0, duration_seconds=-1.0),
        told_end(0, duration_seconds=math.nan),
        told_end(0, duration_seconds=math.inf),
        process_pb2.AttachResponse(),
    ],
    ids=[
        "output with a gap",
        "output without a byte",
        "too much output at once",
        "standard error with a gap",
        "end before the output",
        "end before standard error",
        "no cause",
        "unknown cause",
        "impossible status",
        "impossible signal",
        "status and signal",
        "negative time",
        "no time",
        "endless time",
        "nothing",
    ],
)
def test_what_cannot_be_is_refused(message: process_pb2.AttachResponse) -> None:
    """Each of these is `session`/`protocol`."""
    with pytest.raises(SessionError) as caught:
        begun().accept(message)
    assert caught.value.reason == "protocol"


def test_a_call_begins_with_the_input_taken() -> None:
    """Anything else first is refused."""
    with pytest.raises(SessionError) as caught:
        Incoming("p").begin(stdout(0, b"x"))
    assert caught.value.reason == "protocol"


def test_input_taken_only_grows() -> None:
    """Within a call and over calls."""
    incoming = begun()
    incoming.note_sent(10)
    incoming.accept(taken(4))
    with pytest.raises(SessionError):
        incoming.accept(taken(3))
    with pytest.raises(SessionError):
        incoming.begin(taken(3))


def test_input_of_others_is_passed_over() -> None:
    """What another client, or a call before this one, has given the process is not sent any more."""
    incoming = begun()
    incoming.note_sent(2)
    incoming.accept(taken(7))
    assert (incoming.taken_bytes, incoming.sent_bytes) == (7, 7)


def test_a_new_call_sends_again_what_was_not_taken() -> None:
    """What was on its way may be lost: sending goes on from where the process is, and the most is remembered."""
    incoming = begun()
    incoming.note_sent(10)
    incoming.begin(taken(4))
    assert (incoming.taken_bytes, incoming.sent_bytes, incoming.most_sent_bytes) == (4, 4, 10)


def test_closed_input_stays_closed() -> None:
    """A process that reads no more does not begin again."""
    incoming = begun()
    incoming.accept(taken(0, closed=True))
    incoming.accept(taken(0))
    assert incoming.is_input_closed


_OFFSETS, _DATA = st.integers(0, 5), st.binary(max_size=4)
_MESSAGES = st.one_of(
    st.builds(stdout, _OFFSETS, _DATA),
    st.builds(stderr, _OFFSETS, _DATA),
    st.builds(taken, _OFFSETS, closed=st.booleans()),
    st.builds(told_end, _OFFSETS, cause=_OFFSETS),
    st.just(BEAT),
)


@given(st.lists(_MESSAGES, max_size=8))
def test_any_order_is_refused_or_taken(messages: list[process_pb2.AttachResponse]) -> None:
    """Whatever comes: a failure of ours, or output without a gap, and an end only where all of it came."""
    incoming = begun()
    passed = {"stdout": b"", "stderr": b""}
    for message in messages:
        try:
            output = incoming.accept(message)
        except SessionError:
            continue
        if output is not None:
            assert output.offset == len(passed[output.stream])
            passed[output.stream] += output.data
    assert (incoming.stdout_offset, incoming.stderr_offset) == (len(passed["stdout"]), len(passed["stderr"]))
