"""Hooks in their child interpreter: what they get, what they return, and everything they may do wrong."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import select
import shutil
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox_agent.core import hook_process
from sandbox_agent.core.hooks import HookRunner
from sandbox_api.errors import ConfigurationError, LimitError, OutpostError, ProcessError, SessionError
from sandbox_api.limits import HOOK_MEMORY_BYTES, MIB
from sandbox_api.profile import Profile

if TYPE_CHECKING:
    from collections.abc import Iterator

_SECONDS = 20.0  # where nothing is to time out: the machine may be slow
_MEMORY_BYTES = 128 * MIB

_PROFILE = Profile(
    format="mycli",
    root_variable="",
    root_directory=".mycli",
    sessions="sessions",
    buckets=False,
    include=re.compile(""),
    exclude=None,
    required=("session.json",),
    relocated=("session.json",),
    validate="",
    bucket="",
    relocate="",
    lock=None,
)


class Held:
    """A session's files in memory, and what was asked of them."""

    def __init__(self, **contents: bytes) -> None:
        self.contents = contents
        self.opened: list[str] = []

    def paths(self) -> list[str]:
        """List them."""
        return list(self.contents)

    def open(self, path: str) -> int | None:
        """Open one."""
        self.opened.append(path)
        return _file(self.contents[path])


def _file(content: bytes = b"") -> int:
    descriptor = os.memfd_create("hook-test")
    with os.fdopen(os.dup(descriptor), "wb") as writer:
        writer.write(content)
    return descriptor


@contextmanager
def _runner(*, seconds: float = _SECONDS, memory_bytes: int = _MEMORY_BYTES, **hooks: str) -> Iterator[HookRunner]:
    profile = dataclasses.replace(_PROFILE, **hooks)
    with HookRunner(profile, seconds=seconds, memory_bytes=memory_bytes) as runner:
        yield runner


def _validate(hook: str, files: Held | None = None, **limits: float) -> str | None:
    with _runner(validate=hook, **limits) as runner:
        return runner.validate("abc", files or Held(a=b"content"))


def _relocate(hook: str, content: bytes, cwd: bytes = b"/new", **limits: float) -> bytes:
    source, target = _file(content), _file()
    try:
        with _runner(relocate=hook, **limits) as runner:
            runner.relocate("session.json", source, target, conversation_id="abc", cwd=cwd, target=b"/new/abc")
        return os.pread(target, os.fstat(target).st_size, 0)
    finally:
        os.close(source)
        os.close(target)


def _refusal(hook: str, reason: str, **limits: float) -> OutpostError:
    with pytest.raises(OutpostError) as caught:
        _validate(hook, **limits)
    assert caught.value.reason == reason
    assert "validate hook" in caught.value.message
    assert caught.value.facts["hook"] == "validate"
    return caught.value


# What hooks get.


def test_a_profile_without_the_hook_is_valid_and_starts_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing runs for nothing."""
    monkeypatch.setattr(hook_process, "child_command", lambda _: pytest.fail("a process was started"))
    with _runner() as runner:
        assert runner.validate("abc", Held()) is None


def test_validate_sees_the_files_and_the_id() -> None:
    """`text` is strict UTF-8 or None, `bytes` is the content or None, `paths` is all of them."""
    hook = """
def check(files, id):
    return json.dumps([
        sorted(files.paths()), files.text("a"), files.text("b"), files.text("c"), files.text("none"),
        list(files.bytes("b")), files.bytes("none"), files.bytes("c").decode("latin-1"), id,
    ])
