"""The format `codex`: rollouts, one per thread, that may refer to each other, in folders of dates.

What is said here of files was seen with Codex 0.55.0, 0.128.0 and 0.171.0 on Linux. A fork of 0.171.0 holds no copy of
what it was forked from: it names the other thread, and how many bytes of its rollout belong to it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from host_client.errors import LimitError, SessionError, printable
from host_client.session.line_header import read_headers
from host_client.stores.layout import Reference, Related, Skipped, TranscriptFunctions
from host_client.stores.profile import BundleRoot
from sandbox_api.errors import Offender
from sandbox_api.limits import MAX_FILES_COUNT
from sandbox_api.lock import LockSign

if TYPE_CHECKING:
    from collections.abc import Sequence

    from host_client.stores.layout import Conversation, ConversationFiles, SandboxPlace

_FOLDERS = (PurePosixPath("sessions"), PurePosixPath("archived_sessions"))
_NAME = re.compile(
    r"rollout-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-"
    r"(?P<id>[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})\.jsonl(?:\.zst)?",
    re.ASCII,
)
_INDEX = PurePosixPath("session_index.jsonl")
"""Names of threads, one line for each time that one was named."""

_LEFT_OUT = {
    "state_5.sqlite": "index of the CLI with absolute paths, which makes it again",
    "thread_history_1.sqlite": "index of the CLI with offsets into its rollouts, which makes it again",
    "goals_1.sqlite": "database of all threads",
    "auth.json": "credentials",
}
_SAID = frozenset(("response_item", "event_msg"))
_OFFSET = re.compile(rb'"end_byte_offset"[ \t]*:[ \t]*(?P<digits>\d{1,18})')
_NO_OFFSET = -1


def conversation_id(path: PurePosixPath) -> str | None:
    """Return the id of a rollout by its name; any place below `sessions` or `archived_sessions` suits the CLI."""
    matched = _NAME.fullmatch(path.name)
    return matched["id"] if matched and any(path.is_relative_to(folder) for folder in _FOLDERS) else None


def _matches(file: Path, wanted_id: str) -> bool:
    matched = _NAME.fullmatch(file.name)
    return matched is not None and matched["id"] == wanted_id


def _below_home(original: Path | PurePosixPath) -> PurePosixPath:
    """Return the same place below any CLI home: the folders of the date and the name are those that the CLI knows."""
    parts = original.parts
    for start in reversed(range(len(parts))):
        if PurePosixPath(parts[start]) in _FOLDERS:
            return PurePosixPath(*parts[start:])
    return _FOLDERS[0] / original.name


def _capture_path(wanted_id: str, repository: Path, home: Path, original: PurePosixPath) -> Path:  # noqa: ARG001
    return home / _below_home(original)


def _remote_path(wanted_id: str, sandbox: SandboxPlace, original: Path) -> PurePosixPath:  # noqa: ARG001
    return sandbox.home / _below_home(original)


@dataclass
class _Relatives:
    """The rollouts found so far that a conversation needs, or that belong to it."""

    files: ConversationFiles
    wanted_id: str
    related: dict[PurePosixPath, Related] = field(default_factory=dict)

    async def add(self, path: PurePosixPath, *, is_required: bool) -> None:
        """Take a rollout up, and all that it was forked from.

        Raises:
            SessionError: `missing_required`, `ambiguous`.
            LimitError: `max_files`: the threads do not come to an end.
        """
        while path not in self.related:
            if len(self.related) >= MAX_FILES_COUNT:
                raise LimitError("max_files", f"{self.wanted_id} needs more than {MAX_FILES_COUNT} rollouts")
            self.related[path] = Related(path, "transcript", required=is_required)
            base = _payload(await self.files.first_line(path)).get("history_base")
            thread_id = base.get("thread_id") if isinstance(base, dict) else None
            if not isinstance(thread_id, str):
                return
            path, is_required = await self._only(thread_id), True

    async def _only(self, thread_id: str) -> PurePosixPath:
        found = []
        # An id of another form is in no name, and must not be taken for a pattern.
        if _NAME.fullmatch(f"rollout-2000-01-01T00-00-00-{thread_id}.jsonl"):
            found = [path for folder in _FOLDERS for path in await self.files.find(folder, _pattern(thread_id))]
        if len(found) == 1:
            return found[0]
        told = printable(thread_id)[:140]
        if not found:
            raise SessionError(
                "missing_required",
                f"the conversation {self.wanted_id} was forked from {told}, of which there is no rollout",
                hint="the CLI cannot resume it either; put that rollout back",
            )
        raise _ambiguous(f"{len(found)} rollouts have the id {told}, from which {self.wanted_id} was forked", found)

    def check(self) -> None:
        """Make sure that no thread was found twice: the CLI takes one of two without a word."""
        found: dict[str | None, list[PurePosixPath]] = {}
        for path in self.related:
            found.setdefault(conversation_id(path), []).append(path)
        for thread_id, paths in found.items():
            if len(paths) > 1:
                message = f"{len(paths)} rollouts have the id {thread_id}, which belongs to {self.wanted_id}"
                raise _ambiguous(message, paths)


def _ambiguous(message: str, paths: Sequence[PurePosixPath]) -> SessionError:
    return SessionError(
        "ambiguous",
        message,
        hint="move or remove all but the one that is meant",
        offenders=(Offender(printable(str(path)), "has this id") for path in paths),
    )


async def _related(conversation: Conversation) -> Sequence[Related | Skipped]:
    files = conversation.files
    relatives = _Relatives(files, conversation.conversation_id)
    await relatives.add(conversation.transcript, is_required=True)
    family = _payload(await files.first_line(conversation.transcript)).get("session_id")
    if isinstance(family, str):
        for path in await _family(files, family):
            await relatives.add(path, is_required=False)
    relatives.check()
    ids = frozenset(filter(None, map(conversation_id, relatives.related)))
    found: list[Related | Skipped] = [
        item for path, item in relatives.related.items() if path != conversation.transcript
    ]
    if await files.exists(_INDEX):
        found.append(Related(_INDEX, "lines", key="id", values=ids))
    left_out = {PurePosixPath(name): why for name, why in _LEFT_OUT.items()}
    left_out |= {PurePosixPath("thread-writer-locks", f"{one}.lock"): "lock of the CLI" for one in sorted(ids)}
    found += [Skipped(path, why) for path, why in left_out.items() if await files.exists(path)]
    return found


async def _family(files: ConversationFiles, session_id: str) -> list[PurePosixPath]:
    """Return the rollouts of a thread and its sub-agents: their first lines name the thread that all began with."""
    sign = json.dumps(session_id).encode()
    found = []
    for folder in _FOLDERS:
        plain = await files.find(folder, "rollout-*.jsonl", contains=sign)
        packed = await files.find(folder, "rollout-*.jsonl.zst")
        found += [
            path
            for path in (*plain, *packed)
            if conversation_id(path) and _payload(await files.first_line(path)).get("session_id") == session_id
        ]
    return found


def _reference(first_line: bytes, path: PurePosixPath, related: Sequence[PurePosixPath]) -> Reference | None:  # noqa: ARG001
    base = _payload(first_line).get("history_base")
    if not isinstance(base, dict) or type(offset := base.get("end_byte_offset")) is not int or offset < 0:
        return None
    thread_id = base.get("thread_id")
    names = (f"-{thread_id}.jsonl", f"-{thread_id}.jsonl.zst")  # a quick look: there may be very many
    others = [other for other in related if str(other).endswith(names) and conversation_id(other) == thread_id]
    if len(others) != 1:
        return None
    for matched in _OFFSET.finditer(first_line):
        # Texts may hold the same characters: the number that counts is the one whose change shows.
        changed = b"%b%d%b" % (first_line[: matched.start("digits")], _NO_OFFSET, first_line[matched.end("digits") :])
        now = _payload(changed).get("history_base")
        if isinstance(now, dict) and now.get("end_byte_offset") == _NO_OFFSET:
            return Reference(others[0], offset, matched.span("digits"))
    return None


def _payload(line: bytes) -> dict[str, Any]:
    """Return the payload of a rollout's first line; empty when it has none."""
    try:
        told = json.loads(line.removeprefix(b"\xef\xbb\xbf"))
    except (ValueError, RecursionError):
        return {}
    payload = told.get("payload") if isinstance(told, dict) and told.get("type") == "session_meta" else None
    return payload if isinstance(payload, dict) else {}


