"""Messages made by hand are those that protobuf makes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_api.limits import CHUNK_BYTES
from sandbox_api.v1 import bundle_pb2, file_pb2, payload_pb2, process_pb2
from sandbox_api.wire import chunk_message, read_chunk

STREAMS = [
    bundle_pb2.CaptureResponse,
    bundle_pb2.RestoreRequest,
    bundle_pb2.ValidateRequest,
    file_pb2.ReadResponse,
    file_pb2.WriteRequest,
]


@given(st.one_of(st.just(0), st.integers(0, 2**64 - 1)), st.lists(st.binary(max_size=200), min_size=1, max_size=4))
def test_a_chunk_is_serialized_as_protobuf_does(offset: int, parts: list[bytes]) -> None:
    """Byte for byte, in every stream that has chunks."""
    data = b"".join(parts)
    if not data:
        return
    for stream in STREAMS:
        expected = stream(chunk=payload_pb2.Chunk(offset=offset, data=data)).SerializeToString()
        assert chunk_message(offset, parts) == expected
    assert read_chunk(expected) == (offset, data)


@given(st.binary(max_size=40), st.integers(0, 40))
def test_what_is_read_as_a_chunk_is_one(noise: bytes, cut: int) -> None:
    """Bytes that are no chunk as we spell it are left to the decoder, and what is read is what it would find."""
    chunk = chunk_message(300, [b"some data"])
    for data in (noise, b"\x12" + noise, chunk[:cut], chunk + noise, chunk[:cut] + noise + chunk[cut:]):
        found = read_chunk(data)
        if found is not None:
            message = bundle_pb2.CaptureResponse.FromString(data)
            assert found == (message.chunk.offset, message.chunk.data)
            assert message.WhichOneof("part") == "chunk"
    assert read_chunk(b"") is None
    assert read_chunk(bundle_pb2.CaptureResponse(trailer=bundle_pb2.CaptureTrailer()).SerializeToString()) is None


@pytest.mark.parametrize("size", [1, 127, 128, 16_383, 16_384, CHUNK_BYTES])
def test_lengths_at_the_borders_of_their_encoding(size: int) -> None:
    """One more byte of length at 128 and at 16,384."""
    data = b"x" * size
    expected = bundle_pb2.CaptureResponse(chunk=payload_pb2.Chunk(offset=1 << 40, data=data)).SerializeToString()
    assert chunk_message(1 << 40, [data]) == expected


def test_every_stream_has_its_chunk_in_the_same_field() -> None:
    """What `chunk_message` relies on."""
    assert {stream.DESCRIPTOR.fields_by_name["chunk"].number for stream in STREAMS} == {2}


@given(st.integers(0, 2**64 - 1), st.binary(min_size=1, max_size=200))
def test_output_of_a_process_is_serialized_as_protobuf_does(offset: int, data: bytes) -> None:
    """It has the form of a chunk, in the field of its stream."""
    output = process_pb2.ProcessOutput(offset=offset, data=data)
    for field, tag in (("stdout", b"\x0a"), ("stderr", b"\x12")):
        expected = process_pb2.AttachResponse(**{field: output}).SerializeToString()
        assert chunk_message(offset, [data], tag=tag) == expected
