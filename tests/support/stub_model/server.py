"""The HTTP side of the stub model: one thread, loopback only, every request in a log before it is answered."""

import json
import threading
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Self

from support.stub_model import chat, message, response
from support.stub_model.conversation import Request, answer, refusal

APIS: Mapping[str, ModuleType] = {"/chat/completions": chat, "/messages": message, "/responses": response}
"""Module of each API, by the end of its path: `read`, `whole` and `pieces`."""

COUNT = "/messages/count_tokens"
"""Path of Anthropic's count of what a request would cost, which puts no question to the model."""


class StubModel:
    """A model server for the time of a `with` block.

    Attributes:
        url: Where it listens, without a path.
        log: JSON lines, one per request in the order of arrival: `method`, `path`, `body`.
    """

    def __init__(self, log: Path) -> None:
        self.log = log
        self._server = _Server(log)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, name="stub-model", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def requests(self) -> list[Request]:
        """Read back every question put to the model so far."""
        entries = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [api.read(entry["body"]) for entry in entries if (api := _api(entry["path"]))]


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, log: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self._log = log
        self._writing = threading.Lock()
        log.touch()

    def record(self, entry: Mapping[str, Any]) -> None:
        """Append one request to the log."""
        with self._writing, self._log.open("a") as log:
            log.write(json.dumps(entry) + "\n")


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the base class's name
        """Stay silent: the log has it all."""

    def do_GET(self) -> None:
        self.server.record({"method": "GET", "path": self.path, "body": None})
        self._reply({"error": {"message": "the stub has nothing to read"}}, HTTPStatus.NOT_FOUND)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"null")
        self.server.record({"method": "POST", "path": self.path, "body": body})
        if _ends(self.path, COUNT):
            self._reply({"input_tokens": 100}, HTTPStatus.OK)
            return
        api = _api(self.path)
        if api is None:
            self._reply({"error": {"message": f"the stub does not speak {self.path}"}}, HTTPStatus.NOT_FOUND)
            return
        request: Request = api.read(body)
        said = answer(request)
        if isinstance(said, str) and (status := refusal(request)):
            self._reply({"error": {"type": "stub_error", "message": "the stub was told to fail"}}, status)
            return
        if not request.is_stream:
            self._reply(api.whole(request, said), HTTPStatus.OK)
            return
        self._begin(HTTPStatus.OK, "text/event-stream")
        for name, data in api.pieces(request, said):
            event = f"event: {name}\n" if name else ""
            self.wfile.write(f"{event}data: {data}\n\n".encode())

    def _reply(self, content: Mapping[str, Any], status: int) -> None:
        self._begin(status, "application/json")
        self.wfile.write(json.dumps(content).encode())

    def _begin(self, status: int, kind: str) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("connection", "close")
        self.end_headers()


def _api(path: str) -> ModuleType | None:
    return next((api for end, api in APIS.items() if _ends(path, end)), None)


def _ends(path: str, end: str) -> bool:
    return path.split("?", maxsplit=1)[0].endswith(end)
