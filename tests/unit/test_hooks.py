"""Hooks in their child interpreter: what they get and what they return."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox_agent.core import hook_process
from sandbox_api.errors import ConfigurationError, SessionError
from sandbox_api.limits import HOOK_MEMORY_BYTES, MIB
from support.hook_run import MEMORY_BYTES, Held, hook_refusal, hook_runner, memory_file, relocate, validate


def test_a_profile_without_the_hook_is_valid_and_starts_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing runs for nothing."""
    monkeypatch.setattr(hook_process, "child_command", lambda _: pytest.fail("a process was started"))
    with hook_runner() as runner:
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
    told = validate(hook, files)
    assert told is not None
    assert json.loads(told) == expected
    assert "none" not in files.opened


def test_only_listed_paths_reach_the_file_system() -> None:
    """Whatever name the child asks for; absurd ones and other types as well."""
    files = Held(a=b"")
    hook = "lambda files, id: str([files.text(name) for name in ('../x', '/etc/passwd', '', 'x' * 5000, '\\0')])"
    assert validate(hook, files) == "[None, None, None, None, None]"
    assert files.opened == []
    assert "TypeError" in hook_refusal("lambda files, id: files.text(b'a')", "hook_failed").facts["error"]


def test_a_session_without_files_has_no_paths() -> None:
    """Not one empty path."""
    assert validate("lambda files, id: str(files.paths())", Held()) == "[]"


