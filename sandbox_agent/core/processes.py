"""All processes of one daemon: started once each, known by their ids, forgotten in time."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from sandbox_agent import log
from sandbox_agent.core.paths import LinkError
from sandbox_agent.core.process import Process
from sandbox_agent.core.process_note import Note
from sandbox_agent.core.process_pause import Pause
from sandbox_agent.core.process_plan import MARK, environment_of
from sandbox_agent.core.process_pump import Pump
from sandbox_agent.core.process_remains import end_marked
from sandbox_agent.core.process_spawn import own_directory_and_umask, spawn
from sandbox_agent.core.process_warden import Warden
from sandbox_agent.core.process_window import open_spool
from sandbox_agent.core.program import find_program
from sandbox_agent.errors import from_os
from sandbox_api.errors import ConflictError, LimitError, OutpostError, ProcessError, UnavailableError, printable
from sandbox_api.limits import MIB

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandbox_agent.core.paths import Directory
    from sandbox_agent.core.process import Cause
    from sandbox_agent.core.process_plan import Plan
    from sandbox_agent.core.sandbox import Sandbox

MAX_PROCESSES_COUNT = 256
MAX_OVER_COUNT = 1024
"""Processes that are over and not released."""
MAX_SPOOLED_COUNT = 128
"""Those of them, and younger ones, that hold files of output."""
MAX_MEMORY_BYTES = 16 * MIB
"""What they keep of output in memory, all together."""
KEEP_SECONDS = 600.0
"""How long one that is over is kept, from its end or its last reader."""

_FEW_COUNT = 100  # so few can take no more than any of these
_SWEEP_SECONDS = 10.0
_CLOSE_SECONDS = 8.0


class _Entry:
    """A process, or the start of one; `process` is set once it has begun."""

    def __init__(self, fingerprint: bytes) -> None:
        self.fingerprint = fingerprint
        self.start: Future[Process] = Future()
        self.process: Process | None = None


class Processes:
    """The processes of a daemon. Leave it with `close`.

    Args:
        sandbox: Where they run.
        umask: What they get.
        max_count: Most that run at a time.
        ends_all: Whether what left its group on purpose ends with the daemon, too.
    """

    def __init__(
        self, sandbox: Sandbox, *, umask: int, max_count: int = MAX_PROCESSES_COUNT, ends_all: bool = False
    ) -> None:
        self._sandbox = sandbox
        self._umask = umask
        self._max_count = max_count
        self._ends_all = ends_all
        self._own = {os.fsencode(name): os.fsencode(value) for name, value in sandbox.environment.items()}
        self._note = Note()
        self._has_note = True
        self._started_count = 0
        self._running_count = 0
        self._over_count = 0
        self._lock = threading.Lock()
        self._entries: dict[str, _Entry] = {}
        self._is_ending = False
        self.pump = Pump()
        self._pause = Pause()
        self._warden = Warden(self.pump)
        # One thread: what is started is started one after the other in any case, and this one has its own directory.
        self._spawner = ThreadPoolExecutor(1, "spawner", initializer=own_directory_and_umask)
        self.pump.call(self._expire)

    def start(self, process_id: str, plan: Plan, fingerprint: bytes) -> Future[Process]:
        """Begin to start a process; a repeated start of the same gives the same.

        Args:
            process_id: Its id.
            plan: What to start; checked.
            fingerprint: Equal for equal requests.

        Returns:
            The process, or why it could not be started. The start goes on whether or not anybody waits.

        Raises:
            ConflictError: `exists`.
            LimitError: `max_processes`.
            UnavailableError: `unreachable`: the daemon ends.
        """
        with self._lock:
            entry = self._entries.get(process_id)
            if entry is not None:
                if entry.fingerprint != fingerprint:
                    raise ConflictError(
                        "exists", f"the id '{process_id}' belongs to another process", facts={"id": process_id}
                    )
                return entry.start
            if self._is_ending:
                raise UnavailableError("unreachable", "the daemon is ending")
            self._check_count()
            entry = self._entries[process_id] = _Entry(fingerprint)
            self._running_count += 1
            # Within the lock: nothing is submitted once the daemon ends.
            self._pause.begin()
            self._spawner.submit(self._start, process_id, plan, entry)
        return entry.start

    def get(self, process_id: str) -> Process:
        """Return a process.

        Raises:
            ProcessError: `unknown`.
        """
        with self._lock:
            entry = self._entries.get(process_id)
            process = entry.process if entry is not None else None
        if process is None:
            raise ProcessError(
                "unknown",
                f"no process '{process_id}' is known",
                hint="a daemon that was started again knows none of those before",
                facts={"id": process_id},
            )
        return process

    def starting(self, process_id: str) -> Future[Process] | None:
        """Return the start of a process, in progress or over; None: no such start is known."""
        with self._lock:
            entry = self._entries.get(process_id)
        return None if entry is None else entry.start

    def known(self) -> list[Process]:
        """Return all processes, oldest first."""
        with self._lock:
            found = [entry.process for entry in self._entries.values()]
        return sorted((process for process in found if process is not None), key=lambda process: process.started_ns)

    def release(self, process_id: str) -> None:
        """Begin to forget a process: at once when it is over, else when it will be.

        Raises:
            ProcessError: `unknown`: there is nothing to forget.
        """
        process = self.get(process_id)
        self.pump.call(lambda: self._release(process))

    def find_program(self, name: bytes, variables: Mapping[bytes, bytes]) -> Future[bytes]:
        """Look for a program as a start would; the absolute path, empty: there is none."""
        return self._spawner.submit(self._find_program, name, variables)

    def end(self, within_seconds: float) -> None:
        """Begin to end all processes, because the daemon ends."""
        with self._lock:
            self._is_ending = True
        # After the starts in progress.
        self._spawner.submit(
            self.pump.call, lambda: self._end_all("shutdown", min(within_seconds / 2, _CLOSE_SECONDS / 2))
        )

    def close(self) -> None:
        """End what still runs, at once, and the threads."""
        with self._lock:
            self._is_ending = True
        self._spawner.shutdown()
        self.pump.call(lambda: self._end_all("shutdown", 0.0))
        running = [process for process in self.known() if process.exit is None]
        until = time.monotonic() + _CLOSE_SECONDS
        for process in running:
            self.pump.call(process.discard)
            over = threading.Event()
            process.audience.wake_by(over.set)
            while process.exit is None and time.monotonic() < until:
                over.wait(max(0.0, min(1.0, until - time.monotonic())))
                over.clear()
        for process in self.known():
            self.pump.call(process.abandon)
            self.pump.call(process.forget)
        self._warden.close()
        self.pump.close()
        if self._ends_all and self._started_count:
            end_marked({self._note.key.encode()}, patience_seconds=_CLOSE_SECONDS / 8)
        if any(process.exit is None for process in running):
            log.warning("processes are left")
            self._note.close()
        else:
            self._note.remove()

    # In the spawner's thread

    def _start(self, process_id: str, plan: Plan, entry: _Entry) -> None:
        try:
            process = self._spawn(process_id, plan)
        except BaseException as error:  # noqa: BLE001  it goes to who waits for the start
            self._forget_start(process_id)
            self._pause.end()
            entry.start.set_exception(error)
        else:
            self.pump.call(lambda: self._begin(process, entry))

    def _forget_start(self, process_id: str) -> None:
        with self._lock:
            del self._entries[process_id]
            self._running_count -= 1

    def _spawn(self, process_id: str, plan: Plan) -> Process:
        self._leave_note()
        self._started_count += 1
        mark = f"{self._note.key}.{self._started_count}".encode()
        with self._directory(plan.cwd) as directory:
            environment = environment_of(self._own, self._sandbox.home, plan.variables)
            environment |= {b"PWD": directory.path, MARK: mark}
            spawned = spawn(plan, environment, directory, self._umask)
        return Process(
            process_id,
            plan,
            spawned,
            mark,
            pump=self.pump,
            pause=self._pause,
            warden=self._warden,
            make_spool=lambda: open_spool(self._sandbox.journal.directory),
            on_over=self._over,
        )

    def _directory(self, path: bytes) -> Directory:
        path = path or self._sandbox.workspace
        try:
            return self._sandbox.roots.directory(path)
        except LinkError:
            raise
        except (FileNotFoundError, NotADirectoryError):
            raise ProcessError(
                "no_such_directory",
                f"the working directory '{printable(path)}' is not there",
                facts={"path": printable(path)},
            ) from None

    def _find_program(self, name: bytes, variables: Mapping[bytes, bytes]) -> bytes:
        environment = environment_of(self._own, self._sandbox.home, variables)
        with self._directory(b"") as directory:
            found = find_program(name, environment.get(b"PATH"), directory.fd)
        return os.path.normpath(os.path.join(self._sandbox.workspace, found)) if found else b""

    def _leave_note(self) -> None:
        if not self._has_note:
            return
        try:
            self._note.write(self._sandbox.journal.directory)
        except (OSError, OutpostError) as error:
            failure = error if isinstance(error, OutpostError) else from_os(error)
            self._has_note = False
            log.warning("what this daemon starts outlives its kill", reason=f"{failure.code}/{failure.reason}")

    # In the pump's thread

    def _begin(self, process: Process, entry: _Entry) -> None:
        self._pause.end()
        try:
            process.begin()
        except Exception as error:
            self._forget_start(process.id)
            try:
                process.give_up()
            finally:
                # Somebody waits for it.
                entry.start.set_exception(LimitError("descriptors", "no more descriptors can be waited for"))
            if not isinstance(error, OSError):
                raise
        else:
            entry.process = process
            entry.start.set_result(process)

    def _over(self, process: Process) -> None:
        outcome = process.exit
        if outcome is not None:
            seconds = f"{outcome.duration_seconds:.3f}"
            log.info("process", pid=process.pid, seconds=seconds, cause=outcome.cause, status=outcome.status)
        with self._lock:
            self._running_count -= 1
        if process.is_released:
            self._drop(process)
        self._over_count += 1
        if self._over_count > _FEW_COUNT // 8:  # to look at all of them each time would make many slow
            self._over_count = 0
            self._drop_oldest()

    def _release(self, process: Process) -> None:
        if process.exit is None:
            process.is_released = True
            process.end("signal", process.plan.grace_seconds)
            process.discard()
        else:
            self._drop(process)

    def _drop(self, process: Process) -> None:
        with self._lock:
            entry = self._entries.get(process.id)
            if entry is not None and entry.process is process:
                del self._entries[process.id]
        process.forget()

    def _drop_oldest(self) -> None:
        over = [process for process in self.known() if process.exit is not None]
        if len(over) <= _FEW_COUNT:
            return
        spooled_count = memory_bytes = 0
        youngest_first = sorted(over, key=lambda one: one.audience.left_at, reverse=True)
        for over_count, process in enumerate(youngest_first, 1):
            spooled_count += any(window.has_spool for window in process.windows)
            memory_bytes += sum(window.memory_bytes for window in process.windows)
            if over_count > MAX_OVER_COUNT or spooled_count > MAX_SPOOLED_COUNT or memory_bytes > MAX_MEMORY_BYTES:
                self._drop(process)

    def _expire(self) -> None:
        before = time.monotonic() - KEEP_SECONDS
        for process in self.known():
            if process.exit is not None and process.audience.left_at < before:
                self._drop(process)
        self.pump.at(time.monotonic() + _SWEEP_SECONDS, self._expire)

    def _end_all(self, cause: Cause, grace_seconds: float) -> None:
        for process in self.known():
            process.end(cause, min(grace_seconds, process.plan.grace_seconds))

    def _check_count(self) -> None:
        if self._running_count >= self._max_count:
            raise LimitError(
                "max_processes",
                f"{self._running_count} processes run already",
                hint="wait for one to end, or start the daemon with a larger --max-processes",
                facts={"max_processes": str(self._max_count)},
            )