"""
    files = Held(a="ä\r\n\ufeff".encode(), b=b"", c=b"\xff")
    expected = [["a", "b", "c"], "ä\r\n\ufeff", "", None, None, [], None, "ÿ", "abc"]
    told = _validate(hook, files)
    assert told is not None
    assert json.loads(told) == expected
    assert "none" not in files.opened


def test_only_listed_paths_reach_the_file_system() -> None:
    """Whatever name the child asks for; absurd ones and other types as well."""
    files = Held(a=b"")
    hook = "lambda files, id: str([files.text(name) for name in ('../x', '/etc/passwd', '', 'x' * 5000, '\\0')])"
    assert _validate(hook, files) == "[None, None, None, None, None]"
    assert files.opened == []
    assert "TypeError" in _refusal("lambda files, id: files.text(b'a')", "hook_failed").facts["error"]


def test_a_session_without_files_has_no_paths() -> None:
    """Not one empty path."""
    assert _validate("lambda files, id: str(files.paths())", Held()) == "[]"


def test_a_large_file_arrives_whole() -> None:
    """In pieces of 1 MiB on the way, and the daemon's memory has one of them."""
    content = os.urandom(1000) * (5 * MIB // 1000)
    told = _validate("lambda files, id: hashlib.sha256(files.bytes('a')).hexdigest()", Held(a=content))
    assert told == hashlib.sha256(content).hexdigest()


def test_all_hooks_of_a_call_share_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is started by the first and ended with the runner."""
    commands = []
    command = hook_process.child_command
    monkeypatch.setattr(hook_process, "child_command", lambda size: commands.append(size) or command(size))
    hooks = {"validate": "lambda files, id: None", "bucket": "lambda cwd, helpers: helpers.sha256(cwd)[:8]"}
    with _runner(**hooks) as runner:
        for _ in range(3):
            assert runner.validate("abc", Held()) is None
            assert runner.bucket(b"/w") == hashlib.sha256(b"/w").hexdigest()[:8].encode()
    assert commands == [_MEMORY_BYTES]


@pytest.mark.parametrize(
    ("parts", "joined"),
    [("'/a', 'b'", "/a/b"), ("'/a/', '../b', ''", "/b"), ("'a', '/b'", "a/b"), ("'/', '/'", "/"), ("", ".")],
)
def test_join_puts_a_path_together(parts: str, joined: str) -> None:
    """Normalized; a later part does not replace what is before it."""
    assert _relocate(f"lambda path, text, context: context.helpers.join({parts})", b"") == joined.encode()


def test_hooks_have_no_environment_no_import_and_no_output() -> None:
    """The environment is empty, the working directory is the root, standard streams are the null device."""
    hook = """
def check(files, id):
    os = posixpath.os
    found = [dict(os.environ), os.getcwd(), [os.readlink(f"/proc/self/fd/{n}") for n in (0, 1, 2)]]
    try:
        import socket
    except Exception as error:
        found.append("no import")
    return json.dumps(found)
"""
    told = _validate(hook)
    assert told is not None
    environment, directory, streams, imported = json.loads(told)
    assert set(environment) <= {"LC_CTYPE"}
    assert (directory, streams, imported) == ("/", ["/dev/null"] * 3, "no import")


def test_the_child_has_limits_and_a_session_of_its_own() -> None:
    """They are in force before a hook is read."""
    hook = """
def check(files, id):
    os, sys = posixpath.os, re.enum.sys
    resource = sys.modules["resource"]
    names = ("AS", "NOFILE", "FSIZE", "CORE", "NPROC")
    limits = {name: resource.getrlimit(getattr(resource, "RLIMIT_" + name)) for name in names}
    processor = resource.getrlimit(resource.RLIMIT_CPU)[0]
    return json.dumps([limits, 0 < processor < 60, os.getsid(0) == os.getpid(), len(os.listdir("/proc/self/fd"))])
"""
    told = _validate(hook)
    assert told is not None
    limits, processor, own_session, descriptors_count = json.loads(told)
    assert limits == {
        "AS": [_MEMORY_BYTES] * 2, "NOFILE": [16, 16], "FSIZE": [0, 0], "CORE": [0, 0], "NPROC": [0, 0]
    }  # fmt: skip
    assert processor
    assert own_session
    assert descriptors_count <= 7


# What hooks return.


def test_relocate_rewrites_the_text_with_its_context() -> None:
    """It gets path, text and the new place; its text is written."""
    hook = """
lambda path, text, context: "|".join(
    [path, text, context.id, context.cwd, context.target, context.helpers.sha256("a"), context.helpers.join("a", "b")])
"""
    written = _relocate(hook, "tëxt\r\n".encode())
    digest = hashlib.sha256(b"a").hexdigest()
    assert written == f"session.json|tëxt\r\n|abc|/new|/new/abc|{digest}|a/b".encode()


def test_relocate_reads_from_the_beginning_and_leaves_the_offset() -> None:
    """Wherever the descriptor stands."""
    source, target = _file(b"0123"), _file()
    os.lseek(source, 2, os.SEEK_SET)
    with _runner(relocate="lambda path, text, context: text") as runner:
        runner.relocate("a", source, target, conversation_id="abc", cwd=b"/", target=b"/t")
    assert (os.pread(target, 9, 0), os.lseek(source, 0, os.SEEK_CUR)) == (b"0123", 2)
    os.close(source)
    os.close(target)


@given(content=st.binary(max_size=200))
@settings(max_examples=30)
def test_bytes_that_are_not_text_come_out_as_they_went_in(content: bytes) -> None:
    """A torn line or a stray byte of a session survives a relocation."""
    assert _relocate("lambda path, text, context: text", content) == content


def test_a_text_gets_no_bytes_that_are_not_text() -> None:
    """A lone surrogate, which JSON can spell, would become a stray byte."""
    with pytest.raises(SessionError) as caught:
        _relocate("lambda path, text, context: json.loads(text)", b'"\\udc80"')
    assert caught.value.reason == "hook_failed"
    assert "UnicodeEncodeError" in caught.value.facts["error"]


def test_a_large_text_is_relocated_with_flat_memory() -> None:
    """The daemon's resident memory does not grow with the text."""
    content = b'{"cwd": "/old"}\n' * (24 * MIB // 16)
    source, target = _file(content), _file()
    with _runner(relocate="lambda path, text, context: text.replace('/old', context.cwd)", seconds=60) as runner:
        before = _anonymous_bytes()
        peak = before

        def watch() -> None:
            nonlocal peak
            while not done.wait(0.005):
                peak = max(peak, _anonymous_bytes())

        done = threading.Event()
        watcher = threading.Thread(target=watch)
        watcher.start()
        runner.relocate("session.json", source, target, conversation_id="abc", cwd=b"/new", target=b"/t")
        done.set()
        watcher.join()
    assert os.pread(target, 2 * len(content), 0) == content.replace(b"/old", b"/new")
    assert peak - before < 8 * MIB
    os.close(source)
    os.close(target)


def _anonymous_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024
    raise AssertionError


def test_what_validate_says_is_bounded_and_printable() -> None:
    """It ends up in a message and in a log."""
    told = _validate("lambda files, id: 'a\\x1b[0m\\n' + 'b' * 5000")
    assert told is not None
    assert told.startswith("a\\x1b[0m\\nbbb")
    assert len(told) == 1000


@pytest.mark.parametrize("result", ["True", "False", "''", "0", "[]", "b'x'"])
def test_validate_returns_none_or_a_text(result: str) -> None:
    """Neither a truth value, whose sense nobody knows, nor words without words."""
    assert "it returned" in _refusal(f"lambda files, id: {result}", "hook_failed").facts["error"]


@pytest.mark.parametrize("result", ["None", "b'x'", "7"])
def test_relocate_and_bucket_return_a_text(result: str) -> None:
    """Anything else is a failure of the hook."""
    with pytest.raises(SessionError, match=r"relocate hook for session\.json") as caught:
        _relocate(f"lambda path, text, context: {result}", b"")
    assert "it returned" in caught.value.facts["error"]
    with _runner(bucket=f"lambda cwd, helpers: {result}") as runner, pytest.raises(SessionError, match="bucket hook"):
        runner.bucket(b"/w")


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "a/b",
        "/a",
        "a\\\\b",
        "a\\0b",
        ".git",
        ".GIT",
        "x" * 256,
        "x" * 100_000,
        "\\ud800",
        "\\udc80",
        ".outpost-x",
    ],
)
def test_a_bucket_is_one_plain_name(name: str) -> None:
    """No path is built from anything else."""
    with _runner(bucket=f"lambda cwd, helpers: '{name}'") as runner, pytest.raises(ConfigurationError) as caught:
        runner.bucket(b"/w")
    assert caught.value.reason == "invalid_bucket"
    assert len(caught.value.message) < 400


