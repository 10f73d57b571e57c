"""The format of a conversation that is files, as its author writes it: where they lie, and what belongs together.

Paths of the host are `Path`, those of the sandbox `PurePosixPath`. A layout only names places; whatever it returns is
checked like any path before it is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from sandbox_api.names import CONVERSATION_ID

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from pathlib import Path, PurePosixPath

    from host_client.stores.profile import BundleRoot
    from sandbox_api.lock import LockSign

Kind = Literal["transcript", "plain", "lines"]

CHILDREN = "subagents"
"""Folder of the transcripts of a conversation's children, in the folder of its id beside its own."""


@dataclass(frozen=True, slots=True)
class SandboxPlace:
    """What a layout is told of a sandbox.

    Attributes:
        home: The CLI home when the layout has a `root`, else the agent home.
        root: The workspace, links resolved.
    """

    home: PurePosixPath
    root: PurePosixPath


class ConversationFiles(Protocol):
    """The files of one side, sandbox or host, by their paths below the home of the layout. No link is followed."""

    async def find(
        self, directory: PurePosixPath, pattern: str = "*", *, contains: bytes = b""
    ) -> Sequence[PurePosixPath]:
        """Return the regular files at any depth below a directory whose names match a glob, sorted.

        Args:
            directory: Where to start; nothing there: no files.
            pattern: `*`, `?` and `[...]`; other characters stand for themselves.
            contains: Only files with this in their first 64 KiB, as they lie on the disk.
        """

    async def exists(self, path: PurePosixPath) -> bool:
        """Tell whether a regular file is there; it is not opened."""

    async def first_line(self, path: PurePosixPath) -> bytes:
        """Return the first line without its newline, at most 1 MiB of it; of a `.zst` file that of its content.

        Raises:
            WorkspaceError: `not_found`, `not_a_file`.
        """


@dataclass(frozen=True, slots=True)
class Conversation:
    """What a layout is told of a conversation whose other files it is to name.

    Attributes:
        conversation_id: Its id.
        transcript: Its main transcript, below the home of the layout.
        files: The files of that side.
        collected: For each key of `collected_keys` the values that stand in the main transcript, at most 256 each.
    """

    conversation_id: str
    transcript: PurePosixPath
    files: ConversationFiles
    collected: Mapping[str, frozenset[str]]


