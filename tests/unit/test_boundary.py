"""What leaves the daemon when a call fails: a status of the table, and one line of log."""

from __future__ import annotations

import asyncio
import errno
import io
import json
import logging
from contextlib import asynccontextmanager, redirect_stderr
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from sandbox_agent import log
from sandbox_agent.boundary import Boundary
from sandbox_api.errors import ROWS, OutpostError, SessionError, WorkspaceError
from sandbox_api.v1 import daemon_pb2
from sandbox_api.wire import STATUS_KEY, unpack_status

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from pathlib import Path

    Handler = Callable[[Any, Any], Awaitable[Any]]

_METHOD = "/sandbox_api.test/Call"


@dataclass(frozen=True)
class _Served:
    channel: grpc.aio.Channel
    log: io.StringIO

    def logged(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.getvalue().splitlines()]


@pytest.fixture(autouse=True)
def _no_log_left() -> Iterator[None]:
    """Undo `log.set_up`."""
    yield
    root = logging.getLogger()
    root.handlers[:] = [handler for handler in root.handlers if not isinstance(handler.formatter, log._Formatter)]
    logging.getLogger("sandbox_agent").setLevel(logging.NOTSET)


@asynccontextmanager
async def _serve(
    handler: Handler, tmp_path: Path, boundary: Boundary | None = None, *, debug: bool = False
) -> AsyncIterator[_Served]:
    """Serve one handler as each kind of call within the boundary, logging JSON."""
    lines = io.StringIO()
    with redirect_stderr(lines):
        log.set_up(as_json=True, debug=debug)
    info = daemon_pb2.GetInfoRequest
    coding = {"request_deserializer": info.FromString, "response_serializer": info.SerializeToString}
    methods = {
        "Call": grpc.unary_unary_rpc_method_handler(handler, **coding),
        "Out": grpc.unary_stream_rpc_method_handler(handler, **coding),
        "In": grpc.stream_unary_rpc_method_handler(handler, **coding),
        "Both": grpc.stream_stream_rpc_method_handler(handler, **coding),
    }
    server = grpc.aio.server(interceptors=[boundary or Boundary()])
    server.add_generic_rpc_handlers(
        [
            grpc.method_handlers_generic_handler("sandbox_api.test", methods),
            grpc.method_handlers_generic_handler("foreign.test", methods),
        ]
    )
    server.add_insecure_port(f"unix:{tmp_path}/socket")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"unix:{tmp_path}/socket") as channel:
            yield _Served(channel, lines)
    finally:
        await server.stop(None)


def _raising(error: BaseException) -> Handler:
    async def handler(request: Any, context: Any) -> Any:  # noqa: ARG001
        raise error

    return handler


async def _status(call: Awaitable[Any]) -> tuple[grpc.aio.AioRpcError, OutpostError | None]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    details = dict(caught.value.trailing_metadata() or ()).get(STATUS_KEY)
    return caught.value, unpack_status(details) if isinstance(details, bytes) else None


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["Call", "Out", "In", "Both"])
async def test_failure_of_ours_keeps_all_it_says(kind: str, tmp_path: Path) -> None:
    """Whatever kind of call fails, its client gets code, reason, message, hint, facts and offenders."""
    error = SessionError("symlink", "a link is in the way", hint="remove it", facts={"path": "/a"})
    async with _serve(_raising(error), tmp_path) as served:
        make = {
            "Call": lambda: served.channel.unary_unary("/sandbox_api.test/Call")(b""),
            "Out": lambda: anext(aiter(served.channel.unary_stream("/sandbox_api.test/Out")(b""))),
            "In": served.channel.stream_unary("/sandbox_api.test/In"),
            "Both": lambda: served.channel.stream_stream("/sandbox_api.test/Both")().read(),
        }
        raised, failure = await _status(make[kind]())
    assert isinstance(failure, SessionError)
    assert (failure.reason, failure.message, failure.hint, failure.facts) == (
        "symlink",
        "a link is in the way",
        "remove it",
        {"path": "/a"},
    )
    assert raised.code().name == ROWS["session", "symlink"].grpc_status
    assert raised.details() == "session/symlink: a link is in the way"


@pytest.mark.anyio
async def test_system_error_is_mapped(tmp_path: Path) -> None:
    """An `OSError` that nobody caught is still a row of the table, without the system's text."""
    error = OSError(errno.ENOSPC, "device text", "/home/me/x")
    async with _serve(_raising(error), tmp_path) as served:
        raised, failure = await _status(served.channel.unary_unary(_METHOD)(b""))
    assert failure is not None
    assert (failure.code, failure.reason) == ("limit", "disk_full")
    assert "device text" not in str(raised)


@pytest.mark.anyio
async def test_unforeseen_error_is_an_incident(tmp_path: Path) -> None:
    """The client gets a number and nothing of the error; our log has number, class and stack, not the text."""
    async with _serve(_raising(KeyError("content of a session")), tmp_path) as served:
        raised, failure = await _status(served.channel.unary_unary(_METHOD)(b""))
    assert failure is not None
    assert (failure.code, failure.reason) == ("unavailable", "internal")
    assert "KeyError" not in str(raised)
    assert "Traceback" not in str(raised)
    incident, call = served.logged()
    assert incident["event"] == "incident"
    assert incident["call"] == failure.facts["incident"] == call["call"]
    assert incident["error"] == "KeyError"
    assert "in handler" in incident["traceback"]
    assert "content of a session" not in json.dumps([incident, call])


