"""The steps of a transcript on its way to the host: the same output however it comes, and places known by line."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_client.errors import SessionError
from host_client.session.compression import compressed, decompressed
from host_client.session.redaction import LiteralRule, PatternRule, Redaction
from host_client.session.redactor import Redactor
from host_client.session.relocate import Relocator
from host_client.session.transcript_scan import TranscriptScan
from host_client.session.transcript_stream import Digits, TranscriptStream
from support.transcript_text import DESTINATION, ORIGIN, TRANSCRIPTS, relocated

FIRST = b'{"cwd":"/w/\xc3\xa9 p","end":41586,"x":"s3cret"}\n'


def cut(data: bytes, size: int) -> list[bytes]:
    """Cut bytes into pieces."""
    return [data[at : at + size] for at in range(0, len(data), size)]


@given(TRANSCRIPTS, st.integers(1, 40), st.booleans())
def test_output_is_the_relocated_input(transcript: bytes, size: int, whole_lines: bool) -> None:  # noqa: FBT001 - hypothesis
    """Whatever the pieces, the output is the input relocated; an unfinished line is dropped where that is asked for."""
    out: list[bytes] = []
    stream = TranscriptStream(out.append, Relocator(DESTINATION))
    for piece in cut(transcript, size):
        stream.feed(piece)
    dropped_bytes = stream.finish(whole_lines=whole_lines)
    lines = transcript[: transcript.rfind(b"\n") + 1]
    expected = relocated(lines if whole_lines else transcript, DESTINATION)
    assert b"".join(out) == expected
    assert dropped_bytes == (len(transcript) - len(lines) if whole_lines else 0)
    assert stream.is_changed == (expected != (lines if whole_lines else transcript))


@given(TRANSCRIPTS, st.data())
def test_places_of_cuts_are_those_of_relocation(transcript: bytes, data: st.DataObject) -> None:
    """At the start of a line, a cut lies where the output of all lines before ends; behind the end it stays as far."""
    starts = [0, *(found.end() for found in re.finditer(b"\n", transcript))]
    cuts = data.draw(st.sets(st.sampled_from(starts))) | {len(transcript) + 7}
    out: list[bytes] = []
    stream = TranscriptStream(out.append, Relocator(DESTINATION, origin=ORIGIN), cuts=cuts)
    for piece in cut(transcript, data.draw(st.integers(1, 40))):
        stream.feed(piece)
    stream.finish(whole_lines=False)
    expected = {at: len(relocated(transcript[:at], DESTINATION, ORIGIN)) for at in cuts if at <= len(transcript)}
    expected[len(transcript) + 7] = len(b"".join(out)) + 7
    assert stream.cut_positions == expected


@given(st.integers(0, 30), st.integers(1, 50))
def test_place_of_a_cut_within_a_line(into: int, size: int) -> None:
    """A cut within a line lies as far behind the line's start as in the input, however the pieces come."""
    transcript = FIRST * 3
    start = 2 * len(FIRST)
    stream = TranscriptStream(
        lambda _: None, Relocator(DESTINATION, origin=ORIGIN), cuts=[start + into], start=(0, 1000)
    )
    for piece in cut(transcript, size):
        stream.feed(piece)
    stream.finish(whole_lines=False)
    assert stream.cut_positions == {start + into: 1000 + 2 * len(relocated(FIRST, DESTINATION)) + into}


@given(st.integers(1, 60), st.sampled_from([b"7", b"1234567890"]))
def test_all_steps_keep_to_their_order(size: int, digits: bytes) -> None:
    """New digits come in front of redaction, which comes in front of relocation; the place of a cut counts them all."""
    redactor = Redactor(Redaction((LiteralRule("key", "s3cret"), PatternRule("way", re.compile("/w/é")))))
    out: list[bytes] = []
    start = FIRST.index(b"41586")
    stream = TranscriptStream(
        out.append,
        Relocator(DESTINATION, origin="[redacted:way] p"),
        redactor=redactor,
        digits=Digits(start, start + 5, digits),
        cuts=[len(FIRST)],
    )
    for piece in cut(FIRST * 2, size):
        stream.feed(piece)
    stream.finish(whole_lines=False)
    first = b'{"cwd":"%b","end":%b,"x":"[redacted:key]"}\n' % (DESTINATION.encode(), digits)
    assert b"".join(out) == first + first.replace(digits, b"41586")
    assert stream.cut_positions == {len(FIRST): len(first)}
    assert redactor.counts == {"key": 2, "way": 2}
    assert stream.is_changed


@given(st.integers(1, 30))
def test_compressed_input_gives_compressed_output(size: int) -> None:
    """Frames are unpacked for the steps and the scan, and packed again."""
    scan = TranscriptScan(is_record=lambda line: b'"end"' in line)
    out: list[bytes] = []
    stream = TranscriptStream(out.append, Relocator(DESTINATION), scan=scan, is_compressed=True)
    for piece in cut(b"".join(compressed([FIRST * 5])), size):
        stream.feed(piece)
    stream.finish(whole_lines=False)
    assert b"".join(decompressed(out)) == relocated(FIRST * 5, DESTINATION)
    assert (scan.has_record, scan.origin) == (True, DESTINATION)


def test_cut_frames_are_refused() -> None:
    """Compressed input that ends too early is damaged, not short."""
    stream = TranscriptStream(lambda _: None, Relocator(DESTINATION), is_compressed=True)
    stream.feed(b"".join(compressed([FIRST]))[:-3])
    with pytest.raises(SessionError) as caught:
        stream.finish(whole_lines=False)
    assert caught.value.reason == "corrupt"


def test_number_that_is_not_reached_stays() -> None:
    """A first line that ends in front of the number comes out as it is."""
    out: list[bytes] = []
    stream = TranscriptStream(out.append, Relocator(DESTINATION), digits=Digits(50, 55, b"1"))
    stream.feed(b"short\n")
    stream.finish(whole_lines=False)
    assert b"".join(out) == b"short\n"
