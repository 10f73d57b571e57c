"""ProcessService: what processes read, from streams and terminals."""

from __future__ import annotations

import hashlib
import signal
import sys

import pytest

from sandbox_api.v1 import process_pb2 as pb
from support.process_scene import SECONDS, Scene
from support.status import fails


def test_input_of_the_start(scene: Scene) -> None:
    """A process reads what its start brings and then the end; without any it reads nothing."""
    assert bytes(scene.read(scene.start("cat", input=b"x" * (1 << 20))).stdout) == b"x" * (1 << 20)
    assert bytes(scene.read(scene.start("readlink", "/proc/self/fd/0")).stdout) == b"/dev/null\n"


def test_input_by_a_stream(scene: Scene) -> None:
    """Input comes after that of the start; what is sent again is passed over, and the end ends it."""
    with scene.attached(scene.start("cat", open_input=True, input=b"first ")) as attached:
        attached.write(0, b"second ")
        attached.until_taken(7)
        attached.write(3, b"ond third")
        attached.write(12, b"", end=True)
        attached.write(12, b"", end=True)
        read = attached.rest()
    assert bytes(read.stdout) == b"first second third"
    assert read.taken[0] == (0, False)
    assert read.taken[-1] == (12, True)
    assert read.exit.status == 0


def test_input_goes_on_in_another_call(scene: Scene) -> None:
    """A new call says how much was taken, and writing goes on from there, or from before."""
    process_id = scene.start("cat", open_input=True)
    with scene.attached(process_id) as attached:
        attached.write(0, b"one")
        attached.until(b"one")
    with scene.attached(process_id, stdout=3) as attached:
        assert attached.next() == "input_taken"
        assert attached.read.taken == [(3, False)]
        attached.write(0, b"one two", end=True)
        assert bytes(attached.rest().stdout) == b" two"


@pytest.mark.parametrize(("is_open", "offset", "end_first"), [(True, 5, False), (False, 0, False), (True, 0, True)])
def test_input_that_does_not_fit(scene: Scene, offset: int, *, is_open: bool, end_first: bool) -> None:
    """A gap, input to a process that takes none, and input after the end break the rules; the process goes on."""
    process_id = scene.start("sleep", "1000", open_input=is_open)
    with scene.attached(process_id) as attached, fails("session", "protocol"):
        if end_first:
            attached.write(0, b"", end=True)
        attached.write(offset, b"x")
        attached.rest()
    assert not scene.state(process_id).HasField("exit")
    scene.release(process_id)


def test_last_to_begin_writing_writes(scene: Scene) -> None:
    """Input of a call is refused once another has begun to write, not while another only reads."""
    process_id = scene.start("cat", open_input=True)
    with scene.attached(process_id) as old:
        assert old.next() == "input_taken"
        with scene.attached(process_id) as new:
            assert new.next() == "input_taken"
            old.write(0, b"old")
            old.until(b"old")
            new.write(3, b"new", end=True)
            new.until(b"new")
            with fails("session", "protocol"):
                old.write(6, b"old")
                while old.next():
                    if old.read.exit is not None:
                        break
                pytest.fail("the old client ended before it was refused")
            assert bytes(new.rest().stdout) == b"oldnew"


def test_input_is_not_read_any_more(scene: Scene) -> None:
    """That a process has closed its input is told, also when nobody writes; what is written then goes nowhere."""
    process_id = scene.shell("trap 'exit 4' TERM; exec <&-; while :; do sleep 0.01; done", open_input=True)
    with scene.attached(process_id) as attached:
        while not attached.read.taken or not attached.read.taken[-1][1]:
            assert attached.next() == "input_taken"
        for offset in range(4):
            attached.write(offset << 20, b"x" * (1 << 20))
        scene.signal(process_id, signal.SIGTERM)
        assert attached.rest().exit.status == 4


