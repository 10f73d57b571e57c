"""A server of objects that lies about what it sends."""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from host_client.errors import SessionError
from host_client.transports.objects import ObjectTransport, make_store

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.anyio

_PIECE = bytes(1 << 20)
_PIECES_COUNT = 256


class _Handler(BaseHTTPRequestHandler):
    """Say that a body is short, and send one that is not."""

    protocol_version = "HTTP/1.1"
    sent_count = 0

    def do_GET(self) -> None:
        """Answer."""
        self.send_response(200)
        self.send_header("ETag", '"1"')
        self.send_header("Last-Modified", self.date_time_string())
        self.send_header("Content-Length", "100")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.close_connection = True
        with suppress(OSError):  # nobody reads on
            for _ in range(_PIECES_COUNT):
                self.wfile.write(b"%x\r\n%b\r\n" % (len(_PIECE), _PIECE))
                type(self).sent_count += 1

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def lying_server() -> Iterator[str]:
    """Serve until the end."""
    _Handler.sent_count = 0
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as http:
        thread = threading.Thread(target=http.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{http.server_port}"
        finally:
            http.shutdown()
            thread.join()


async def test_a_body_that_is_longer_than_it_said_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """No more of it is in memory than shows that it is not what was promised."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    with lying_server() as endpoint:
        store = make_store("s3", "bucket", endpoint=endpoint, region="here", allow_http=True, path_style=True)
        with pytest.raises(SessionError) as caught:
            await ObjectTransport(store, name="the store").read("a/b", max_bytes=1000)
    assert caught.value.reason == "digest_mismatch"
    assert _Handler.sent_count < _PIECES_COUNT
