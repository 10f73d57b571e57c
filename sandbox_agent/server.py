"""One run of the daemon: from its configuration to its clean end."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import grpc
from grpc_health.v1 import health, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from sandbox_agent import VERSION, log
from sandbox_agent.boundary import Boundary
from sandbox_agent.core.child import CHILDREN
from sandbox_agent.core.kept import Kept
from sandbox_agent.core.kept_sweep import KeptSweep
from sandbox_agent.core.paths import Roots
from sandbox_agent.core.process_spawn import keep_signals_usable
from sandbox_agent.core.processes import Processes
from sandbox_agent.core.sandbox import Sandbox
from sandbox_agent.core.state import StateJournal
from sandbox_agent.errors import from_os
from sandbox_agent.listen import Address, SocketClaim, read_address
from sandbox_agent.services.bundle import BundleService
from sandbox_agent.services.daemon import DaemonService
from sandbox_agent.services.file import FileService
from sandbox_agent.services.follow import Wakeups
from sandbox_agent.services.process import ProcessService
from sandbox_agent.services.transcript import TranscriptService
from sandbox_api.errors import ConfigurationError, OutpostError, printable
from sandbox_api.limits import MAX_MESSAGE_BYTES
from sandbox_api.v1 import (
    bundle_pb2,
    bundle_pb2_grpc,
    daemon_pb2,
    daemon_pb2_grpc,
    file_pb2,
    file_pb2_grpc,
    process_pb2,
    process_pb2_grpc,
    transcript_pb2,
    transcript_pb2_grpc,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sandbox_agent.config import ServeConfig

MAX_THREADS_COUNT = 16
"""Blocking steps at the same time. A call has one at a time: more calls than this wait for each other's steps."""

MAX_DESCRIPTORS_COUNT = 4096
"""Open files that are asked for where fewer are usual: a process takes up to six."""

MIN_PROBE_SECONDS = 30
"""Shortest interval at which a client may probe a connection on which nothing is sent; ours does every 60 s."""

OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # By default gRPC takes a client that probes an idle connection more than twice in five minutes for an attacker.
    ("grpc.http2.min_ping_interval_without_data_ms", MIN_PROBE_SECONDS * 1000),
    # Without this a second daemon could share our port and get a part of our calls.
    ("grpc.so_reuseport", 0),
)

_SERVICE_NAMES = tuple(
    module.DESCRIPTOR.services_by_name[name].full_name
    for module, name in (
        (bundle_pb2, "BundleService"),
        (daemon_pb2, "DaemonService"),
        (file_pb2, "FileService"),
        (process_pb2, "ProcessService"),
        (transcript_pb2, "TranscriptService"),
    )
)


def serve(config: ServeConfig) -> None:
    """Serve until SIGTERM, SIGINT or, where asked for, the end of standard input.

    Prints one line, `listening TARGET`, once calls are taken. At the end calls in progress have `drain_seconds` to
    finish, then they are cancelled; when this returns they have cleaned up and the socket is gone.

    Raises:
        ConfigurationError: `listen`; `invalid_argument` for a directory that cannot be used.
    """
    umask = os.umask(0o077)
    keep_signals_usable()
    _raise_descriptors()
    address = read_address(config.listen, os.environ)
    with (
        SocketClaim(address),
        _open_sandbox(config) as sandbox,
        ThreadPoolExecutor(MAX_THREADS_COUNT, "worker") as executor,
    ):
        _sweep(sandbox)
        with (
            closing(KeptSweep(sandbox.journal.kept, lambda: _sweep_restores(sandbox))),
            closing(
                # One that belongs to its parent leaves nothing to this machine.
                Processes(sandbox, umask=umask, max_count=config.max_processes, ends_all=config.until_eof)
            ) as processes,
        ):
            asyncio.run(_run(config, sandbox, executor, address, processes))
    log.info("stopped")


