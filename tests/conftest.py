"""Guards on every test: clean environment, no descriptors or processes left, no blocking call in an event loop."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

import host_client
import sandbox_agent
from support.object_store import s3_process, s3_server

__all__ = ["s3_process", "s3_server"]

if TYPE_CHECKING:
    from collections.abc import Iterator

# Machines are shared and noisy: examples are bounded in number, not in time.
settings.register_profile("noisy", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("noisy")

# Where tests run in the background or under `nohup` these are ignored, and would be in all that a test starts.
for _number, _default in (
    (signal.SIGHUP, signal.SIG_DFL),
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGQUIT, signal.SIG_DFL),
):
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, _default)

_OURS = tuple(str(Path(package.__file__ or "").parent) + os.sep for package in (host_client, sandbox_agent))
_BLOCKING = frozenset({"open", "os.listdir", "os.scandir", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link"})
_blocked: list[str] = []


def _watch(event: str, arguments: tuple[object, ...]) -> None:
    """Record file-system calls that our own code makes in a thread with a running event loop."""
    if event not in _BLOCKING or asyncio._get_running_loop() is None:
        return
    frame = sys._getframe(1)
    caller = frame.f_code.co_filename
    # An import in our code opens files through importlib: not a call of ours.
    if caller.startswith(_OURS):
        _blocked.append(f"{event}{arguments!r} at {caller}:{frame.f_lineno}")


sys.addaudithook(_watch)


@pytest.fixture
def anyio_backend() -> str:
    """Run async tests on asyncio, the only loop that grpc.aio knows."""
    return "asyncio"


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide what a developer's machine sets for the CLIs and for us."""
    for name in list(os.environ):
        if name.startswith(("OUTPOST_", "COPILOT_", "KIMI_", "CLAUDE_", "CODEX_")):
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    """Fail a test that leaves files, directories or pipes open, or child processes, or that blocked an event loop."""
    files, children = _open_files(), _children()
    _blocked.clear()
    yield
    left = _open_files() - files
    assert not left, f"descriptors left open: {sorted(left)}"
    alive = _children() - children
    assert not alive, f"processes left: {sorted(alive)}"
    assert not _blocked, f"blocking calls in an event loop: {_blocked}"


def _open_files() -> set[tuple[str, str]]:
    """Return descriptors of files, directories and pipes; gRPC keeps sockets and event descriptors of its own."""
    found = set()
    for link in Path("/proc/self/fd").iterdir():
        try:
            target = str(link.readlink())
        except OSError:
            continue  # the descriptor of the listing itself
        if target.startswith(("/", "pipe:")) and not target.startswith(("/dev/", "/proc/")):
            found.add((link.name, target))
    return found


def _children() -> set[int]:
    found = set()
    for task in Path("/proc/self/task").iterdir():
        try:
            found |= {int(child) for child in (task / "children").read_text().split()}
        except (FileNotFoundError, ProcessLookupError):
            continue  # a thread, of gRPC for example, that ended meanwhile
    return found