def test_a_large_file_arrives_whole() -> None:
    """In pieces of 1 MiB on the way, and the daemon's memory has one of them."""
    content = os.urandom(1000) * (5 * MIB // 1000)
    told = validate("lambda files, id: hashlib.sha256(files.bytes('a')).hexdigest()", Held(a=content))
    assert told == hashlib.sha256(content).hexdigest()


def test_all_hooks_of_a_call_share_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is started by the first and ended with the runner."""
    commands = []
    command = hook_process.child_command
    monkeypatch.setattr(hook_process, "child_command", lambda size: commands.append(size) or command(size))
    hooks = {"validate": "lambda files, id: None", "bucket": "lambda cwd, helpers: helpers.sha256(cwd)[:8]"}
    with hook_runner(**hooks) as runner:
        for _ in range(3):
            assert runner.validate("abc", Held()) is None
            assert runner.bucket(b"/w") == hashlib.sha256(b"/w").hexdigest()[:8].encode()
    assert commands == [MEMORY_BYTES]


@pytest.mark.parametrize(
    ("parts", "joined"),
    [("'/a', 'b'", "/a/b"), ("'/a/', '../b', ''", "/b"), ("'a', '/b'", "a/b"), ("'/', '/'", "/"), ("", ".")],
)
def test_join_puts_a_path_together(parts: str, joined: str) -> None:
    """Normalized; a later part does not replace what is before it."""
    assert relocate(f"lambda path, text, context: context.helpers.join({parts})", b"") == joined.encode()


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
    told = validate(hook)
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
    told = validate(hook)
    assert told is not None
    limits, processor, own_session, descriptors_count = json.loads(told)
    assert limits == {
        "AS": [MEMORY_BYTES] * 2, "NOFILE": [16, 16], "FSIZE": [0, 0], "CORE": [0, 0], "NPROC": [0, 0]
    }  # fmt: skip
    assert processor
    assert own_session
    assert descriptors_count <= 7


def test_relocate_rewrites_the_text_with_its_context() -> None:
    """It gets path, text and the new place; its text is written."""
    hook = """
lambda path, text, context: "|".join(
    [path, text, context.id, context.cwd, context.target, context.helpers.sha256("a"), context.helpers.join("a", "b")])
"""
    written = relocate(hook, "tëxt\r\n".encode())
    digest = hashlib.sha256(b"a").hexdigest()
    assert written == f"session.json|tëxt\r\n|abc|/new|/new/abc|{digest}|a/b".encode()


@pytest.mark.parametrize(
    ("held", "seen"), [(True, b"text [['a', 'b'], 'other', None]"), (False, b"text [[], None, None]")]
)
def test_relocate_may_look_at_other_files(*, held: bool, seen: bytes) -> None:
    """What one file needs to know of another; without a session it finds none."""
    hook = "lambda path, text, c: text + str([sorted(c.files.paths()), c.files.text('b'), c.files.bytes('c')])"
    files = Held(a=b"text ", b=b"other") if held else None
    source, target = memory_file(b"text "), memory_file()
    with hook_runner(relocate=hook) as runner:
        runner.relocate("a", source, target, conversation_id="abc", cwd=b"/", target=b"/t", files=files)
    assert os.pread(target, 99, 0) == seen
    os.close(source)
    os.close(target)


def test_relocate_reads_from_the_beginning_and_leaves_the_offset() -> None:
    """Wherever the descriptor stands."""
    source, target = memory_file(b"0123"), memory_file()
    os.lseek(source, 2, os.SEEK_SET)
    with hook_runner(relocate="lambda path, text, context: text") as runner:
        runner.relocate("a", source, target, conversation_id="abc", cwd=b"/", target=b"/t")
    assert (os.pread(target, 9, 0), os.lseek(source, 0, os.SEEK_CUR)) == (b"0123", 2)
    os.close(source)
    os.close(target)


@given(content=st.binary(max_size=200))
@settings(max_examples=30)
def test_bytes_that_are_not_text_come_out_as_they_went_in(content: bytes) -> None:
    """A torn line or a stray byte of a session survives a relocation."""
    assert relocate("lambda path, text, context: text", content) == content


def test_a_text_gets_no_bytes_that_are_not_text() -> None:
    """A lone surrogate, which JSON can spell, would become a stray byte."""
    with pytest.raises(SessionError) as caught:
        relocate("lambda path, text, context: json.loads(text)", b'"\\udc80"')
    assert caught.value.reason == "hook_failed"
    assert "UnicodeEncodeError" in caught.value.facts["error"]


def test_a_large_text_is_relocated_with_flat_memory() -> None:
    """The daemon's resident memory does not grow with the text."""
    content = b'{"cwd": "/old"}\n' * (24 * MIB // 16)
    source, target = memory_file(content), memory_file()
    with hook_runner(relocate="lambda path, text, context: text.replace('/old', context.cwd)", seconds=60) as runner:
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
    told = validate("lambda files, id: 'a\\x1b[0m\\n' + 'b' * 5000")
    assert told is not None
    assert told.startswith("a\\x1b[0m\\nbbb")
    assert len(told) == 1000


@pytest.mark.parametrize("result", ["True", "False", "''", "0", "[]", "b'x'"])
def test_validate_returns_none_or_a_text(result: str) -> None:
    """Neither a truth value, whose sense nobody knows, nor words without words."""
    assert "it returned" in hook_refusal(f"lambda files, id: {result}", "hook_failed").facts["error"]


@pytest.mark.parametrize("result", ["None", "b'x'", "7"])
def test_relocate_and_bucket_return_a_text(result: str) -> None:
    """Anything else is a failure of the hook."""
    with pytest.raises(SessionError, match=r"relocate hook for session\.json") as caught:
        relocate(f"lambda path, text, context: {result}", b"")
    assert "it returned" in caught.value.facts["error"]
    with (
        hook_runner(bucket=f"lambda cwd, helpers: {result}") as runner,
        pytest.raises(SessionError, match="bucket hook"),
    ):
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
    with hook_runner(bucket=f"lambda cwd, helpers: '{name}'") as runner, pytest.raises(ConfigurationError) as caught:
        runner.bucket(b"/w")
    assert caught.value.reason == "invalid_bucket"
    assert len(caught.value.message) < 400


def test_a_workspace_that_is_not_utf_8_reaches_the_hook() -> None:
    """POSIX names need not be; the digest is over the bytes themselves."""
    with hook_runner(bucket="lambda cwd, helpers: helpers.sha256(cwd)[:9] + str(len(cwd))") as runner:
        assert runner.bucket(b"/\xff") == hashlib.sha256(b"/\xff").hexdigest()[:9].encode() + b"2"


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


def test_the_default_memory_is_enough_for_the_largest_text() -> None:
    """64 MiB of text, read and changed."""
    content = "ä".encode() * (32 * MIB)
    written = relocate("lambda p, text, c: text + 'x'", content, memory_bytes=HOOK_MEMORY_BYTES, seconds=60)
    assert written == content + b"x"


def test_hooks_run_in_a_thread_beside_others() -> None:
    """Several at once, each in a process of its own."""
    found: list[str | None] = []
    threads = [
        threading.Thread(target=lambda: found.append(validate("lambda files, id: files.text('a')"))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["content"] * 4