def test_a_workspace_that_is_not_utf_8_reaches_the_hook() -> None:
    """POSIX names need not be; the digest is over the bytes themselves."""
    with _runner(bucket="lambda cwd, helpers: helpers.sha256(cwd)[:9] + str(len(cwd))") as runner:
        assert runner.bucket(b"/\xff") == hashlib.sha256(b"/\xff").hexdigest()[:9].encode() + b"2"


# What hooks do wrong.


def test_an_exception_is_told_bounded_and_ends_nothing_else() -> None:
    """The next hook of the same call runs."""
    hooks = {"validate": "lambda files, id: 1 // 0", "bucket": "lambda cwd, helpers: 'b'"}
    with _runner(**hooks) as runner:
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
    told = _refusal(f"def check(files, id):\n    {body}", "hook_failed").facts["error"]
    assert told.startswith(error)
    assert len(told) <= 1000
    assert told.isprintable()


def test_a_hook_that_does_not_end_is_ended() -> None:
    """By the wall clock, whether it computes or waits."""
    error = _refusal("def check(files, id):\n    while True: pass", "hook_timeout", seconds=0.5)
    assert "0.5 s" in error.message
    _refusal("lambda files, id: re.enum.sys.modules['time'].sleep(600)", "hook_timeout", seconds=0.5)
    _refusal("def check(files, id):\n    while True: files.text('a')", "hook_timeout", seconds=0.5)


