"""A session-directory format as both halves see it: plain data, checked by one set of rules."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from sandbox_api.errors import ConfigurationError, printable
from sandbox_api.hook import MAX_HOOK_BYTES
from sandbox_api.names import VARIABLE, check_format, path_problem

_RELATIVE = "a relative path without '..', such as .mycli or data/sessions"


@dataclass(frozen=True, kw_only=True, slots=True)
class Profile:
    """Where a CLI keeps a session directory, what belongs to it and how it is moved.

    Attributes:
        format: Name of the format.
        root_variable: Environment variable that moves the CLI home; empty: none.
        root_directory: CLI home below the agent home when the variable is unset or empty.
        sessions: Folder of the sessions below the CLI home.
        buckets: Whether sessions lie one level deeper, in a bucket derived from the workspace.
        include: Searched in the session-relative path; what belongs to a session.
        exclude: What does not; wins.
        required: Paths without which there is no session.
        relocated: Paths, or globs whose `*` matches within one segment, that the `relocate` hook rewrites.
        validate: Hook source text; empty: none.
        bucket: Hook source text; empty: none.
        relocate: Hook source text; empty: none.
        lock: Lock files of a running CLI, searched in the names of the session directory; group `pid` is the process.
    """

    format: str
    root_variable: str
    root_directory: str
    sessions: str
    buckets: bool
    include: re.Pattern[str]
    exclude: re.Pattern[str] | None
    required: tuple[str, ...]
    relocated: tuple[str, ...]
    validate: str
    bucket: str
    relocate: str
    lock: re.Pattern[str] | None

    def selects(self, path: str) -> bool:
        """Tell whether a session-relative path, of a file or of a directory, belongs to the session."""
        return bool(self.include.search(path)) and not (self.exclude and self.exclude.search(path))

    def selects_file(self, path: str) -> bool:
        """Tell whether a capture would reach and take a file: its directories and itself are selected."""
        segments = path.split("/")
        return all(self.selects("/".join(segments[: count + 1])) for count in range(len(segments)))

    def is_relocated(self, path: str) -> bool:
        """Tell whether the relocate hook rewrites the file at that path."""
        return any(_glob(pattern).fullmatch(path) for pattern in self.relocated)

    def check(self) -> Profile:
        """Return the profile, or refuse it and say what to write instead.

        Raises:
            ConfigurationError: `invalid_profile`.
        """
        self._check_names()
        self._check_patterns()
        self._check_hooks()
        if not self.required:
            raise refuse("required", "()", "at least one path without which there is no session")
        for path in self.required:
            self._check_path("required", path)
            if not self.selects_file(path):
                raise refuse("required", path, "a path that include selects and exclude does not")
        for path in self.relocated:
            self._check_path("relocated", path)
            self._check_relocated(path)
        return self

    def _check_names(self) -> None:
        check_format(self.format)
        if self.root_variable and not VARIABLE.fullmatch(self.root_variable):
            raise refuse("root.variable", self.root_variable, "an environment variable's name, such as MYCLI_HOME")
        for field, path in (("root.directory", self.root_directory), ("sessions", self.sessions)):
            if _problem(path):
                raise refuse(field, path, _RELATIVE)

    def _check_patterns(self) -> None:
        for field, pattern in (("include", self.include), ("exclude", self.exclude), ("lock", self.lock)):
            if pattern is not None or field == "include":
                check_pattern(field, pattern)
        if self.lock is not None and "pid" not in self.lock.groupindex:
            raise refuse("lock", self.lock.pattern, "a pattern with a group named pid, such as ^inuse\\.(?P<pid>\\d+)$")

    def _check_hooks(self) -> None:
        if self.buckets and not self.bucket:
            raise refuse("buckets", "True", "a bucket hook together with buckets, or neither")
        if self.bucket and not self.buckets:
            raise refuse("bucket", "a hook", "buckets=True together with a bucket hook, or neither")
        if self.relocated and not self.relocate:
            raise refuse("relocated", ", ".join(self.relocated), "a relocate hook together with relocated, or neither")
        if self.relocate and not self.relocated:
            raise refuse("relocate", "a hook", "the paths to relocate in relocated, or no hook")
        for field, text in (("validate", self.validate), ("bucket", self.bucket), ("relocate", self.relocate)):
            if len(text.encode("utf-8", "surrogatepass")) > MAX_HOOK_BYTES:
                raise refuse(field, f"{text[:60]}…", f"a hook of at most {MAX_HOOK_BYTES} bytes")

    def _check_path(self, field: str, path: str) -> None:
        if problem := _problem(path):
            raise refuse(field, path, f"a session-relative path (this one {problem})")

    def _check_relocated(self, path: str) -> None:
        if "**" in path:
            raise refuse("relocated", path, "one entry for each depth; '*' matches within one segment")
        if "*" not in path:
            if not self.selects_file(path):
                raise refuse("relocated", path, "a path that include selects and exclude does not")
            return
        fixed = path[: path.index("*")].rpartition("/")[0]
        if fixed and not self.selects_file(fixed):
            raise refuse("relocated", path, f"a path below a directory that is selected; {printable(fixed)} is not")


def refuse(field: str, value: str, instead: str) -> ConfigurationError:
    """Return the refusal of one field of a profile, with what to write instead."""
    return ConfigurationError(
        "invalid_profile",
        f"the profile's {field} cannot be '{printable(value[:200])}'",
        hint=f"write {instead}",
        facts={"field": field},
    )


def check_pattern(field: str, pattern: object) -> None:
    """Refuse what is no pattern that can be sent.

    Raises:
        ConfigurationError: `invalid_profile`.
    """
    if not isinstance(pattern, re.Pattern) or not isinstance(pattern.pattern, str):
        raise refuse(field, repr(pattern), "a compiled text pattern, such as re.compile(r'^events\\.jsonl$')")
    # A text pattern cannot have LOCALE; DEBUG would print at each compilation in the sandbox.
    if pattern.flags & re.DEBUG:
        raise refuse(field, pattern.pattern, "a pattern without re.DEBUG")


def _problem(path: str) -> str | None:
    return path_problem(path.encode("utf-8", "surrogatepass"))


@functools.lru_cache(maxsize=256)
def _glob(pattern: str) -> re.Pattern[str]:
    return re.compile("[^/]*".join(re.escape(part) for part in pattern.split("*")))
