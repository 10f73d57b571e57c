"""A web server on this machine that answers as Google's or Azure's object store does to what a transport asks.

It has what their references say of conditions, revisions and listings, and no more: it takes no credentials.
"""

from __future__ import annotations

import itertools
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass
class Blob:
    """One object: its bytes, the number of the write that made it, and when that was."""

    data: bytes
    number: int
    seconds: float


@dataclass
class BlobServer:
    """The server.

    Attributes:
        endpoint: Its URL.
        kind: `gs` or `az`.
        blobs: Everything in it, by bucket and path.
    """

    endpoint: str
    kind: str
    blobs: dict[str, Blob] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1_700_000_000_000_000))


@contextmanager
def blob_server(kind: str) -> Iterator[BlobServer]:
    """Serve until the end."""
    with _Server(("127.0.0.1", 0), _Handler) as http:
        http.told = BlobServer(f"http://127.0.0.1:{http.server_port}", kind)  # type: ignore[attr-defined]
        thread = threading.Thread(target=http.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield http.told  # type: ignore[attr-defined]
        finally:
            http.shutdown()
            thread.join()


class _Server(ThreadingHTTPServer):
    request_queue_size = 64  # who is not taken at once tries again after a second


class _Handler(BaseHTTPRequestHandler):
    @property
    def _server(self) -> BlobServer:
        return self.server.told  # type: ignore[attr-defined,no-any-return]

    def do_PUT(self) -> None:
        """Write, if the conditions hold."""
        server = self._server
        data = self.rfile.read(int(self.headers["Content-Length"]))
        path = unquote(urlsplit(self.path).path)
        with server.lock:
            refused = self._refused(server.blobs.get(path))
            if refused:
                self._answer(refused)
                return
            server.blobs[path] = Blob(data, next(server.numbers), time.time())
            self._answer(200 if server.kind == "gs" else 201, blob=server.blobs[path])

    def do_GET(self) -> None:
        """Read, or list."""
        query = parse_qs(urlsplit(self.path).query)
        if "list-type" in query or query.get("comp") == ["list"]:
            self._list(query.get("prefix", [""])[0])
            return
        blob = self._server.blobs.get(unquote(urlsplit(self.path).path))
        self._answer(404 if blob is None else 200, blob.data if blob else b"", blob=blob)

    do_HEAD = do_GET  # noqa: N815  its name there

    def do_DELETE(self) -> None:
        """Remove."""
        found = self._server.blobs.pop(unquote(urlsplit(self.path).path), None)
        self._answer(404 if found is None else 204)

    def do_POST(self) -> None:
        """Remove many: one answer for each, in one body."""
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        paths = [line.split()[1] for line in body.splitlines() if line.startswith("DELETE ")]
        parts = []
        for number, path in enumerate(paths):
            found = self._server.blobs.pop(unquote(urlsplit(path).path), None)
            said = "HTTP/1.1 202 Accepted" if found else "HTTP/1.1 404 The specified blob does not exist."
            error = "" if found else "x-ms-error-code: BlobNotFound\r\n"
            parts.append(
                f"--batch\r\nContent-Type: application/http\r\nContent-ID: {number}\r\n\r\n{said}\r\n{error}"
                "x-ms-version: 2023-11-03\r\n\r\n"
            )
        answer = "".join(parts) + "--batch--\r\n"
        self._answer(202, answer.encode(), kind="multipart/mixed; boundary=batch")

    def _refused(self, blob: Blob | None) -> int:
        headers = self.headers
        if self._server.kind == "gs":
            wanted = headers.get("x-goog-if-generation-match")
            return 412 if wanted is not None and int(wanted) != (blob.number if blob else 0) else 0
        if headers.get("If-None-Match") == "*" and blob:
            return 409
        wanted = headers.get("If-Match")
        return 412 if wanted is not None and (blob is None or wanted != f'"0x{blob.number:X}"') else 0

    def _list(self, prefix: str) -> None:
        bucket = unquote(urlsplit(self.path).path).rstrip("/") + "/"
        with self._server.lock:
            blobs = dict(self._server.blobs)
        found = sorted(
            (path.removeprefix(bucket), blob) for path, blob in blobs.items() if path.startswith(bucket + prefix)
        )
        if self._server.kind == "gs":
            rows = [
                f"<Contents><Key>{escape(path)}</Key><Size>{len(blob.data)}</Size><ETag>x</ETag><LastModified>"
                f"{time.strftime('%Y-%m-%dT%H:%M:%S.000Z', time.gmtime(blob.seconds))}</LastModified></Contents>"
                for path, blob in found
            ]
            text = f"<ListBucketResult>{''.join(rows)}</ListBucketResult>"
        else:
            rows = [
                f"<Blob><Name>{escape(path)}</Name><Properties><Content-Length>{len(blob.data)}</Content-Length>"
                f"<Content-Type>a/b</Content-Type><Etag>0x{blob.number:X}</Etag><Last-Modified>"
                f"{formatdate(blob.seconds, usegmt=True)}</Last-Modified></Properties></Blob>"
                for path, blob in found
            ]
            text = f"<EnumerationResults><Blobs>{''.join(rows)}</Blobs></EnumerationResults>"
        self._answer(200, text.encode(), kind="application/xml")

    def _answer(self, status: int, body: bytes = b"", *, blob: Blob | None = None, kind: str = "a/b") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", kind)
        if blob is not None:
            self.send_header("ETag", f'"0x{blob.number:X}"')
            self.send_header("Last-Modified", formatdate(blob.seconds, usegmt=True))
            if self._server.kind == "gs":
                self.send_header("x-goog-generation", str(blob.number))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  its name there
        """Say nothing."""