def test_a_child_that_does_not_read_is_ended() -> None:
    """A text in a full pipe does not hold the daemon up either."""
    stopped = "lambda path, text, context: text"
    source, target = _file(b"x" * 8 * MIB), _file()
    with _runner(relocate=stopped, bucket="lambda cwd, helpers: str(posixpath.os.getpid())", seconds=1) as runner:
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
        _validate(f"lambda files, id: str({body})[:1]", Held(a=b"x" * MIB))
    assert caught.value.reason == "hook_memory"


def test_a_text_larger_than_the_memory_is_told() -> None:
    """Also when the child gives up in the middle of the transfer."""
    with pytest.raises(SessionError) as caught:
        _relocate("lambda path, text, context: text", b"x" * 80 * MIB, memory_bytes=48 * MIB)
    assert caught.value.reason == "hook_memory"


@pytest.mark.parametrize(
    ("body", "fact"),
    [
        ("posixpath.os._exit(3)", {"status": "3"}),
        ("posixpath.os._exit(0)", {"status": "0"}),
        ("re.enum.sys.exit('bye')", {"status": "1"}),
        ("posixpath.os.kill(posixpath.os.getpid(), 9)", {"signal": "SIGKILL"}),
        ("posixpath.os.abort()", {"signal": "SIGABRT"}),
        ("posixpath.os.closerange(0, 16)", {}),
    ],
)
def test_a_hook_that_ends_its_interpreter_is_told(body: str, fact: dict[str, str]) -> None:
    """With the status or signal; the daemon goes on."""
    facts = _refusal(f"lambda files, id: {body}", "hook_crashed").facts
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
    _refusal(hook, "hook_crashed")


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
        _relocate(hook, b"", memory_bytes=64 * MIB)
    assert caught.value.reason == "hook_crashed"


def test_printing_harms_nothing() -> None:
    """Standard output is not the channel by the time a hook runs."""
    hook = "def check(files, id):\n    re.enum.sys.stdout.write('garbage'); re.enum.sys.stdout.flush()\n    return None"
    assert _validate(hook) is None


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
    pid = _validate(hook)
    assert pid is not None
    if pid != "0":
        with suppress(ProcessLookupError):
            watch = os.pidfd_open(int(pid))
            ended, _, _ = select.select([watch], [], [], _SECONDS)
            os.close(watch)
            assert ended


