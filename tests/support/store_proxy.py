"""A web proxy in front of an object store that fails, cuts, loses, waits and forgets as a test says."""

from __future__ import annotations

import http.client
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass
class Trouble:
    """What goes wrong with requests, and with which: the first that match, `times` of them.

    Attributes:
        method: Only requests of this method; empty: all.
        part: Only requests whose path has this.
        times: How many; None: all.
        hold: The request goes on once this is set.
        status: Answered instead of the store.
        without: Headers that the store does not get.
        is_lost: The store's answer is not passed on: the connection ends.
        cut_after_bytes: So much of the answer's body is passed on, then the connection ends; None: all of it.
        is_flipped: One bit of the last byte of the answer's body is another.
        reached: Set when it strikes.
    """

    method: str = ""
    part: str = ""
    times: int | None = 1
    hold: threading.Event | None = None
    status: int = 0
    without: tuple[str, ...] = ()
    is_lost: bool = False
    cut_after_bytes: int | None = None
    is_flipped: bool = False
    reached: threading.Event = field(default_factory=threading.Event)

    def strikes(self, method: str, path: str) -> bool:
        """Tell whether it strikes a request, and count it."""
        if self.times == 0 or self.method not in ("", method) or self.part not in path:
            return False
        self.times = None if self.times is None else self.times - 1
        self.reached.set()
        return True


class StoreProxy:
    """The proxy.

    Attributes:
        endpoint: Its URL.
        upstream: Host and port of the store.
        troubles: What goes wrong; the first that matches strikes.
        requests: Method and path of each request so far.
    """

    def __init__(self, endpoint: str, upstream: str) -> None:
        self.endpoint = endpoint
        self.upstream = upstream
        self.troubles: list[Trouble] = []
        self.requests: list[tuple[str, str]] = []
        self._lock = threading.Lock()

    def note(self, method: str, path: str) -> Trouble:
        """Note a request and return what goes wrong with it."""
        with self._lock:
            self.requests.append((method, path))
            for trouble in self.troubles:
                if trouble.strikes(method, path):
                    return trouble
        return Trouble()


@contextmanager
def store_proxy(endpoint: str) -> Iterator[StoreProxy]:
    """Stand in front of the store at an endpoint; what is held is let go at the end."""
    with _Server(("127.0.0.1", 0), _Handler) as server:
        proxy = StoreProxy(f"http://127.0.0.1:{server.server_port}", urlsplit(endpoint).netloc)
        server.told = proxy  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield proxy
        finally:
            for trouble in proxy.troubles:
                if trouble.hold is not None:
                    trouble.hold.set()
            server.shutdown()
            thread.join()


class _Server(ThreadingHTTPServer):
    request_queue_size = 64  # who is not taken at once tries again after a second


class _Handler(BaseHTTPRequestHandler):
    def _serve(self) -> None:
        """Pass a request on, with its own name of the host: that is part of what was signed."""
        proxy: StoreProxy = self.server.told  # type: ignore[attr-defined]
        trouble = proxy.note(self.command, self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        if trouble.hold is not None:
            trouble.hold.wait()
        if trouble.status:
            self.send_error(trouble.status)
            return
        unwanted = {"connection", *(name.lower() for name in trouble.without)}
        headers = {name: value for name, value in self.headers.items() if name.lower() not in unwanted}
        upstream = http.client.HTTPConnection(proxy.upstream)
        try:
            upstream.request(self.command, self.path, body=body or None, headers=headers)
            answer = upstream.getresponse()
            data = answer.read()
        except OSError:
            return  # the store has gone
        finally:
            upstream.close()
        if trouble.is_lost:
            return
        if trouble.is_flipped and data:
            data = data[:-1] + bytes([data[-1] ^ 1])
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("connection", "date", "server", "transfer-encoding", "content-length"):
                self.send_header(name, value)
        size = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(data))
        self.send_header("Content-Length", size or "0")
        self.end_headers()
        try:
            self.wfile.write(data[: trouble.cut_after_bytes])
        except OSError:
            self.close_connection = True  # the client has gone

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _serve  # noqa: N815  their names there

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  its name there
        """Say nothing."""