def test_slow_reader_of_input(scene: Scene) -> None:
    """Much more input than a pipe or the daemon holds arrives whole, at the process's pace."""
    size = 8 << 20
    script = "import sys, hashlib; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())"
    with scene.attached(scene.start(sys.executable, "-c", script, open_input=True)) as attached:
        for offset in range(0, size, 1 << 20):
            attached.write(offset, bytes([offset >> 20]) * (1 << 20), end=offset + (1 << 20) == size)
        read = attached.rest()
    expected = hashlib.sha256(b"".join(bytes([index]) * (1 << 20) for index in range(8))).hexdigest()
    assert read.stdout.decode().strip() == expected


def test_malformed_attach(scene: Scene) -> None:
    """A stream that does not begin as it must, or goes on as it must not, is refused."""
    with fails("session", "protocol"):
        list(scene.stub.Attach(iter([pb.AttachRequest(input=pb.ProcessInput())]), timeout=SECONDS))
    with fails("session", "protocol"):
        list(scene.stub.Attach(iter([]), timeout=SECONDS))
    process_id = scene.start("sleep", "1000")
    begin = pb.AttachRequest(begin=pb.AttachBegin(id=process_id))
    for second in (begin, pb.AttachRequest()):
        with fails("session", "protocol"):
            list(scene.stub.Attach(iter([begin, second]), timeout=SECONDS))
    with fails("configuration", "invalid_argument"):
        list(scene.stub.Attach(iter([begin, pb.AttachRequest(resize=pb.Terminal())]), timeout=SECONDS))
    scene.release(process_id)


# Terminals


def test_terminal(scene: Scene) -> None:
    """It is the controlling terminal of the process, of the size that was asked for; both streams are one."""
    terminal = pb.Terminal(rows=10, columns=20)
    script = "tty; ps -o tty= -p $$; stty size; echo error >&2; echo x > /dev/tty"
    read = scene.read(scene.shell(script, terminal=terminal))
    name, seen, *rest = read.stdout.decode().split()
    assert name == f"/dev/{seen}"
    assert rest == ["10", "20", "error", "x"]
    assert (read.exit.stderr_bytes, read.stderr) == (0, b"")


def test_terminal_is_resized(scene: Scene) -> None:
    """A process is told of the new size."""
    script = "trap 'stty size; exit' WINCH; echo up; while :; do sleep 0.01; done"
    terminal = pb.Terminal(rows=10, columns=20)
    with scene.attached(scene.shell(script, terminal=terminal, open_input=True)) as attached:
        attached.until(b"up\r\n")
        attached.requests.send(pb.AttachRequest(resize=pb.Terminal(rows=33, columns=44)))
        assert attached.rest().stdout.endswith(b"33 44\r\n")


def test_terminal_takes_typing(scene: Scene) -> None:
    """Control-C is a signal and the end of input an end of file, also within a line."""
    terminal = pb.Terminal(rows=10, columns=80)
    with scene.attached(scene.start("cat", terminal=terminal, open_input=True)) as attached:
        attached.write(0, b"a line\n")
        attached.until(b"a line\r\na line\r\n")
        attached.write(7, b"no end", end=True)
        assert attached.rest().exit.status == 0
        assert attached.read.stdout.count(b"no end") == 2  # echoed and printed
    with scene.attached(scene.start("cat", terminal=terminal, open_input=True)) as attached:
        attached.write(0, b"x\n")
        attached.until(b"x\r\nx\r\n")
        attached.write(2, b"\x03")
        assert attached.rest().exit.signal == signal.SIGINT


def test_terminal_without_input(scene: Scene) -> None:
    """Without open input, what comes first is followed by an end of file."""
    terminal = pb.Terminal(rows=10, columns=80)
    assert scene.read(scene.start("cat", terminal=terminal)).exit.status == 0
    assert b"typed\r\ntyped\r\n" in scene.read(scene.start("cat", terminal=terminal, input=b"typed\n")).stdout