@pytest.mark.parametrize("text", ["lambda files, id:", "1", "a = 1", "import os", "def a(): 0\ndef b(): 0", "x(", "\0"])
def test_a_text_that_is_no_function_here_is_refused(text: str) -> None:
    """The daemon takes profiles from clients it knows nothing of."""
    _refusal(text, "invalid_hook")


def test_a_failing_file_is_the_callers_own_error() -> None:
    """It comes out as it was raised, and the process is gone."""

    class Failing(Held):
        def open(self, path: str) -> int | None:
            raise SessionError("changed", f"{path} changed")

    with pytest.raises(SessionError) as caught:
        _validate("lambda files, id: files.text('a')", Failing(a=b""))
    assert caught.value.reason == "changed"


def test_a_file_that_vanished_is_not_there() -> None:
    """None from the caller is None for the hook."""

    class Vanished(Held):
        def open(self, path: str) -> int | None:
            self.opened.append(path)
            return None

    assert _validate("lambda files, id: str(files.bytes('a'))", Vanished(a=b"")) == "None"


def test_a_full_target_is_the_callers_own_error() -> None:
    """Writing the text fails with the system's error."""
    source, target = _file(b"x" * 100), os.open("/dev/full", os.O_WRONLY)
    with _runner(relocate="lambda path, text, context: text") as runner, pytest.raises(OSError, match="No space"):
        runner.relocate("a", source, target, conversation_id="abc", cwd=b"/", target=b"/t")
    os.close(source)
    os.close(target)


def test_an_interpreter_that_cannot_be_started_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a process failure, with the system's word for it."""
    monkeypatch.setattr(hook_process, "child_command", lambda _: ["/does/not/exist"])
    with pytest.raises(ProcessError) as caught:
        _validate("lambda files, id: None")
    assert (caught.value.reason, caught.value.facts) == ("start_failed", {"errno": "ENOENT"})


def test_a_lack_of_descriptors_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a limit, which may be gone a moment later."""

    def popen(*_: object, **__: object) -> None:
        raise OSError(24, "too many")

    monkeypatch.setattr(hook_process.subprocess, "Popen", popen)
    with pytest.raises(LimitError) as caught:
        _validate("lambda files, id: None")
    assert caught.value.reason == "descriptors"


def test_the_process_is_started_without_a_fork(tmp_path: Path) -> None:
    """A `fork` of a daemon with gRPC's threads may hang; `vfork` and `exec` do not copy it."""
    if not shutil.which("strace"):
        pytest.skip("strace is not installed")
    log = tmp_path / "calls"
    code = "from sandbox_agent.core.hook_process import HookProcess; HookProcess({}, 1 << 28).end()"
    calls = "trace=fork,vfork,clone,clone3"
    command = ["strace", "-f", "-o", str(log), "-e", calls, sys.executable, "-c", code]
    subprocess.run(command, check=True, capture_output=True)
    started = [line.split()[1] for line in log.read_text().splitlines() if re.search(r"\b(v?fork|clone3?)\(", line)]
    assert len(started) == 1
    assert started[0].startswith("vfork(") or "CLONE_VFORK" in log.read_text()


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
    ended, _, _ = select.select([watch], [], [], _SECONDS)
    os.close(watch)
    assert ended


def test_the_default_memory_is_enough_for_the_largest_text() -> None:
    """64 MiB of text, read and changed."""
    content = "ä".encode() * (32 * MIB)
    written = _relocate("lambda p, text, c: text + 'x'", content, memory_bytes=HOOK_MEMORY_BYTES, seconds=60)
    assert written == content + b"x"


def test_hooks_run_in_a_thread_beside_others() -> None:
    """Several at once, each in a process of its own."""
    found: list[str | None] = []
    threads = [
        threading.Thread(target=lambda: found.append(_validate("lambda files, id: files.text('a')"))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["content"] * 4
