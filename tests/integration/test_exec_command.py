"""`outpost exec`: input, output, signals, terminal and exit status, as if the command ran here."""

from __future__ import annotations

import fcntl
import os
import pty
import random
import shlex
import signal
import struct
import subprocess
import sys
import termios
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from support.daemon import running_daemon
from support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.daemon import RunningDaemon

BYTES = random.Random(5).randbytes(3 << 20)  # noqa: S311 - any bytes
END_SECONDS = 60


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """A daemon for this module."""
    with running_daemon(tmp_path_factory.mktemp("daemon")) as running:
        yield running


def words(daemon: RunningDaemon, *command: str, options: tuple[str, ...] = ()) -> list[str]:
    """Return the command line that runs a command."""
    return [sys.executable, "-m", "host_client.cli", "exec", daemon.target, *options, "--", *command]


def execute(
    daemon: RunningDaemon, *command: str, options: tuple[str, ...] = (), content: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    """Run a command with this input."""
    return subprocess.run(
        words(daemon, *command, options=options), input=content, capture_output=True, timeout=END_SECONDS, check=False
    )


@contextmanager
def executing(
    daemon: RunningDaemon, *command: str, options: tuple[str, ...] = (), stdin: int = subprocess.PIPE
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command and leave it running; it has ended by itself at the end of the block."""
    with subprocess.Popen(
        words(daemon, *command, options=options), stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            yield process
            process.wait(END_SECONDS)
        finally:
            process.kill()


def line(process: subprocess.Popen[bytes]) -> bytes:
    """Return the next line it prints."""
    assert process.stdout is not None
    return process.stdout.readline()


def test_input_and_output_are_carried_byte_for_byte(daemon: RunningDaemon) -> None:
    """From a pipe, both outputs apart, with the exit status of the command."""
    ended = execute(daemon, "sh", "-c", "cat; printf 'a\\377b' >&2; exit 7", content=BYTES)
    assert (ended.stdout == BYTES, ended.stderr, ended.returncode) == (True, b"a\xffb", 7)


def test_a_file_is_read_to_its_end(daemon: RunningDaemon, tmp_path: Path) -> None:
    """Standard input may be a file, or nothing at all."""
    (tmp_path / "file").write_bytes(BYTES)
    with (tmp_path / "file").open("rb") as file, executing(daemon, "wc", "-c", stdin=file.fileno()) as process:
        assert int(line(process)) == len(BYTES)
    with executing(daemon, "cat", stdin=subprocess.DEVNULL) as process:
        assert line(process) == b""
    assert process.returncode == 0


def test_the_end_does_not_wait_for_input(daemon: RunningDaemon) -> None:
    """A command that ends is over, though nobody closes what we might still read."""
    with executing(daemon, "true") as process:
        assert process.wait(END_SECONDS) == 0
    with executing(daemon, "cat", options=("--no-input",)) as process:
        assert process.wait(END_SECONDS) == 0


def test_closed_streams_are_nobody_elses() -> None:
    """The number of a standard stream that is closed is not given to what is opened next, which might be a socket."""
    code = "import os; from host_client.cli.host_stream import reserve_streams as reserve; reserve(); "
    code += "os.write(2, ' '.join(os.readlink(f'/proc/self/fd/{number}') for number in range(2)).encode())"
    command = shlex.join([sys.executable, "-c", code])
    ended = subprocess.run(["sh", "-c", f"{command} <&- >&-"], stderr=subprocess.PIPE, timeout=END_SECONDS, check=True)
    assert ended.stderr == b"/dev/null /dev/null"


def test_output_that_others_made_non_blocking_is_waited_for(daemon: RunningDaemon) -> None:
    """A pipe that is full takes more later."""
    reader, writer = os.pipe()
    try:
        os.set_blocking(writer, False)
        with subprocess.Popen(words(daemon, "head", "-c", "300000", "/dev/zero"), stdout=writer) as process:
            os.close(writer)
            with open(reader, "rb", closefd=False) as output:
                assert output.read() == bytes(300_000)
        assert process.returncode == 0
    finally:
        os.close(reader)


def test_output_comes_as_it_is_printed(daemon: RunningDaemon) -> None:
    """Each line before the next is asked for."""
    with executing(daemon, "sh", "-c", "while read word; do echo got $word; done") as process:
        assert process.stdin is not None
        for word in (b"one", b"two"):
            process.stdin.write(word + b"\n")
            process.stdin.flush()
            assert line(process) == b"got " + word + b"\n"
        process.stdin.close()
    assert process.returncode == 0


def test_directory_and_variables_are_the_commands(daemon: RunningDaemon) -> None:
    """The workspace unless another is named; words behind "--" are never ours."""
    (daemon.workspace / "below").mkdir()
    ended = execute(daemon, "sh", "-c", "pwd; echo $A $0 $1", "--json", "--cwd", options=("--variable", "A=1"))
    assert ended.stdout.decode().split("\n") == [str(daemon.workspace), "1 --json --cwd", ""]
    options = ("--cwd", str(daemon.workspace / "below"))
    assert execute(daemon, "pwd", options=options).stdout.decode() == f"{daemon.workspace}/below\n"


@pytest.mark.parametrize(
    ("command", "options", "status", "told"),
    [
        (["sh", "-c", "kill -9 $$"], (), 137, ""),
        (["no-such-program", "--json"], (), 11, "outpost: process/no_such_program: "),
        (["true"], ("--cwd", "relative"), 14, "outpost: workspace/"),
        (["sleep", "100"], ("--deadline-seconds", "0.2"), 16, "outpost: timeout/deadline: sleep "),
        (["sleep", "100"], ("--idle-seconds", "0.2"), 16, "outpost: timeout/idle: sleep "),
        ([], (), 2, "Missing argument"),
        (["true"], ("--variable", "novalue"), 2, "NAME=VALUE"),
    ],
    ids=["signal", "no program", "no directory", "deadline", "idle", "no command", "no variable"],
)
def test_failures_have_their_status(
    daemon: RunningDaemon, command: list[str], options: tuple[str, ...], status: int, told: str
) -> None:
    """A shell's for a signal, the family's for our own, with a message for people."""
    ended = execute(daemon, *command, options=options)
    assert ended.returncode == status
    assert told in ended.stderr.decode()
    assert b"Traceback" not in ended.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_passed_on(daemon: RunningDaemon, number: signal.Signals) -> None:
    """The command gets the very one, and may do with it what it likes."""
    script = f"trap 'echo caught; exit 5' {number.value}; echo ready; while :; do sleep 0.01; done"
    with executing(daemon, "sh", "-c", script) as process:
        assert line(process) == b"ready\n"
        process.send_signal(number)
        assert line(process) == b"caught\n"
    assert process.returncode == 5


def test_a_signal_that_we_are_to_ignore_is_not_passed_on(daemon: RunningDaemon) -> None:
    """Under `nohup` the command goes on, too."""
    ours = shlex.join(words(daemon, "sh", "-c", "echo ready; read word; echo $word"))
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(["sh", "-c", f"trap '' HUP; exec {ours}"], **pipes) as process:
        assert line(process) == b"ready\n"
        process.send_signal(signal.SIGHUP)
        assert process.communicate(b"on\n", END_SECONDS)[0] == b"on\n"
    assert process.returncode == 0


def test_an_interrupt_ends_as_in_a_shell(daemon: RunningDaemon) -> None:
    """A command that takes no care of it ends by it: 130."""
    with executing(daemon, "sh", "-c", "echo ready; exec sleep 1000") as process:
        assert line(process) == b"ready\n"
        process.send_signal(signal.SIGINT)
    assert process.returncode == 130
    assert process.stderr is not None


def test_a_second_signal_kills(daemon: RunningDaemon) -> None:
    """For a command that takes no notice of the first."""
    script = "trap 'echo no' INT; echo ready; while :; do sleep 0.01; done"
    with executing(daemon, "sh", "-c", script) as process:
        assert line(process) == b"ready\n"
        process.send_signal(signal.SIGINT)
        assert line(process) == b"no\n"
        process.send_signal(signal.SIGINT)
    assert process.returncode == 137


def test_a_reader_that_goes_away_ends_the_command(daemon: RunningDaemon) -> None:
    """As `| head` does: quietly, and the process is ended."""
    with executing(daemon, "sh", "-c", "echo $$; exec yes") as process:
        pid = int(line(process))
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(END_SECONDS) == 1
        assert process.stderr is not None
        assert process.stderr.read() == b""
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@contextmanager
def on_terminal(daemon: RunningDaemon, *command: str) -> Iterator[tuple[subprocess.Popen[bytes], int, int]]:
    """Run a command on a terminal of ours of 30 rows; yield its process, and both ends of the terminal."""
    ours, theirs = pty.openpty()
    try:
        _resize(theirs, 30, 90)
        with subprocess.Popen(
            words(daemon, *command, options=("-t",)),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            env={**os.environ, "TERM": "vt100"},
        ) as process:
            try:
                yield process, ours, theirs
            finally:
                process.kill()
    finally:
        os.close(ours)
        os.close(theirs)


def _resize(fd: int, rows: int, columns: int) -> None:
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def _read_until(fd: int, wanted: bytes) -> bytes:
    seen = b""
    while wanted not in seen:
        seen += os.read(fd, 4096)
    return seen


def test_a_terminal_is_the_commands(daemon: RunningDaemon) -> None:
    """It has our size and kind, gets keys as they are typed, and ours is afterwards what it was before."""
    script = "stty size; echo $TERM; test -t 0 && test -t 1 && test -t 2 && read word && echo got $word; sleep 1000"
    with on_terminal(daemon, "sh", "-c", script) as (process, ours, theirs):
        before = termios.tcgetattr(theirs)
        assert b"30 90\r\nvt100\r\n" in _read_until(ours, b"vt100\r\n")
        assert termios.tcgetattr(theirs) != before
        os.write(ours, b"word\r")
        _read_until(ours, b"got word\r\n")
        os.write(ours, b"\x03")  # the command's terminal makes an interrupt of it
        assert process.wait(END_SECONDS) == 130
        assert termios.tcgetattr(theirs) == before


def test_a_new_size_reaches_the_command(daemon: RunningDaemon) -> None:
    """While it runs."""
    script = "trap 'stty size; exit' WINCH; echo ready; while :; do sleep 0.01; done"
    with on_terminal(daemon, "sh", "-c", script) as (process, ours, theirs):
        _read_until(ours, b"ready")
        _resize(theirs, 40, 100)
        process.send_signal(signal.SIGWINCH)  # which the kernel sends to a terminal's foreground group
        _read_until(ours, b"40 100\r\n")
        assert process.wait(END_SECONDS) == 0


def test_a_third_signal_ends_us_alone(tmp_path: Path) -> None:
    """Whatever holds the command up, such as a daemon that stands still; the terminal is as it was."""
    with running_daemon(tmp_path) as daemon, on_terminal(daemon, "sh", "-c", "echo ready; sleep 1000") as shown:
        process, ours, theirs = shown
        before = termios.tcgetattr(theirs)
        _read_until(ours, b"ready")
        daemon.process.send_signal(signal.SIGSTOP)
        try:
            # One that comes before the last was taken is the same to the kernel.
            wait_until(lambda: process.send_signal(signal.SIGTERM) or process.poll() is not None, "our end")
        finally:
            daemon.process.send_signal(signal.SIGCONT)
        assert process.returncode == -signal.SIGTERM
        assert termios.tcgetattr(theirs) == before
