"""Run a format's hook as the daemon's child does: from its source text, with a handful of names and no import.

A hook that leans on its module would work here and fail in every sandbox; tests therefore never call it directly.
"""

import builtins
import hashlib
import inspect
import json
import math
import posixpath
import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sandbox_agent.core.hook_child import Helpers
from sandbox_api import hook as hook_contract

MODULES = {"hashlib": hashlib, "json": json, "math": math, "posixpath": posixpath, "re": re}


def from_source(hook: Callable[..., Any]) -> Callable[..., Any]:
    """Make the hook again from its text alone; what it finds in its module is out of reach."""
    source = textwrap.dedent(inspect.getsource(hook))
    assert set(MODULES) == set(hook_contract.MODULES)
    allowed = {name: value for name, value in vars(builtins).items() if name in hook_contract.BUILTINS}
    names: dict[str, Any] = {"__builtins__": allowed, **MODULES}
    exec(source, names)  # noqa: S102 -- our own source, to prove that it stands alone
    made: Callable[..., Any] = names[hook.__name__]
    return made


@dataclass(frozen=True)
class Files:
    """What the contract calls `files`: a session held in memory."""

    held: Mapping[str, bytes]

    def bytes(self, path: str) -> bytes | None:
        """Give a file's bytes, or nothing."""
        return self.held.get(path)

    def text(self, path: str) -> str | None:
        """Give a file's text, or nothing when there is none or it is not UTF-8."""
        try:
            return self.held[path].decode()
        except (KeyError, UnicodeDecodeError):
            return None

    def paths(self) -> list[str]:
        """List the files, sorted."""
        return sorted(self.held)


@dataclass(frozen=True)
class Context:
    """What the contract calls `context`: the new place of a session."""

    id: str
    cwd: str
    target: str
    files: Files
    helpers: Helpers = field(default_factory=Helpers)
