"""A web server on this machine that answers as a test says, for downloads."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@dataclass
class Answer:
    """What is at a path.

    Attributes:
        body: What is sent.
        status: Of the answer.
        headers: Beside or instead of `Content-Length`, which is the body's size unless it is named here; an empty
            value leaves it out.
        hold: The body is sent once this is set; None: at once.
    """

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    hold: threading.Event | None = None


class ArchiveServer:
    """Answers GET requests.

    Attributes:
        url: Where it is, without a trailing slash.
        answers: By path.
        asked: Paths, in the order in which they were asked for.
        waiting: Set when an answer that is held was asked for.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.answers: dict[str, Answer] = {}
        self.asked: list[str] = []
        self.waiting = threading.Event()

    def let_go(self) -> None:
        """Send what is held."""
        for answer in self.answers.values():
            if answer.hold is not None:
                answer.hold.set()


@contextmanager
def archive_server() -> Iterator[ArchiveServer]:
    """Serve until the end; held answers are let go then."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as http:
        server = ArchiveServer(f"http://127.0.0.1:{http.server_port}")
        http.told = server  # type: ignore[attr-defined]
        thread = threading.Thread(target=http.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.let_go()
            http.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        """Send what the test has put there."""
        server: ArchiveServer = self.server.told  # type: ignore[attr-defined]
        server.asked.append(self.path)
        answer = server.answers.get(self.path, Answer(status=404))
        self.send_response(answer.status)
        headers = {"Content-Length": str(len(answer.body)), **answer.headers}
        for name, value in headers.items():
            if value:
                self.send_header(name, value)
        self.end_headers()
        self.wfile.flush()
        if answer.hold is not None:
            server.waiting.set()
            answer.hold.wait()
        try:
            self.wfile.write(answer.body)
        except OSError:
            self.close_connection = True  # the client has gone

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  its name there
        """Say nothing."""