@pytest.mark.anyio
async def test_error_of_grpc_is_a_call_that_ended(tmp_path: Path) -> None:
    """What gRPC raises when a call ends under its handler is no incident, and its class does not reach the client."""
    async with _serve(_raising(grpc.aio.InternalError("core text")), tmp_path) as served:
        raised, failure = await _status(served.channel.unary_unary(_METHOD)(b""))
    assert failure is not None
    assert (failure.code, failure.reason) == ("unavailable", "cancelled")
    assert "core text" not in str(raised)
    assert [line["event"] for line in served.logged()] == ["call"]


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["Call", "Both"])
async def test_message_that_cannot_be_decoded(kind: str, tmp_path: Path) -> None:
    """Bytes that are no message are `session/protocol`, whether gRPC or the call decodes them."""

    async def handler(request: Any, context: Any) -> Any:
        return await context.read() if kind == "Both" else request

    async with _serve(handler, tmp_path) as served:
        if kind == "Call":
            _, failure = await _status(served.channel.unary_unary(_METHOD)(b"\xff"))
        else:
            # Not an iterator: gRPC reports the failure of its own write to a call that has ended, and loses the status.
            stream = served.channel.stream_stream("/sandbox_api.test/Both")()
            await stream.write(b"\xff")
            _, failure = await _status(stream.read())
    assert failure is not None
    assert (failure.code, failure.reason) == ("session", "protocol")


@pytest.mark.anyio
async def test_success_is_one_line_without_paths(tmp_path: Path) -> None:
    """A call that ends well is logged with its method, duration and outcome, and nothing else."""

    async def handler(request: Any, context: Any) -> Any:  # noqa: ARG001
        return request

    async with _serve(handler, tmp_path) as served:
        await served.channel.unary_unary(_METHOD)(b"")
    (line,) = served.logged()
    assert set(line) == {"time", "level", "event", "call", "method", "seconds", "outcome"}
    assert (line["method"], line["outcome"]) == (_METHOD, "ok")


@pytest.mark.anyio
async def test_refusal_is_logged_by_code_and_reason(tmp_path: Path) -> None:
    """The message of a failure, which may name paths, stays out of the log."""
    error = WorkspaceError("not_found", "nothing is at /home/me/secret")
    error.add_note("cannot remove /home/me/secret.tmp")
    async with _serve(_raising(error), tmp_path) as served:
        await _status(served.channel.unary_unary(_METHOD)(b""))
    left, call = served.logged()
    assert left["event"] == "something may be left behind"
    assert call["outcome"] == "workspace/not_found"
    assert "secret" not in json.dumps([left, call])


@pytest.mark.anyio
async def test_debugging_tells_messages(tmp_path: Path) -> None:
    """Who asks for it gets messages, notes and the texts of errors."""
    error = ValueError("secret text")
    error.add_note("secret note")
    async with _serve(_raising(error), tmp_path, debug=True) as served:
        await _status(served.channel.unary_unary(_METHOD)(b""))
    lines = served.logged()
    assert [line["event"] for line in lines if line["level"] == "debug"] == ["failure", "note"]
    assert "secret text" in json.dumps(lines)
    assert "secret note" in json.dumps(lines)


@pytest.mark.anyio
async def test_cancel_reaches_the_call_and_is_waited_for(tmp_path: Path) -> None:
    """When the client goes away the call is cancelled, and `wait_idle` returns only after its clean-up."""
    begun, cleaned, may_clean = asyncio.Event(), asyncio.Event(), asyncio.Event()
    boundary = Boundary()

    async def handler(request: Any, context: Any) -> Any:  # noqa: ARG001
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await may_clean.wait()
            cleaned.set()

    async with _serve(handler, tmp_path, boundary) as served:
        call = served.channel.unary_unary(_METHOD)(b"")
        await begun.wait()
        call.cancel()
        idle = asyncio.ensure_future(boundary.wait_idle())
        await asyncio.wait([idle], timeout=0.05)
        assert not idle.done()
        may_clean.set()
        await idle
        assert cleaned.is_set()
    assert [line["outcome"] for line in served.logged()] == ["unavailable/cancelled"]


@pytest.mark.anyio
async def test_foreign_services_are_left_alone(tmp_path: Path) -> None:
    """Health and reflection answer in their own words, and are not logged: a health check comes every few seconds."""

    async def handler(request: Any, context: Any) -> Any:  # noqa: ARG001
        await context.abort(grpc.StatusCode.NOT_FOUND, "their own words")

    async with _serve(handler, tmp_path) as served:
        raised, failure = await _status(served.channel.unary_unary("/foreign.test/Call")(b""))
    assert (raised.details(), failure, served.logged()) == ("their own words", None, [])


@pytest.mark.anyio
async def test_unknown_call_is_unimplemented(tmp_path: Path) -> None:
    """A call the daemon does not know gets gRPC's own status, which clients take for `unavailable/unsupported`."""
    async with _serve(_raising(ValueError()), tmp_path) as served:
        raised, _ = await _status(served.channel.unary_unary("/sandbox_api.test/Later")(b""))
    assert raised.code() is grpc.StatusCode.UNIMPLEMENTED


def test_text_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """As text, a line has time, level, event and fields; what could break the line is quoted."""
    log.set_up(as_json=False, debug=False)
    log.info("call", method="/m", outcome="ok", odd="a b\n", empty="")
    log.debug("never", path="/x")
    logging.getLogger("grpc").warning("their\nline")
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" ", 1)[1] for line in lines] == [
        'info call method=/m outcome=ok odd="a b\\n" empty=""',
        'warning "their\\nline" logger=grpc',
    ]


def test_text_incident(capsys: pytest.CaptureFixture[str]) -> None:
    """As text, an incident is followed by its stack."""
    log.set_up(as_json=False, debug=False)
    log.failure("incident", ValueError("secret"), call="1")
    first, last = capsys.readouterr().err.splitlines()
    assert first.endswith(" error incident call=1 error=ValueError")
    assert last == "ValueError"
