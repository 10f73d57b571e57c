"""The format of a session directory as its author writes it: patterns, paths and functions.

A profile that exists is a profile that works: everything is checked while it is made, hooks included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from host_client.stores.hook import hook_source
from sandbox_api.profile import Profile, check_pattern, refuse

if TYPE_CHECKING:
    import re

Hook = str | Callable[..., object]
"""A lambda, a plain function, or the source text of one; see `host_client.stores.hook`."""


@dataclass(frozen=True)
class BundleRoot:
    """Where the CLI keeps its state.

    Attributes:
        directory: Relative to the agent home, for example `.mycli`.
        variable: Environment variable that moves it, for example `MYCLI_HOME`; None when there is none.
    """

    directory: str
    variable: str | None = None


@dataclass(frozen=True, kw_only=True)
class SessionBundleProfile:
    r"""What a CLI's session directory is, for `SessionBundleConversations`.

    Attributes:
        format: Name of the format; it names records, archive keys and host directories, so it must never change.
        root: Where the CLI keeps its state.
        sessions: Folder of the sessions below that.
        buckets: Whether sessions lie one level deeper, in a folder that `bucket` derives from the workspace.
        include: Searched in the session-relative path of every file and directory; what belongs to a session.
        exclude: What does not belong; wins over `include`.
        required: Paths without which there is no session; at least one.
        relocated: Paths that `relocate` rewrites; `*` matches within one segment, as in `agents/*/wire.jsonl`.
        validate: `(files, id)` returns what is wrong with the session, or None. `files.text(path)` is the UTF-8 text or
            None, `files.bytes(path)` the content or None, `files.paths()` all paths.
        bucket: `(cwd, helpers)` returns the name of the workspace's folder.
        relocate: `(path, text, context)` returns the new text; `context` has `id`, `cwd`, `target`, `helpers` and
            `files`: the session as it came, to look up in one file what another one needs. Bytes that are not UTF-8
            reach it as lone surrogates and come out as they were.
        lock: Pattern of the lock files of a running CLI, with a group `pid`, such as `^inuse\.(?P<pid>\d+)\.lock$`.
        logs: Searched in the session-relative path: files that the CLI only adds to, such as `^events\.jsonl$`. They
            alone tell whether a session went on here or there; None: all files must agree.

    `helpers` has `join(*parts)`, which puts a path together and normalizes it, and `sha256(text)`, in hex.

    Raises:
        ConfigurationError: `invalid_profile` or `invalid_hook`; says what to write instead.
    """

    format: str
    root: BundleRoot
    sessions: str
    buckets: bool = False
    include: re.Pattern[str]
    exclude: re.Pattern[str] | None = None
    required: Sequence[str]
    relocated: Sequence[str] = ()
    validate: Hook | None = None
    bucket: Hook | None = None
    relocate: Hook | None = None
    lock: re.Pattern[str] | None = None
    logs: re.Pattern[str] | None = None
    _compiled: Profile = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._check_types()
        sources = {
            name: "" if hook is None else hook_source(hook, name)
            for name, hook in (("validate", self.validate), ("bucket", self.bucket), ("relocate", self.relocate))
        }
        compiled = Profile(
            format=self.format,
            root_variable=self.root.variable or "",
            root_directory=self.root.directory,
            sessions=self.sessions,
            buckets=self.buckets,
            include=self.include,
            exclude=self.exclude,
            required=tuple(self.required),
            relocated=tuple(self.relocated),
            lock=self.lock,
            **sources,
        )
        object.__setattr__(self, "_compiled", compiled.check())
        if self.logs is not None:
            check_pattern("logs", self.logs)

    def compile(self) -> Profile:
        """Return the profile as plain data, its hooks as source text, ready to be sent."""
        return self._compiled

    def _check_types(self) -> None:
        """Refuse what the annotations forbid: a profile is often written without a type checker."""
        if not isinstance(self.root, BundleRoot):
            raise refuse("root", repr(self.root), "BundleRoot('.mycli', 'MYCLI_HOME')")
        if self.root.variable == "":
            raise refuse("root.variable", "", "None when no variable moves the directory")
        names = {
            "format": self.format,
            "root.directory": self.root.directory,
            "root.variable": self.root.variable or "",
            "sessions": self.sessions,
        }
        for where, name in names.items():
            if not isinstance(name, str):
                raise refuse(where, repr(name), "a text")
        if not isinstance(self.buckets, bool):
            raise refuse("buckets", repr(self.buckets), "True or False")
        for where, paths in (("required", self.required), ("relocated", self.relocated)):
            if isinstance(paths, str) or not all(isinstance(path, str) for path in paths):
                raise refuse(where, repr(paths), "a tuple of texts, such as ('session.json',)")
