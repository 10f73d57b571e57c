"""docs/format.md: the streams it shows are those that a daemon sends."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from host_client.sandbox.connection import Connection
from host_client.sandbox.place import Place
from sandbox_api.v1 import bundle_pb2
from support.bundle_end import PROFILE
from support.daemon import running_daemon

pytestmark = pytest.mark.anyio

PAGE = (Path(__file__).parents[2] / "docs/format.md").read_text()


async def captured(tmp_path: Path, files: dict[str, bytes]) -> list[bundle_pb2.CaptureResponse]:
    """Return the messages of a capture of these files."""
    with running_daemon(tmp_path) as daemon:
        session = daemon.home / PROFILE.root_directory / PROFILE.sessions / "S1"
        for path, content in files.items():
            (session / path).parent.mkdir(parents=True, exist_ok=True)
            (session / path).write_bytes(content)
        connection = Connection(daemon.target, daemon.target)
        request = bundle_pb2.CaptureRequest(place=Place(replace(PROFILE, required=(min(files),)), "S1").packed())
        messages = []
        async with connection.begin("BundleService/Capture", request, bundle_pb2.CaptureResponse) as stream:
            while (message := await stream.read()) is not None:
                messages.append(message)
        await connection.close()
    return messages


async def test_the_capture_of_the_example(tmp_path: Path) -> None:
    """Header, one chunk and the trailer have the numbers that are shown."""
    header, chunk, trailer = await captured(tmp_path, {"a.txt": b"x", "d/b": b""})
    shown = dict(
        re.findall(r"([a-z_]+)=(\d+)", PAGE[PAGE.index("    header ") : PAGE.index("Restore (`RestoreHeader`)")])
    )
    names = ("manifest_bytes", "files_count", "bytes_count", "payload_bytes")
    assert {name: getattr(header.header, name) for name in names} == {name: int(shown[name]) for name in names}
    assert trailer.trailer.payload.size == len(chunk.chunk.data) == int(shown["size"])


async def test_small_files_share_chunks(tmp_path: Path) -> None:
    """4,096 files of 1 KiB take as many chunks as it says."""
    assert "4,096 files of 1 KiB cost five." in PAGE
    messages = await captured(tmp_path, {f"{number:04}": b"." * 1024 for number in range(4096)})
    assert sum(message.WhichOneof("part") == "chunk" for message in messages) == 5
