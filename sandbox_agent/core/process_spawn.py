"""Start a process: on pipes or on a terminal, in a session of its own, without a `fork` of this threaded program."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import signal
import struct
import subprocess
import termios
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sandbox_agent.core.child import CHILDREN
from sandbox_agent.core.program import find_program, no_such_program, not_executable
from sandbox_agent.errors import from_os
from sandbox_api.errors import LimitError, OutpostError, ProcessError, printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandbox_agent.core.paths import Directory
    from sandbox_agent.core.process_plan import Plan, Size

_CLONE_FS = 0x200
_LIMITS = (errno.EMFILE, errno.ENFILE, errno.ENOSPC)
_NO_PROGRAM = (errno.ENOEXEC, errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ETXTBSY)
"""What starting a file that is there answers when it is no program: of a script, its interpreter may be missing."""
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


@dataclass(slots=True)
class Spawned:
    """A process that runs. The descriptors do not block and belong to who has this; -1: there is none.

    Attributes:
        pid: Its number, and that of its group and session.
        start_ticks: When it began, as the kernel counts it: what tells it from a later process of that number.
        stdin: What it reads is written here.
        stdout: What it prints is read here.
        stderr: Likewise.
        is_terminal: Whether `stdin` and `stdout` are one terminal, opened twice.
    """

    pid: int
    start_ticks: int
    stdin: int
    stdout: int
    stderr: int
    is_terminal: bool = False


def own_directory_and_umask() -> None:
    """Give the calling thread a working directory and umask of its own, where the system allows that.

    Seccomp filters of containers may not. Then `spawn` changes those of the whole daemon for the moment in which a
    process is started on a terminal: nothing in it depends on either.
    """
    with suppress(AttributeError):
        ctypes.CDLL(None).unshare(_CLONE_FS)


def keep_signals_usable() -> None:
    """Let processes begin with the default action of signals that this process was told to ignore.

    What is ignored stays so in what is started; what is handled does not. To be called in the main thread.
    """
    for number in signal.valid_signals():
        if number not in _IGNORED_BY_PYTHON and signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


def spawn(plan: Plan, environment: Mapping[bytes, bytes], directory: Directory, umask: int) -> Spawned:
    """Start a process.

    Args:
        plan: What; its `variables` and `cwd` have been made to the two following.
        environment: All its variables.
        directory: Its working directory.
        umask: Its umask.

    Raises:
        ProcessError: `no_such_program`, `not_executable`, `start_failed`.
        LimitError: `descriptors`.
    """
    program = find_program(plan.argv[0], environment.get(b"PATH"), directory.fd)
    if program is None:
        raise no_such_program(plan.argv[0])
    try:
        if plan.terminal is not None:
            return _spawn_on_terminal(plan, program, environment, directory, umask)
        return _spawn_on_pipes(plan, program, environment, directory, umask)
    except OSError as error:
        raise _failure(error, program) from None


def set_size(terminal: int, size: Size) -> None:
    """Change the size of a terminal; its foreground group is told by SIGWINCH."""
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", size.rows, size.columns, 0, 0))


def start_ticks_of(pid: int) -> int:
    """Return when a process began, in the kernel's ticks; 0 when that is not known."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, IndexError):
        return 0


def _spawn_on_pipes(
    plan: Plan, program: bytes, environment: Mapping[bytes, bytes], directory: Directory, umask: int
) -> Spawned:
    with ExitStack() as failed, ExitStack() as done:
        its_stdin, stdin = subprocess.DEVNULL, -1
        if plan.open_input or plan.input:
            its_stdin, stdin = os.pipe()
            done.callback(os.close, its_stdin)
            failed.callback(os.close, stdin)
        stdout, its_stdout = _pipe(failed, done)
        stderr, its_stderr = _pipe(failed, done)
        with CHILDREN.starting() as add:
            popen = subprocess.Popen(
                list(plan.argv),
                executable=program,
                stdin=its_stdin,
                stdout=its_stdout,
                stderr=its_stderr,
                cwd=f"/proc/self/fd/{directory.fd}".encode(),
                env=environment,
                close_fds=True,
                start_new_session=True,
                umask=umask,
            )
            add(popen.pid)
        popen.returncode = 0  # taken elsewhere; this object would have it taken as soon as it is gone
        failed.pop_all()
    for fd in (stdin, stdout, stderr):
        if fd >= 0:
            os.set_blocking(fd, False)
    return Spawned(popen.pid, start_ticks_of(popen.pid), stdin, stdout, stderr)


def _pipe(failed: ExitStack, done: ExitStack) -> tuple[int, int]:
    """Return our end and the process's end of a new pipe that it writes to."""
    ours, its = os.pipe()
    failed.callback(os.close, ours)
    done.callback(os.close, its)
    return ours, its


def _spawn_on_terminal(
    plan: Plan, program: bytes, environment: Mapping[bytes, bytes], directory: Directory, umask: int
) -> Spawned:
    with ExitStack() as failed, ExitStack() as done:
        ours, theirs = os.openpty()
        failed.callback(os.close, ours)
        done.callback(os.close, theirs)
        typed = os.dup(ours)
        failed.callback(os.close, typed)
        assert plan.terminal is not None  # noqa: S101 -- for mypy: the caller looked
        set_size(ours, plan.terminal)
        name = os.ttyname(theirs)
        with CHILDREN.starting() as add:
            # A session leader without a terminal that opens one has it for its own.
            actions = [(os.POSIX_SPAWN_OPEN, 0, name, os.O_RDWR, 0)]
            duplicates = [(os.POSIX_SPAWN_DUP2, 0, number) for number in (1, 2)]
            closed = [(os.POSIX_SPAWN_CLOSE, fd) for fd in _inheritable()]
            done.callback(os.umask, os.umask(umask))
            here = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            done.callback(os.close, here)
            os.fchdir(directory.fd)
            done.callback(os.fchdir, here)
            pid = os.posix_spawn(
                program,
                list(plan.argv),
                environment,
                file_actions=[*actions, *duplicates, *closed],
                setsid=True,
                setsigmask=(),
                setsigdef=_IGNORED_BY_PYTHON,
            )
            add(pid)
        os.set_blocking(ours, False)
        failed.pop_all()
    return Spawned(pid, start_ticks_of(pid), typed, ours, -1, is_terminal=True)


def _inheritable() -> list[int]:
    """Return descriptors that a process would get beside the first three; all that Python makes are not among them."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if int(name) > 2 and os.get_inheritable(int(name)):  # noqa: PLR2004  standard error
                found.append(int(name))
    return found


def _failure(error: OSError, program: bytes) -> OutpostError:
    if error.errno in _LIMITS:
        failure = from_os(error)
        return failure if failure.reason == "descriptors" else LimitError("descriptors", "no terminal is left")
    if error.errno in _NO_PROGRAM:
        return not_executable(program)
    facts = {"errno": errno.errorcode.get(error.errno or 0, str(error.errno)), "path": printable(program)}
    hint = "arguments and variables are too long together" if error.errno == errno.E2BIG else ""
    return ProcessError("start_failed", f"'{printable(program)}' could not be started", hint=hint, facts=facts)
