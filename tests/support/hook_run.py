"""Run a hook in its child interpreter, from its source text, on files in memory."""

from __future__ import annotations

import dataclasses
import os
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from host_client.stores.hook import hook_source
from sandbox_agent.core.hooks import HookRunner
from sandbox_api.errors import ConfigurationError, OutpostError
from sandbox_api.limits import MIB
from sandbox_api.profile import Profile

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS = 20.0  # where nothing is to time out: the machine may be slow
MEMORY_BYTES = 128 * MIB

PROFILE = Profile(
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
        return memory_file(self.contents[path])


def memory_file(content: bytes = b"") -> int:
    """Return the descriptor of a file that is in no directory."""
    descriptor = os.memfd_create("hook-test")
    with os.fdopen(os.dup(descriptor), "wb") as writer:
        writer.write(content)
    return descriptor


@contextmanager
def hook_runner(*, seconds: float = SECONDS, memory_bytes: int = MEMORY_BYTES, **hooks: str) -> Iterator[HookRunner]:
    """Give a runner of hooks of these sources."""
    profile = dataclasses.replace(PROFILE, **hooks)
    with HookRunner(profile, seconds=seconds, memory_bytes=memory_bytes) as runner:
        yield runner


def validate(hook: str, files: Held | None = None, **limits: float) -> str | None:
    """Run a validate hook on some files."""
    with hook_runner(validate=hook, **limits) as runner:
        return runner.validate("abc", files or Held(a=b"content"))


def relocate(hook: str, content: bytes, cwd: bytes = b"/new", **limits: float) -> bytes:
    """Run a relocate hook on a content; return the new one."""
    source, target = memory_file(content), memory_file()
    try:
        with hook_runner(relocate=hook, **limits) as runner:
            runner.relocate("session.json", source, target, conversation_id="abc", cwd=cwd, target=b"/new/abc")
        return os.pread(target, os.fstat(target).st_size, 0)
    finally:
        os.close(source)
        os.close(target)


def hook_refusal(hook: str, reason: str, **limits: float) -> OutpostError:
    """Return the refusal that running a validate hook ends in, of that reason."""
    with pytest.raises(OutpostError) as caught:
        validate(hook, **limits)
    assert caught.value.reason == reason
    assert "validate hook" in caught.value.message
    assert caught.value.facts["hook"] == "validate"
    return caught.value


def source_refusal(hook: Any, name: str = "validate") -> ConfigurationError:
    """Return the refusal of a hook when its profile is made."""
    with pytest.raises(ConfigurationError) as caught:
        hook_source(hook, name)
    assert caught.value.reason == "invalid_hook"
    assert caught.value.facts["hook"] == name
    return caught.value
