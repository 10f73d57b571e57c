"""Everything a hook may do wrong in its child interpreter: the daemon goes on and tells which hook did it."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from sandbox_agent.core import hook_process
from sandbox_api.errors import LimitError, ProcessError, SessionError
from sandbox_api.limits import MIB
from support.hook_run import SECONDS, Held, hook_refusal, hook_runner, memory_file, relocate, validate


def test_an_exception_is_told_bounded_and_ends_nothing_else() -> None:
    """The next hook of the same call runs."""
    hooks = {"validate": "lambda files, id: 1 // 0", "bucket": "lambda cwd, helpers: 'b'"}
    with hook_runner(**hooks) as runner:
        with pytest.raises(SessionError) as caught:
            runner.validate("abc", Held())
        assert runner.bucket(b"/") == b"b"
    assert caught.value.reason == "hook_failed"
    assert caught.value.facts["error"] == "ZeroDivisionError: integer division or modulo by zero"
    assert "Zero" not in caught.value.message


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("raise ValueError('x' * 100_000 + '\\x1b')", "ValueError: xxx"),
        ("raise type('Odd', (Exception,), {'__str__': lambda self: 1 // 0})()", "Odd"),
        ("raise type('Base', (BaseException,), {})('b')", "Base: b"),
        ("return check(files, id)", "RecursionError"),
        ("return unknown", "NameError"),
        ("return open('/etc/passwd').read()", "NameError"),
    ],
)
def test_whatever_a_hook_raises_is_a_failure(body: str, error: str) -> None:
    """Its text is cut and escaped, an exception that cannot be printed is named."""
    told = hook_refusal(f"def check(files, id):\n    {body}", "hook_failed").facts["error"]
    assert told.startswith(error)
    assert len(told) <= 1000
    assert told.isprintable()


def test_a_hook_that_does_not_end_is_ended() -> None:
    """By the wall clock, whether it computes or waits."""
    error = hook_refusal("def check(files, id):\n    while True: pass", "hook_timeout", seconds=0.5)
    assert "0.5 s" in error.message
    hook_refusal("lambda files, id: re.enum.sys.modules['time'].sleep(600)", "hook_timeout", seconds=0.5)
    hook_refusal("def check(files, id):\n    while True: files.text('a')", "hook_timeout", seconds=0.5)


def test_a_child_that_does_not_read_is_ended() -> None:
    """A text in a full pipe does not hold the daemon up either."""
    stopped = "lambda path, text, context: text"
    source, target = memory_file(b"x" * 8 * MIB), memory_file()
    with hook_runner(relocate=stopped, bucket="lambda cwd, helpers: str(posixpath.os.getpid())", seconds=1) as runner:
        pid = int(runner.bucket(b"/"))
        os.kill(pid, 19)
        with pytest.raises(SessionError) as caught:
            runner.relocate("a", source, target, conversation_id="abc", cwd=b"/", target=b"/t")
    os.close(source)
    os.close(target)
    assert caught.value.reason == "hook_timeout"
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize(
    "body",
    [
        "'x' * (10 << 30)",
        "[bytearray(1 << 20) for _ in range(1 << 20)]",
        "list(range(1 << 40))",
        "files.bytes('a') * 4096",
    ],
)
def test_a_hook_that_needs_too_much_memory_is_told(body: str) -> None:
    """In one piece or bit by bit."""
    with pytest.raises(SessionError) as caught:
        validate(f"lambda files, id: str({body})[:1]", Held(a=b"x" * MIB))
    assert caught.value.reason == "hook_memory"


def test_a_text_larger_than_the_memory_is_told() -> None:
    """Also when the child gives up in the middle of the transfer."""
    with pytest.raises(SessionError) as caught:
        relocate("lambda path, text, context: text", b"x" * 80 * MIB, memory_bytes=48 * MIB)
    assert caught.value.reason == "hook_memory"


@pytest.mark.parametrize(
    ("body", "fact"),
    [
        ("posixpath.os._exit(3)", {"status": "3"}),
        ("posixpath.os._exit(0)", {"status": "0"}),
        ("re.enum.sys.exit('bye')", {"status": "1"}),
        ("posixpath.os.kill(posixpath.os.getpid(), 9)", {"signal": "SIGKILL"}),
        ("posixpath.os.kill(posixpath.os.getpid(), 40)", {"signal": "40"}),
        ("posixpath.os.abort()", {"signal": "SIGABRT"}),
        ("posixpath.os.closerange(0, 16)", {}),
    ],
)
def test_a_hook_that_ends_its_interpreter_is_told(body: str, fact: dict[str, str]) -> None:
    """With the status or signal; the daemon goes on."""
    facts = hook_refusal(f"lambda files, id: {body}", "hook_crashed").facts
    assert facts.items() >= fact.items()


@pytest.mark.parametrize(
    "data",
    [
        "b'garbage' * 100",
        "b'\\xff' * 64",
        "b'\\0\\0\\0\\4' + b'\\0' * 4 + b'null'",
        "b'\\0\\0\\0\\2' + b'\\0' * 4 + b'{}'",
        "b'\\0\\0\\0\\2' + b'\\0' * 4 + b'{]'",
        "b'\\0\\0\\1\\0' + b'\\0' * 4 + b'[' * 256",
        "b'\\0\\0\\0\\x0a' + b'\\0' * 4 + b'{\"done\":7}'",
        "b'\\0\\0\\0\\x0b' + b'\\0' * 4 + b'{\"done\":\"\"}'",
        "b'\\0\\0\\0\\x14' + b'\\0' * 4 + b'{\"ask\":\"f\",\"path\":7}'",
        "b'\\0\\0\\0\\x02\\x7f\\xff\\xff\\xff{}'",
    ],
)
def test_garbage_from_the_child_is_a_crash(data: str) -> None:
    """Wrong lengths, wrong JSON, wrong types: none is taken for a result."""
    hook = f"def check(files, id):\n    posixpath.os.write(4, {data})\n    posixpath.os._exit(0)"
    hook_refusal(hook, "hook_crashed")


def test_endless_text_from_the_child_is_a_crash() -> None:
    """What comes back is bounded by the memory it could have been made in."""
    hook = """
