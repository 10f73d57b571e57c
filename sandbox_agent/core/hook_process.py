"""The process in which hooks run, seen from the daemon: started, talked to under a deadline, ended.

Everything it sends is untrusted. Whatever it does, the daemon goes on: no wait without a deadline, no frame without a
bound.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import select
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final

from sandbox_agent.core import hook_child
from sandbox_agent.core.child import CHILDREN
from sandbox_agent.core.hook_child import PIECE_BYTES, PREFIX
from sandbox_agent.errors import from_os
from sandbox_api.errors import ConfigurationError, ProcessError, SessionError, printable
from sandbox_api.hook import BUILTINS, MAX_ERROR_CHARACTERS, MODULES

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import NoReturn

_MAX_HEAD_BYTES: Final = 64 << 10  # a path of 4,096 characters, each escaped
_EXIT_SECONDS: Final = 1.0  # for a process that closed its channel to end by itself, so that its status tells how
_DESCRIPTORS: Final = (errno.EMFILE, errno.ENFILE)

Head = dict[str, object]


def child_command(memory_bytes: int) -> list[str]:
    """Return the command of the interpreter that runs hooks.

    It has no environment, no site packages, nothing of its own folder on its path, and writes no bytecode.
    """
    return [sys.executable, "-I", "-S", "-B", hook_child.__file__, str(memory_bytes)]


class HookProcess:
    """One process that runs hooks; leave none behind: `end` it.

    It is started without a `fork` of this threaded process (`vfork` and `exec`), in a session of its own, so that it is
    ended together with whatever a hook may have started.

    Args:
        sources: Source text by name of the hook.
        memory_bytes: Address space of the process.

    Raises:
        ProcessError: `start_failed`.
        LimitError: `descriptors`.
    """

    def __init__(self, sources: Mapping[str, str], memory_bytes: int) -> None:
        self._deadline = math.inf
        self._seconds = math.inf
        self._hook = ""
        self._what = ""
        try:
            with CHILDREN.starting() as add:
                self._process = subprocess.Popen(
                    child_command(memory_bytes),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    bufsize=0,
                    cwd="/",
                    env={},
                    close_fds=True,
                    start_new_session=True,
                )
                add(self._process.pid)
        except OSError as error:
            if error.errno in _DESCRIPTORS:
                raise from_os(error) from None
            facts = {"errno": errno.errorcode.get(error.errno or 0, str(error.errno))}
            raise ProcessError("start_failed", "the interpreter for hooks could not be started", facts=facts) from None
        assert self._process.stdin is not None  # noqa: S101 -- for mypy: both are pipes
        assert self._process.stdout is not None  # noqa: S101 -- for mypy: both are pipes
        self._input, self._output = self._process.stdin, self._process.stdout
        for pipe in (self._input, self._output):
            os.set_blocking(pipe.fileno(), False)
        self._setup: Head = {"sources": dict(sources), "builtins": sorted(BUILTINS), "modules": list(MODULES)}

    def begin(self, hook: str, seconds: float, request: Head, *, path: str = "") -> None:
        """Start the clock and ask for one hook.

        Args:
            hook: Its name.
            seconds: From now until its result is complete.
            request: Its arguments.
            path: File it is called for, for messages.
        """
        self._hook = hook
        self._what = f"the {hook} hook for {printable(path)}" if path else f"the {hook} hook"
        self._seconds = seconds
        self._deadline = time.monotonic() + seconds
        if self._setup:
            self.send(self._setup)
            self._setup = {}
        self.send({"call": hook, "seconds": math.ceil(seconds), **request})

    def send(self, head: Head, body: bytes | memoryview = b"") -> None:
        """Send one frame.

        Raises:
            SessionError: `hook_timeout`, `hook_memory`, `hook_crashed`.
        """
        packed = json.dumps(head).encode()
        try:
            self._write(PREFIX.pack(len(packed), len(body)) + packed)
            self._write(body)
        except BrokenPipeError:
            # It may have said why before it went.
            self.result(self.receive()[0])
            raise self._garbage() from None

    def receive(self) -> tuple[Head, bytearray]:
        """Return the next frame.

        Raises:
            SessionError: `hook_timeout`, `hook_crashed`.
        """
        head_bytes, body_bytes = PREFIX.unpack(self._read(PREFIX.size))
        if head_bytes > _MAX_HEAD_BYTES or body_bytes > PIECE_BYTES:
            raise self._garbage()
        try:
            head = json.loads(self._read(head_bytes))
        except (ValueError, RecursionError):
            raise self._garbage() from None
        if not isinstance(head, dict):
            raise self._garbage()
        return head, self._read(body_bytes)

    def result(self, head: Head) -> object:
        """Return the result that a frame brings.

        Raises:
            SessionError: `hook_failed`, `hook_memory`; `hook_crashed` when the frame brings none.
            ConfigurationError: `invalid_hook`: the source does not compile here.
        """
        if "failed" in head:
            raise self._failure("hook_failed", "failed", {"error": _bounded(head["failed"])})
        if "memory" in head:
            raise self._failure("hook_memory", "needs more memory than it may have")
        if "uncompiled" in head:
            facts = {"hook": self._hook, "error": _bounded(head["uncompiled"])}
            python = ".".join(map(str, sys.version_info[:2]))
            raise ConfigurationError(
                "invalid_hook",
                f"{self._what} is not one function in the sandbox's Python {python}",
                hint="write exactly one lambda expression or one function definition",
                facts=facts,
            )
        if "done" not in head:
            raise self._garbage()
        return head["done"]

    def garbled(self) -> NoReturn:
        """Refuse what the process sent.

        Raises:
            SessionError: `hook_crashed`, always.
        """
        raise self._garbage()

    def end(self) -> None:
        """End the process and whatever it started, and release it; once is enough, twice does no harm."""
        if self._process.returncode is None:
            # The process has not been waited for, so its number, and its group's, are still its own.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            CHILDREN.take_popen(self._process)
        self._input.close()
        self._output.close()

    def _write(self, data: bytes | memoryview) -> None:
        left = memoryview(data)
        while left:
            try:
                left = left[os.write(self._input.fileno(), left) :]
            except BlockingIOError:
                self._wait(self._input.fileno(), select.POLLOUT)

    def _read(self, size_bytes: int) -> bytearray:
        data = bytearray(size_bytes)
        left = memoryview(data)
        while left:
            try:
                count = os.readv(self._output.fileno(), [left])
            except BlockingIOError:
                self._wait(self._output.fileno(), select.POLLIN)
                continue
            if not count:
                raise self._gone()
            left = left[count:]
        return data

    def _wait(self, descriptor: int, event: int) -> None:
        poll = select.poll()
        poll.register(descriptor, event)
        left_seconds = self._deadline - time.monotonic()
        if left_seconds <= 0 or not poll.poll(math.ceil(left_seconds * 1000)):
            raise self._timeout()

    def _gone(self) -> SessionError:
        """Say how the process ended."""
        self._await_exit()
        self.end()
        status = self._process.returncode
        if status == -signal.SIGXCPU:
            return self._timeout()
        facts = {"status": str(status)} if status >= 0 else {"signal": _signal_name(-status)}
        return self._failure("hook_crashed", "ended its interpreter", facts)

    def _await_exit(self) -> None:
        try:
            watch = os.pidfd_open(self._process.pid)
        except OSError:
            return  # an old kernel: the status may say that it was us who ended it
        poll = select.poll()
        poll.register(watch, select.POLLIN)
        poll.poll(int(_EXIT_SECONDS * 1000))
        os.close(watch)

    def _timeout(self) -> SessionError:
        return self._failure("hook_timeout", f"took longer than {self._seconds:g} s")

    def _garbage(self) -> SessionError:
        return self._failure("hook_crashed", "broke its protocol")

    def _failure(self, reason: str, text: str, facts: Mapping[str, str] | None = None) -> SessionError:
        return SessionError(reason, f"{self._what} {text}", facts={"hook": self._hook, **(facts or {})})


def _signal_name(number: int) -> str:
    """Return the name of a signal; a real-time one has but its number."""
    return next((known.name for known in signal.Signals if known == number), str(number))


def _bounded(text: object) -> str:
    return printable(text[:MAX_ERROR_CHARACTERS])[:MAX_ERROR_CHARACTERS] if isinstance(text, str) else ""
