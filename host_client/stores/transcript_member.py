"""What belongs to a transcript conversation on one side, where it goes on the other, and the digest of all of it.

The one rule: a path that a layout or a sandbox names is a plain path below the home before anything is opened by it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import PurePath, PurePosixPath
from typing import TYPE_CHECKING

from host_client.errors import ConfigurationError, LimitError, Offender, SessionError, printable
from host_client.sandbox.task import task_group
from host_client.stores.layout import CHILDREN, Related, Skipped
from sandbox_api.limits import MAX_FILES_COUNT
from sandbox_api.manifest import bundle_digest
from sandbox_api.names import RECOVERY_DIRECTORY, STAGING_PREFIX, path_problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from host_client.stores.layout import Conversation, TranscriptLayout
    from sandbox_api.manifest import Entry


@dataclass(frozen=True, slots=True)
class Members:
    """The files of a conversation on one side, by their paths below the home of the layout.

    Attributes:
        main: The main transcript.
        related: The others, by path; `main` is not among them.
        skipped: What lies with them and is not carried, by path.
    """

    main: PurePosixPath
    related: Sequence[Related]
    skipped: Sequence[Skipped]

    @property
    def all(self) -> Sequence[Related]:
        """Every file, the main transcript last: the order in which they are put in place."""
        return (*self.related, Related(self.main, "transcript", required=True))

    @property
    def transcripts(self) -> Sequence[PurePosixPath]:
        """All transcripts, the main one last."""
        return [member.path for member in self.all if member.kind == "transcript"]

    def places(self, main: PurePosixPath) -> Mapping[PurePosixPath, PurePosixPath]:
        """Return where each file goes on the other side, by where it lies here.

        Args:
            main: Where the main transcript goes.

        Raises:
            ConfigurationError: `invalid_argument`: a file beside the main transcript does not lie below its folder, or
                two files would go to one place, or one below another.
        """
        placed: dict[PurePosixPath, PurePosixPath] = {}
        for member in self.related:
            path = member.path
            if member.beside:
                if not path.is_relative_to(self.main.parent):
                    raise _refusal(f"{_shown(path)} does not lie beside {_shown(self.main)}")
                path = main.parent / path.relative_to(self.main.parent)
            placed[member.path] = path
        placed[self.main] = main
        taken = set(placed.values())
        if len(taken) < len(placed) or any(not taken.isdisjoint(path.parents) for path in taken):
            raise _refusal("two files of the conversation would go to one place")
        return placed


async def members(layout: TranscriptLayout, conversation: Conversation) -> Members:
    """Name the files of a conversation on the side it is told of: child transcripts, and what the layout says.

    A file that both the rule of child transcripts and the layout name is what the layout says. Whether a file that the
    layout names exists is not looked at.

    Raises:
        SessionError: `unsafe_name`: paths that cannot be, all named.
        ConfigurationError: `invalid_argument`: the layout names a file twice and differently, or lines by no key.
        LimitError: `max_files`.
        OutpostError: those of the conversation's files.
    """
    async with task_group() as group:
        sidecars = group.create_task(_sidecars(layout, conversation))
        items = await layout.related(conversation)
    skipped: dict[PurePosixPath, Skipped] = {}
    named: dict[PurePosixPath, Related] = {}
    for item in items:
        if isinstance(item, Skipped):
            skipped[item.path] = item
            continue
        if named.setdefault(item.path, item) != item:
            raise _refusal(f"{_shown(item.path)} is named twice and differently")
        if item.kind == "lines" and not item.key:
            raise _refusal(f"lines of {_shown(item.path)} are named by no key")
    children = (path for path in sidecars.result() if path not in skipped)
    found = {path: Related(path, "transcript", beside=True) for path in children} | named
    found.pop(conversation.transcript, None)
    if len(found) >= MAX_FILES_COUNT:
        raise LimitError("max_files", f"the conversation has more than {MAX_FILES_COUNT} files")
    checked = _checked(found)
    return Members(
        conversation.transcript,
        [checked[path] for path in sorted(checked)],
        [skipped[path] for path in sorted(skipped) if path not in checked],
    )


async def _sidecars(layout: TranscriptLayout, conversation: Conversation) -> Sequence[PurePosixPath]:
    if not layout.sidecars:
        return ()
    folder = conversation.transcript.parent / conversation.conversation_id / CHILDREN
    return await conversation.files.find(folder, "*.jsonl")


def kept_digest(entries: Iterable[Entry]) -> str:
    """Return the digest of a conversation as the host keeps it, in hex: the bundle digest of its files, by path.

    Of a file of kind `lines` the content is the lines that belong, joined.

    Args:
        entries: Each file's path below the host's home of the layout, with size and digest.
    """
    return bundle_digest(sorted(entries)).hex()


_LAYOUT_HINT = "a layout names absolute paths below the home that it is given"


def below(
    home: PurePath, path: PurePath, what: str, *, or_home: bool = False, hint: str = _LAYOUT_HINT
) -> PurePosixPath:
    """Return where a path of a layout lies below the home, or refuse it.

    Args:
        home: Absolute.
        path: What somebody named.
        what: What it is, for the message.
        or_home: Whether the home itself may be meant; it is `.` then.
        hint: What to do about it.

    Raises:
        ConfigurationError: `invalid_argument`: it is not absolute, outside of the home, or no plain path.
    """
    problem: str | None = f"does not lie below {printable(str(home))}"
    relative = PurePosixPath()
    if path.is_relative_to(home):
        relative = PurePosixPath(path.relative_to(home))
        problem = path_problem(os.fsencode(relative))
        if or_home and relative == PurePosixPath():
            problem = None
    if problem:
        raise ConfigurationError(
            "invalid_argument",
            f"{what}, {_shown(path)}, {problem}",
            hint=hint,
        )
    return relative


def is_own(path: PurePosixPath) -> bool:
    """Tell whether a path below a home is in what restores set aside or are about to place: never a conversation."""
    return any(part == RECOVERY_DIRECTORY or part.startswith(STAGING_PREFIX) for part in path.parts)


def _checked(found: Mapping[PurePosixPath, Related]) -> dict[PurePosixPath, Related]:
    checked: dict[PurePosixPath, Related] = {}
    unsafe: list[Offender] = []
    for path, member in found.items():
        if is_own(path):
            continue
        if problem := path_problem(os.fsencode(path)):
            unsafe.append(Offender(_shown(path), problem))
        checked[path] = member
    if unsafe:
        raise SessionError(
            "unsafe_name", f"{len(unsafe)} file(s) of the conversation have names that cannot be", offenders=unsafe
        )
    return checked


def _shown(path: PurePath) -> str:
    return printable(str(path))


def _refusal(problem: str) -> ConfigurationError:
    return ConfigurationError("invalid_argument", f"the layout is wrong: {problem}", hint="see TranscriptLayout")