def flood(path, text, context):
    frame = lambda head, size: len(head).to_bytes(4, "big") + size.to_bytes(4, "big") + head + bytes(size)
    posixpath.os.write(4, frame(b'{"done":null}', 0))
    while True:
        data = frame(b'{"piece":true}', 1 << 20)
        while data:
            data = data[posixpath.os.write(4, data):]
"""
    with pytest.raises(SessionError) as caught:
        relocate(hook, b"", memory_bytes=64 * MIB)
    assert caught.value.reason == "hook_crashed"


def test_printing_harms_nothing() -> None:
    """Standard output is not the channel by the time a hook runs."""
    hook = "def check(files, id):\n    re.enum.sys.stdout.write('garbage'); re.enum.sys.stdout.flush()\n    return None"
    assert validate(hook) is None


def test_what_a_hook_starts_ends_with_it() -> None:
    """A limit on processes does not bind root; the group is ended in any case."""
    hook = """
def check(files, id):
    try:
        pid = posixpath.os.fork()
    except OSError:
        return "0"
    while not pid:
        re.enum.sys.modules["time"].sleep(600)
    return str(pid)
"""
    pid = validate(hook)
    assert pid is not None
    if pid != "0":
        with suppress(ProcessLookupError):
            watch = os.pidfd_open(int(pid))
            ended, _, _ = select.select([watch], [], [], SECONDS)
            os.close(watch)
            assert ended


@pytest.mark.parametrize("text", ["lambda files, id:", "1", "a = 1", "import os", "def a(): 0\ndef b(): 0", "x(", "\0"])
def test_a_text_that_is_no_function_here_is_refused(text: str) -> None:
    """The daemon takes profiles from clients it knows nothing of."""
    hook_refusal(text, "invalid_hook")


def test_a_failing_file_is_the_callers_own_error() -> None:
    """It comes out as it was raised, and the process is gone."""

    class Failing(Held):
        def open(self, path: str) -> int | None:
            raise SessionError("changed", f"{path} changed")

    with pytest.raises(SessionError) as caught:
        validate("lambda files, id: files.text('a')", Failing(a=b""))
    assert caught.value.reason == "changed"


def test_a_file_that_vanished_is_not_there() -> None:
    """None from the caller is None for the hook."""

    class Vanished(Held):
        def open(self, path: str) -> int | None:
            self.opened.append(path)
            return None

    assert validate("lambda files, id: str(files.bytes('a'))", Vanished(a=b"")) == "None"


def test_a_full_target_is_the_callers_own_error() -> None:
    """Writing the text fails with the system's error."""
    source, target = memory_file(b"x" * 100), os.open("/dev/full", os.O_WRONLY)
    with hook_runner(relocate="lambda path, text, context: text") as runner, pytest.raises(OSError, match="No space"):
        runner.relocate("a", source, target, conversation_id="abc", cwd=b"/", target=b"/t")
    os.close(source)
    os.close(target)


def test_an_interpreter_that_cannot_be_started_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a process failure, with the system's word for it."""
    monkeypatch.setattr(hook_process, "child_command", lambda _: ["/does/not/exist"])
    with pytest.raises(ProcessError) as caught:
        validate("lambda files, id: None")
    assert (caught.value.reason, caught.value.facts) == ("start_failed", {"errno": "ENOENT"})


def test_a_lack_of_descriptors_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a limit, which may be gone a moment later."""

    def popen(*_: object, **__: object) -> None:
        raise OSError(24, "too many")

    monkeypatch.setattr(hook_process.subprocess, "Popen", popen)
    with pytest.raises(LimitError) as caught:
        validate("lambda files, id: None")
    assert caught.value.reason == "descriptors"


def test_a_child_whose_daemon_was_killed_ends_by_itself() -> None:
    """The kernel counts its processor time; a hook that waits ends when it next turns to the daemon."""
    code = """
import dataclasses, sys
from sandbox_agent.core.hook_process import HookProcess
hook = "lambda cwd, helpers: posixpath.os.write(4, b'x') and [0 for _ in iter(int, 1)]"
process = HookProcess({"bucket": hook}, 1 << 28)
process.begin("bucket", 0.5, {"cwd": "/"})
process._read(1)
print(process._process.pid, flush=True)
sys.stdin.read()
"""
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as daemon:
        assert daemon.stdout is not None
        watch = os.pidfd_open(int(daemon.stdout.readline()))
        daemon.kill()
    ended, _, _ = select.select([watch], [], [], SECONDS)
    os.close(watch)
    assert ended
