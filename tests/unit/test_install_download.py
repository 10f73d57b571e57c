"""Downloads of archives: from allowed places alone, bounded, and verified as a whole."""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
import threading
from typing import TYPE_CHECKING

import pytest

from host_client.agents.tool import Download
from host_client.errors import ProcessError
from host_client.turns.install_download import download
from support.archive_server import Answer, archive_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.archive_server import ArchiveServer

pytestmark = pytest.mark.anyio

BODY = bytes(range(256)) * 9000
RIGHT = hashlib.sha512(BODY).hexdigest()


@pytest.fixture
def server() -> Iterator[ArchiveServer]:
    """A web server of this test alone."""
    with archive_server() as serving:
        yield serving


async def fetched(
    server: ArchiveServer, path: str = "/tool", *, sha512: str = RIGHT, max_bytes: int = 1 << 24
) -> bytes:
    """Download it and return what arrived."""
    source = Download(url=server.url + path, sha512=sha512, max_bytes=max_bytes)
    with tempfile.TemporaryFile() as file:
        await download(source, file)
        file.seek(0)
        return file.read()


async def refusal(server: ArchiveServer, path: str = "/tool", *, sha512: str = RIGHT, max_bytes: int = 1 << 24) -> str:
    """Download it, which must fail; return the message."""
    with pytest.raises(ProcessError) as failure:
        await fetched(server, path, sha512=sha512, max_bytes=max_bytes)
    assert failure.value.reason == "install_failed"
    return failure.value.message


@pytest.mark.parametrize("length", [str(len(BODY)), ""], ids=["with a length", "without a length"])
async def test_what_is_right_arrives(server: ArchiveServer, length: str) -> None:
    """The bytes of the URL are written when they have the SHA-512, whether or not the server says how many."""
    server.answers["/tool"] = Answer(BODY, headers={"Content-Length": length})
    assert await fetched(server) == BODY


async def test_another_digest_is_refused(server: ArchiveServer) -> None:
    """One changed bit anywhere is found; the message names the place and not the query, which may be a key."""
    server.answers["/tool?key=secret"] = Answer(BODY[:-1] + b"\0")
    message = await refusal(server, "/tool?key=secret")
    assert "does not have the SHA-512" in message
    assert "secret" not in message


async def test_a_body_that_is_cut_off_is_refused(server: ArchiveServer) -> None:
    """A connection that ends early is told apart from another content."""
    server.answers["/tool"] = Answer(BODY[:1000], headers={"Content-Length": str(len(BODY))})
    message = await refusal(server)
    assert "was cut off" in message or "to its end" in message


async def test_more_than_may_be_is_refused_before_it_is_read(server: ArchiveServer) -> None:
    """A length over the limit ends the download at its header."""
    server.answers["/tool"] = Answer(BODY, hold=threading.Event())
    assert "more than 1000" in await refusal(server, max_bytes=1000)


async def test_more_than_may_be_is_refused_while_it_is_read(server: ArchiveServer) -> None:
    """A server that names no length is stopped at the limit."""
    server.answers["/tool"] = Answer(BODY, headers={"Content-Length": ""})
    assert "more than 1000" in await refusal(server, max_bytes=1000)


@pytest.mark.parametrize("status", [404, 500, 301])
async def test_no_file_is_a_failure(server: ArchiveServer, status: int) -> None:
    """A status other than 200, and a redirect to nowhere, is told by its number."""
    server.answers["/tool"] = Answer(BODY, status=status)
    assert str(status) in await refusal(server)


async def test_a_redirect_on_this_machine_is_followed(server: ArchiveServer) -> None:
    """Where a download may come from, it may be sent to."""
    server.answers["/tool"] = Answer(status=302, headers={"Location": "/moved"})
    server.answers["/moved"] = Answer(BODY)
    assert await fetched(server) == BODY


@pytest.mark.parametrize("target", ["http://archive.invalid/tool", "ftp://127.0.0.1/tool", "file:///etc/passwd"])
async def test_a_redirect_to_elsewhere_is_refused(server: ArchiveServer, target: str) -> None:
    """Nothing is asked of a place that is neither https nor this machine."""
    server.answers["/tool"] = Answer(status=302, headers={"Location": target})
    message = await refusal(server)
    assert "redirects to a place that is not https" in message or "302" in message


async def test_redirects_in_a_circle_end(server: ArchiveServer) -> None:
    """A server that sends a client round and round is given up."""
    server.answers["/tool"] = Answer(status=302, headers={"Location": "/tool"})
    assert "302" in await refusal(server)
    assert len(server.asked) < 10


async def test_nobody_there_is_a_failure() -> None:
    """A refused connection says so in words of ours."""
    with archive_server() as gone:
        pass
    assert "cannot be reached" in await refusal(gone)


async def test_a_server_that_falls_silent_is_given_up(server: ArchiveServer) -> None:
    """The limit is on silence, so that a large file may take its time."""
    server.answers["/tool"] = Answer(BODY, hold=threading.Event())
    source = Download(url=server.url + "/tool", sha512=RIGHT)
    with tempfile.TemporaryFile() as file, pytest.raises(ProcessError, match="does not answer"):
        await download(source, file, stall_seconds=0.2)


async def test_a_cancel_ends_a_download(server: ArchiveServer) -> None:
    """It ends with the next thing the server says, and nothing stays open."""
    held = server.answers["/tool"] = Answer(BODY, hold=threading.Event())
    task = asyncio.ensure_future(fetched(server))
    await asyncio.to_thread(server.waiting.wait)
    task.cancel()
    assert held.hold is not None
    held.hold.set()
    with pytest.raises(asyncio.CancelledError):
        await task