@dataclass(frozen=True, slots=True)
class Related:
    """A file that belongs to a conversation beside its main transcript.

    Attributes:
        path: Where it lies, below the home of the layout.
        kind: `transcript`: JSONL whose `cwd` values are relocated; `plain`: any content, kept as it is; `lines`: a
            JSONL file that other conversations share: only its lines whose top-level `key` is one of `values` belong,
            and they are added to the other side's file where it lacks them.
        beside: On the other side it lies at the same place relative to the main transcript's folder; otherwise at the
            same path below the home.
        required: The conversation is useless without it: when it cannot be captured the capture fails. Otherwise that
            is a notice.
        key: For `lines`.
        values: For `lines`.
    """

    path: PurePosixPath
    kind: Kind = "plain"
    beside: bool = False
    required: bool = False
    key: str = ""
    values: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file that lies with a conversation and is never carried; the result names it.

    Attributes:
        path: Below the home of the layout.
        why: For people, such as `index of the CLI, which makes it again`.
    """

    path: PurePosixPath
    why: str


@dataclass(frozen=True, slots=True)
class Reference:
    """A number in the first line of a transcript that says how many bytes of another transcript belong to it.

    The store changes it when relocation moved that place.

    Attributes:
        path: The other transcript, below the home of the layout.
        offset: What the number says.
        span: Where its digits stand in the first line: start and end.
    """

    path: PurePosixPath
    offset: int
    span: tuple[int, int]


class TranscriptLayout(Protocol):
    """Where a CLI that keeps a transcript per conversation keeps it, on the host and in a sandbox.

    `home` is everywhere the home of the layout: with a `root` the CLI home (the value of its variable, or its directory
    below the user's or agent's home), without one the user's home, or the agent's. With a conversation home that stands
    for the user's home, and no variable of the user's environment counts.

    Attributes:
        format: Name of the format; it names records, archive keys and host directories, so it must never change.
        sidecars: Whether every `.jsonl` below `<folder of the transcript>/<id>/subagents/` belongs to the conversation.
        root: Where the CLI keeps its state; None: the layout's functions name places below the user's home themselves.
        collected_keys: Keys of the main transcript's lines whose text values `related` wants to know.
        ends_with_newline: The CLI appends blindly: a transcript put in a sandbox ends with a newline.
    """

    @property
    def format(self) -> str:
        """Return the format's name."""

    @property
    def sidecars(self) -> bool:
        """Tell whether child transcripts belong to a conversation."""

    @property
    def root(self) -> BundleRoot | None:
        """Return where the CLI keeps its state."""

    @property
    def collected_keys(self) -> Sequence[str]:
        """Return the keys whose values `related` wants to know."""

    @property
    def ends_with_newline(self) -> bool:
        """Tell whether a transcript in a sandbox must end with a newline."""

    def search_root(self, home: Path, /) -> Path:
        """Return the folder of the host below which transcripts lie."""

    def remote_search_root(self, home: PurePosixPath, /) -> PurePosixPath:
        """Return the folder of the sandbox below which transcripts lie."""

    def pattern(self, conversation_id: str, /) -> str:
        """Return the glob that the file name of a conversation's transcript matches; the id `*` stands for any."""

    def matches(self, file: Path, conversation_id: str, /) -> bool:
        """Tell whether a file of the host is the transcript of a conversation."""

    def directory(self, repository: Path, home: Path, /) -> Path:
        """Return the folder of the host that keeps the transcripts of a repository."""

    def preferred_path(self, conversation_id: str, repository: Path, home: Path, /) -> Path | None:
        """Return where the CLI itself would look first on the host; None: there is no such place."""

    def capture_path(self, conversation_id: str, repository: Path, home: Path, original: PurePosixPath, /) -> Path:
        """Return where a captured transcript goes on the host; `original` is its path in the sandbox."""

    def remote_path(self, conversation_id: str, sandbox: SandboxPlace, original: Path, /) -> PurePosixPath:
        """Return where a transcript goes in a sandbox; `original` is its path on the host."""

    async def related(self, conversation: Conversation, /) -> Sequence[Related | Skipped]:
        """Return what else belongs to a conversation, on the side it is told of, and what is left there on purpose."""

    def reference(
        self, first_line: bytes, path: PurePosixPath, related: Sequence[PurePosixPath], /
    ) -> Reference | None:
        """Return the byte offset into another transcript that a first line has.

        Args:
            first_line: Of the transcript at `path`, without its newline.
            path: Below the home of the layout.
            related: The transcripts of the conversation, below the home.
        """

    def locks(self, conversation_id: str, /) -> Sequence[LockSign]:
        """Return the signs that a running CLI has the conversation open."""

    def conversation_id(self, path: PurePosixPath, /) -> str | None:
        """Return the id of the conversation whose main transcript lies there; None: it is no transcript.

        Args:
            path: Below the home of the layout, found below its search root.
        """

    def is_record(self, line: bytes, /) -> bool:
        """Tell whether a line is part of what was said; a transcript without any is refused as empty."""


async def _none_related(conversation: Conversation) -> Sequence[Related | Skipped]:  # noqa: ARG001
    return ()


def _stem(path: PurePosixPath) -> str | None:
    is_main = path.suffix == ".jsonl" and CHILDREN not in path.parts
    return path.stem if is_main and CONVERSATION_ID.fullmatch(path.stem) else None


def _object(line: bytes) -> bool:
    return line.lstrip(b"\xef\xbb\xbf \t\r").startswith(b"{")


@dataclass(frozen=True, kw_only=True)
class TranscriptFunctions:
    """A `TranscriptLayout` made of functions; see there for what each is given and returns."""

    format: str
    sidecars: bool
    search_root: Callable[[Path], Path]
    remote_search_root: Callable[[PurePosixPath], PurePosixPath]
    pattern: Callable[[str], str]
    matches: Callable[[Path, str], bool]
    directory: Callable[[Path, Path], Path]
    capture_path: Callable[[str, Path, Path, PurePosixPath], Path]
    remote_path: Callable[[str, SandboxPlace, Path], PurePosixPath]
    preferred_path: Callable[[str, Path, Path], Path | None] = lambda _id, _repository, _home: None
    related: Callable[[Conversation], Awaitable[Sequence[Related | Skipped]]] = _none_related
    reference: Callable[[bytes, PurePosixPath, Sequence[PurePosixPath]], Reference | None] = lambda *_: None
    locks: Callable[[str], Sequence[LockSign]] = lambda _id: ()
    conversation_id: Callable[[PurePosixPath], str | None] = _stem
    is_record: Callable[[bytes], bool] = _object
    root: BundleRoot | None = None
    collected_keys: Sequence[str] = ()
    ends_with_newline: bool = False