def _locks(wanted_id: str) -> Sequence[LockSign]:
    return [LockSign("thread-writer-locks", rf"^{re.escape(wanted_id)}\.lock$")]


def _is_record(line: bytes | bytearray) -> bool:
    return any(header.kind and header.kind.partition("/")[0] in _SAID for header in read_headers(line))


def _pattern(thread_id: str) -> str:
    return f"rollout-*-{thread_id}.jsonl*"


def resume_command(conversation_id: str, sandbox_workspace: PurePosixPath) -> list[str]:  # noqa: ARG001 -- as every format
    """Give the command that goes on with the conversation; it must be run in the workspace.

    By the id: for a name or `--last` that it does not find, 0.171.0 begins a new thread without a word.
    """
    return ["codex", "exec", "resume", conversation_id]


LAYOUT = TranscriptFunctions(
    format="codex",
    sidecars=False,
    root=BundleRoot(directory=".codex", variable="CODEX_HOME"),
    search_root=lambda home: home,
    remote_search_root=lambda home: home,
    pattern=_pattern,
    matches=_matches,
    directory=lambda _repository, home: home / _FOLDERS[0],
    capture_path=_capture_path,
    remote_path=_remote_path,
    related=_related,
    reference=_reference,
    locks=_locks,
    conversation_id=conversation_id,
    is_record=_is_record,
    ends_with_newline=True,
)
