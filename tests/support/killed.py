"""Kill what changes the disk before each of its steps in turn."""

from __future__ import annotations

import gc
import os
import signal
import sys
from typing import TYPE_CHECKING

import pytest

from sandbox_agent.core import syscall

if TYPE_CHECKING:
    from collections.abc import Callable

_STEPS = frozenset(
    {
        "open",
        "mkdir",
        "write",
        "fsync",
        "rename",
        "link",
        "unlink",
        "rmdir",
        "fchmod",
        "ftruncate",
        "close",
        "utime",
        "symlink",
    }
)


def killed_at(step: int, act: Callable[[], object], detour: Callable[[pytest.MonkeyPatch], None]) -> bool:
    """Act in a child that kills itself before the given step; return whether there was such a step.

    Args:
        step: Counted from 0, from the moment at which the act begins.
        act: What is done.
        detour: Makes the file system lack something.
    """
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] == signal.SIGKILL
    # Threads of other tests' gRPC objects are not here: to collect one of these would wait for them for ever.
    gc.disable()
    steps = [0]

    def count() -> None:
        if steps[0] == step:
            os.kill(os.getpid(), signal.SIGKILL)
        steps[0] += 1

    def watch(_: object, event: str, function: object) -> None:
        if event == "c_call" and getattr(function, "__module__", "") == "posix":
            name = getattr(function, "__name__", "")
            if name in _STEPS:
                count()

    patch = pytest.MonkeyPatch()
    detour(patch)
    for name in ("renameat2", "syncfs"):
        real = getattr(syscall, name)
        patch.setattr(syscall, name, lambda *arguments, real=real: (count(), real(*arguments)))
    sys.setprofile(watch)
    try:
        act()
    finally:
        sys.setprofile(None)
        # A failure is seen by what it leaves.
        os._exit(0)