def _raise_descriptors() -> None:
    """Let as many files be open as the largest number of processes needs; what they inherit is still moderate."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MAX_DESCRIPTORS_COUNT if hard == resource.RLIM_INFINITY else min(MAX_DESCRIPTORS_COUNT, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _sweep(sandbox: Sandbox) -> None:
    """Finish or remove what a crash left. Without the state folder the daemon still serves; restores are refused."""
    # First what still runs: it may write where a restore is to be finished.
    _tell_swept(sandbox.journal.sweep_processes)
    _sweep_restores(sandbox)


def _sweep_restores(sandbox: Sandbox) -> None:
    _tell_swept(lambda: sandbox.journal.sweep(sandbox.roots))


def _tell_swept(sweep: Callable[[], list[str]]) -> None:
    try:
        lines = sweep()
    except (OSError, OutpostError) as error:
        failure = error if isinstance(error, OutpostError) else from_os(error)
        log.warning("the state folder cannot be used", reason=f"{failure.code}/{failure.reason}")
        return
    for line in lines:
        log.info("swept", what=line)


async def _run(
    config: ServeConfig, sandbox: Sandbox, executor: ThreadPoolExecutor, address: Address, processes: Processes
) -> None:
    boundary = Boundary()
    server = grpc.aio.server(interceptors=[boundary], options=OPTIONS)
    wakeups = Wakeups()
    status = _add_services(server, sandbox, executor, wakeups, processes)
    target = _bind(server, address)
    _reap_orphans(processes)
    with _end_of(config) as ended:
        await server.start()
        log.info("serving", version=VERSION, target=target)
        if not address.socket_path:
            log.warning("every user of this machine can connect to a port; a socket is for the daemon's user alone")
        sys.stdout.write(f"listening {target}\n")
        sys.stdout.flush()
        await ended.wait()
    wakeups.end()  # these calls never finish by themselves
    processes.end(config.drain_seconds)
    log.info("draining", seconds=config.drain_seconds)
    await status.enter_graceful_shutdown()
    await server.stop(config.drain_seconds)
    await boundary.wait_idle()


@contextmanager
def _open_sandbox(config: ServeConfig) -> Iterator[Sandbox]:
    try:
        roots = Roots([config.home, config.workspace, *config.roots])
    except OSError as error:
        raise ConfigurationError(
            "invalid_argument",
            f"'{printable(error.filename)}' cannot be a root: {error.strerror}",
            hint="--home, --workspace and --root name directories that exist",
        ) from None
    journal = StateJournal(config.state, Kept(config.keep_seconds))
    try:
        yield Sandbox(
            roots=roots,
            home=config.home,
            workspace=os.path.realpath(config.workspace),
            environment=dict(os.environ),
            limits=config.limits,
            journal=journal,
        )
    finally:
        journal.close()
        roots.close()


def _add_services(
    server: grpc.aio.Server,
    sandbox: Sandbox,
    executor: ThreadPoolExecutor,
    wakeups: Wakeups,
    processes: Processes,
) -> Any:
    instance_id = uuid.uuid4().hex
    # What protoc generates has no types.
    bundle_pb2_grpc.add_BundleServiceServicer_to_server(BundleService(sandbox, executor), server)  # type: ignore[no-untyped-call]
    daemon_pb2_grpc.add_DaemonServiceServicer_to_server(DaemonService(sandbox, executor, instance_id), server)  # type: ignore[no-untyped-call]
    file_pb2_grpc.add_FileServiceServicer_to_server(FileService(sandbox, executor), server)  # type: ignore[no-untyped-call]
    process_pb2_grpc.add_ProcessServiceServicer_to_server(ProcessService(processes, executor, instance_id), server)  # type: ignore[no-untyped-call]
    transcripts = TranscriptService(sandbox, executor, wakeups)
    transcript_pb2_grpc.add_TranscriptServiceServicer_to_server(transcripts, server)  # type: ignore[no-untyped-call]
    status = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(status, server)
    reflection.enable_server_reflection((*_SERVICE_NAMES, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
    return status


def _bind(server: grpc.aio.Server, address: Address) -> str:
    """Return the target clients use; a port that was left to the system is in it."""
    # A socket is 0600 from the moment it is there: to change its mode afterwards would be to trust its name.
    kept = os.umask(0o177)
    try:
        port = server.add_insecure_port(address.grpc_target)
    except RuntimeError:
        port = 0
    finally:
        os.umask(kept)
    if not port:
        raise ConfigurationError(
            "listen", f"cannot listen on {printable(address.target)}", hint="the port may be taken; choose another"
        )
    if address.socket_path:
        return address.target
    return f"{address.target.rpartition(':')[0]}:{port}"


def _reap_orphans(processes: Processes) -> None:
    def reap() -> None:
        processes.pump.call(CHILDREN.reap)

    CHILDREN.adopt(reap)
    asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, reap)


@contextmanager
def _end_of(config: ServeConfig) -> Iterator[asyncio.Event]:
    """Give an event that is set when the daemon is told to end."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    signals = (signal.SIGTERM, signal.SIGINT)
    for number in signals:
        loop.add_signal_handler(number, ended.set)
    watched = config.until_eof and _watch_input(loop, ended)
    try:
        yield ended
    finally:
        # The handlers stay: a second signal while draining must not end the process before it has cleaned up.
        if watched:
            loop.remove_reader(sys.stdin.fileno())


def _watch_input(loop: asyncio.AbstractEventLoop, ended: asyncio.Event) -> bool:
    descriptor = sys.stdin.fileno()

    def read() -> None:
        if not os.read(descriptor, 4096):
            ended.set()

    try:
        loop.add_reader(descriptor, read)
    except PermissionError:
        # A file or /dev/null cannot be waited for; nobody keeps it open on our behalf.
        ended.set()
        return False
    return True
