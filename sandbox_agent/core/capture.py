"""Copy one session out: which files the client lacks, their contents, and the digest that names the whole.

The one rule: nothing is reported as captured that was not read, hashed and, at the end, found unchanged. Nothing in the
sandbox is changed.
"""

from __future__ import annotations

import hashlib
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from sandbox_agent.core.bundle_check import check_required, invalid
from sandbox_agent.core.hooks import HookRunner
from sandbox_agent.core.liveness import in_use_pid
from sandbox_agent.core.refusal import Refusal
from sandbox_agent.core.session import cli_home_path, failures, not_found, only_session, open_cli_home
from sandbox_agent.core.walk import walk
from sandbox_api.errors import SessionError, printable
from sandbox_api.manifest import DIGEST_BYTES, Entry, bundle_digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import TracebackType
    from typing import Self

    from sandbox_agent.core.paths import Directory
    from sandbox_agent.core.sandbox import Place, Sandbox
    from sandbox_agent.core.tree import Pin, Tree
    from sandbox_api.limits import Limits


_SMALL_BYTES = 64 << 10
"""A file up to this size is one piece together with its digest: of thousands, each piece counts."""


class Capture:
    """One capture: `begin`, then all of `pieces`, then `finish`; blocking. A context manager that closes everything.

    Memory does not grow with the session's content: each piece is read when it is asked for.

    Args:
        sandbox: Where the session lies.
        place: Names it.
        limits: The caller's limits; the smaller of them and the sandbox's hold.
        skip_links: Leave selected links out and name them in `left_out`, instead of refusing them.
        held: What the client holds already, by path: size and digest.

    Attributes:
        source: Absolute path of the session directory, links of the CLI home resolved; set by `begin`, as what follows.
        in_use_pid: Process that has the session open, 0: none is known.
        left_out: Entries left out on purpose, with `not_selected` or `symlink`; bounded.
        left_out_count: Number of all of them.
    """

    def __init__(
        self, sandbox: Sandbox, place: Place, *, limits: Limits, skip_links: bool, held: Mapping[bytes, Entry]
    ) -> None:
        self.source = b""
        self.in_use_pid = 0
        self.left_out: list[tuple[bytes, str]] = []
        self.left_out_count = 0
        self._sandbox = sandbox
        self._place = place
        self._limits = sandbox.limits.smaller(limits)
        self._skip_links = skip_links
        self._held = held
        self._stack = ExitStack()
        self._entries: list[Entry] = []
        self._prefixes: dict[bytes, hashlib._Hash] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def begin(self) -> list[Entry]:
        """Find the session, pin its files, and compare them with what is held.

        Returns:
            The manifest: an unchanged file has its digest; one that grew has `from_offset` at the end of its held part.

        Raises:
            SessionError: `not_found`, `ambiguous`, `symlink`, `root_symlink`, `special_file`, `unsafe_name`,
                `live_database`, `missing_required`, `empty`, `changed`.
            LimitError: `max_bytes`, `max_files`, `max_depth`, `descriptors`.
            ProcessError: `start_failed`: of the hooks' interpreter.
            WorkspaceError: `outside_roots`, `unsafe_path`, `access`.
        """
        profile = self._place.profile
        self._began_ns = time.time_ns()
        with failures():
            session = self._stack.enter_context(self._open_session())
            self.source = session.path
            self.in_use_pid = in_use_pid(session, profile)
        self._tree = self._stack.enter_context(walk(session, profile, self._limits, skip_links=self._skip_links))
        self.left_out, self.left_out_count = self._tree.left_out, self._tree.left_out_count
        self._check_required()
        self._hooks = self._stack.enter_context(HookRunner(profile))
        if profile.validate:
            self._hooks.start()  # ready when all has been read
        self._entries = [self._compare(pin) for pin in self._tree.pins]
        return list(self._entries)

    def pieces(self, room: Callable[[], int]) -> Iterator[bytes]:
        """Yield the payload that follows the manifest: contents and digests, in the order of the manifest.

        Args:
            room: Tells how many bytes the next piece may have; at least 1.

        Raises:
            SessionError: `changed`: the payload ends here and what was yielded of it is to be thrown away.
            WorkspaceError: `access`.
        """
        for index, (entry, pin) in enumerate(zip(self._entries, self._tree.pins, strict=True)):
            if entry.sha256:
                continue
            if pin.size <= _SMALL_BYTES and not entry.from_offset and pin.size + DIGEST_BYTES <= room():
                content = self._tree.read_whole(pin)
                sha256 = hashlib.sha256(content).digest()
                self._entries[index] = Entry(entry.path, entry.size, sha256)
                if content:
                    yield content
                yield sha256
                continue
            digest = self._prefixes.pop(pin.path, None) or hashlib.sha256()
            for piece in self._tree.read(pin, room, start=entry.from_offset):
                digest.update(piece)
                yield piece
            sha256 = digest.digest()
            self._entries[index] = Entry(entry.path, entry.size, sha256, entry.from_offset)
            while sha256:
                piece, sha256 = sha256[: (size := room())], sha256[size:]
                yield piece

    def finish(self) -> bytes:
        """Check that the session is still what was read, and that its format accepts it; return the bundle digest.

        Raises:
            SessionError: `changed` with all entries that changed; `invalid`, `hook_failed`, `hook_timeout`,
                `hook_memory`, `hook_crashed`.
        """
        problem = self._validate()
        self._check_place()
        self._tree.check_unchanged()
        if problem is not None:
            raise invalid(self._place.profile, self._place.conversation_id, problem)
        found = zip((pin.identity for pin in self._tree.pins), (entry.sha256 for entry in self._entries), strict=True)
        self._sandbox.digests.note(found, read_ns=self._began_ns)
        return bundle_digest(self._entries)

    def _open_session(self) -> Directory:
        cli_home = open_cli_home(self._sandbox, self._place)
        if cli_home is None:
            path = cli_home_path(self._sandbox, self._place)
            raise not_found(self._place.profile, self._place.conversation_id, path)
        self._cli_home = self._stack.enter_context(cli_home)
        profile, conversation_id = self._place.profile, self._place.conversation_id
        self._found = only_session(cli_home, profile, conversation_id)
        try:
            return cli_home.directory(self._found.relative)
        except (FileNotFoundError, NotADirectoryError):
            raise not_found(profile, conversation_id, cli_home.join(self._found.relative)) from None

    def _check_required(self) -> None:
        paths = {pin.path for pin in self._tree.pins}
        if not paths:
            raise SessionError("empty", f"nothing in {printable(self.source)} belongs to a session")
        check_required(self._place.profile, map(bytes.decode, paths), printable(self.source))

    def _compare(self, pin: Pin) -> Entry:
        """Return the manifest's entry of a file: what of it the client holds already is found by its digest."""
        held = self._held.get(pin.path)
        if held is None or held.size > pin.size or (held.size == 0 < pin.size):
            return Entry(pin.path, pin.size)
        if held.size == pin.size and (known := self._sandbox.digests.get(pin.identity)) is not None:
            return Entry(pin.path, pin.size, known, pin.size) if known == held.sha256 else Entry(pin.path, pin.size)
        if held.size == pin.size <= _SMALL_BYTES:
            digest = hashlib.sha256(self._tree.read_whole(pin))
        else:
            digest = hashlib.sha256()
            for piece in self._tree.read(pin, end=held.size):
                digest.update(piece)
        if digest.digest() != held.sha256:
            return Entry(pin.path, pin.size)
        if held.size == pin.size:
            return Entry(pin.path, pin.size, held.sha256, from_offset=pin.size)
        self._prefixes[pin.path] = digest
        return Entry(pin.path, pin.size, from_offset=held.size)

    def _validate(self) -> str | None:
        if not self._place.profile.validate:
            return None
        return self._hooks.validate(self._place.conversation_id, _CapturedFiles(self._tree, self._entries))

    def _check_place(self) -> None:
        """Refuse a session whose directory was moved away or replaced while it was read."""
        try:
            status = self._cli_home.stat(self._found.relative)
        except OSError:  # nothing is there any more, or nothing that can be looked at
            identity = None
        else:
            identity = status.st_dev, status.st_ino
        refusal = Refusal()
        if identity != self._tree.identity:
            refusal.add("changed", self.source, "was moved or replaced while it was read")
        refusal.check()


class _CapturedFiles:
    """The captured files for a hook: it sees exactly the contents whose digests were reported, or fails."""

    def __init__(self, tree: Tree, entries: list[Entry]) -> None:
        self._tree = tree
        self._files = {entry.path.decode(): (pin, entry) for pin, entry in zip(tree.pins, entries, strict=True)}

    def paths(self) -> list[str]:
        return list(self._files)

    def open(self, path: str) -> int | None:
        found = self._files.get(path)
        if found is None:
            return None
        pin, entry = found
        digest = hashlib.sha256()
        for piece in self._tree.read(pin):
            digest.update(piece)
        if digest.digest() != entry.sha256:
            refusal = Refusal()
            refusal.add("changed", pin.path, "changed after it was read")
            refusal.check()
        return self._tree.open(pin)
