"""The format `claude`: one transcript per conversation, in a folder named by a key of the working directory.

What is said here of files and keys was seen with Claude Code 1.0.128, 2.1.197 and 2.1.332 on Linux.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from host_client.sandbox.task import task_group
from host_client.session.line_header import read_headers
from host_client.stores.layout import Related, Skipped, TranscriptFunctions
from host_client.stores.profile import BundleRoot
from sandbox_api.lock import LockSign

if TYPE_CHECKING:
    from collections.abc import Sequence

    from host_client.stores.layout import Conversation, SandboxPlace

_PROJECTS = "projects"
_REGISTRY = "sessions"
"""One file `<pid>.json` for each running process, and since 2.1.332 a secret key beside it."""

_MAX_KEY_UNITS = 200
_PLAIN_UNITS = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_UUID = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}", re.ASCII)
_PLAN_NAME = re.compile(r"[A-Za-z0-9_-]{1,200}", re.ASCII)
_SAID = frozenset(("user", "assistant"))


def project_key(directory: str) -> str:
    """Return the name of the folder that keeps the transcripts of a working directory.

    Every UTF-16 unit but ASCII letters and digits becomes a dash; a key beyond 200 units is cut there and gets a hash
    of the whole path. Different directories can have the same key.

    Args:
        directory: Absolute path, links resolved as the CLI does.
    """
    units = memoryview(directory.encode("utf-16-le", "surrogatepass")).cast("H")
    key = "".join(chr(unit) if unit in _PLAIN_UNITS else "-" for unit in units)
    if len(key) <= _MAX_KEY_UNITS:
        return key
    number = 0
    for unit in units:
        number = (number * 31 + unit) & 0xFFFFFFFF
    return f"{key[:_MAX_KEY_UNITS]}-{_base36(abs(number - (number >> 31 << 32)))}"


def _base36(number: int) -> str:
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
    return digits or "0"


def conversation_id(path: PurePosixPath) -> str | None:
    """Return the id of a main transcript: `projects/<key>/<id>.jsonl`, where the CLI takes no id but a UUID."""
    is_main = len(path.parts) == len(("projects", "key", "name")) and path.parts[0] == _PROJECTS
    return path.stem if is_main and path.suffix == ".jsonl" and _UUID.fullmatch(path.stem) else None


def _matches(file: Path, wanted_id: str) -> bool:
    return conversation_id(PurePosixPath(*file.parts[-3:])) == wanted_id


def _capture_path(wanted_id: str, repository: Path, home: Path, original: PurePosixPath) -> Path:  # noqa: ARG001
    return _path(wanted_id, repository, home)


def _path(wanted_id: str, repository: Path, home: Path) -> Path:
    return _directory(repository, home) / f"{wanted_id}.jsonl"


def _directory(repository: Path, home: Path) -> Path:
    return home / _PROJECTS / project_key(str(repository))


def _remote_path(wanted_id: str, sandbox: SandboxPlace, original: Path) -> PurePosixPath:  # noqa: ARG001
    return sandbox.home / _PROJECTS / project_key(str(sandbox.root)) / f"{wanted_id}.jsonl"


async def _related(conversation: Conversation) -> Sequence[Related | Skipped]:
    files, wanted_id = conversation.files, conversation.conversation_id
    slugs = {slug for slug in conversation.collected.get("slug", ()) if _PLAN_NAME.fullmatch(slug)}
    plans, credentials = PurePosixPath("plans"), PurePosixPath(".credentials.json")
    async with task_group() as group:  # each question is a round trip
        # Sub-agents, results too large for the transcript, the title.
        beside = group.create_task(files.find(conversation.transcript.with_suffix("")))
        # What a rewind puts back, the task list (2.1.197), the task list before (1.0.128).
        named = [
            group.create_task(files.find(PurePosixPath(directory), pattern))
            for directory, pattern in (
                (f"file-history/{wanted_id}", "*"),
                (f"tasks/{wanted_id}", "*"),
                ("todos", f"{wanted_id}-*"),
            )
        ]
        planned = group.create_task(files.find(plans, "*.md")) if slugs else None
        registered = group.create_task(files.find(PurePosixPath(_REGISTRY), "*.json", contains=wanted_id.encode()))
        has_credentials = group.create_task(files.exists(credentials))
    paths = [path for found in named for path in found.result()]
    paths += [path for path in planned.result() if path.parent == plans and path.stem in slugs] if planned else []
    related: list[Related | Skipped] = [
        Related(path, "transcript" if path.suffix == ".jsonl" else "plain", beside=True) for path in beside.result()
    ]
    related += [Skipped(path, "lock of the CLI") if path.name.endswith(".lock") else Related(path) for path in paths]
    related += [Skipped(path, "registry of a running process") for path in registered.result()]
    return [*related, Skipped(credentials, "credentials")] if has_credentials.result() else related


def _locks(wanted_id: str) -> Sequence[LockSign]:
    return [LockSign(_REGISTRY, r"^(?P<pid>[0-9]+)\.json$", wanted_id.encode())]


def _is_record(line: bytes | bytearray) -> bool:
    return any(header.kind and header.kind.partition("/")[0] in _SAID for header in read_headers(line))


def resume_command(conversation_id: str, sandbox_workspace: PurePosixPath) -> list[str]:  # noqa: ARG001 -- as every format
    """Give the command that goes on with the conversation; it must be run in the workspace.

    By the id: the CLI's own list does not show conversations that were begun with `-p`.
    """
    return ["claude", "--resume", conversation_id]


LAYOUT = TranscriptFunctions(
    format="claude",
    sidecars=True,
    root=BundleRoot(directory=".claude", variable="CLAUDE_CONFIG_DIR"),
    search_root=lambda home: home / _PROJECTS,
    remote_search_root=lambda home: home / _PROJECTS,
    pattern=lambda wanted_id: f"{wanted_id}.jsonl",
    matches=_matches,
    directory=_directory,
    preferred_path=_path,
    capture_path=_capture_path,
    remote_path=_remote_path,
    related=_related,
    locks=_locks,
    conversation_id=conversation_id,
    is_record=_is_record,
    collected_keys=("slug",),
    # 2.1.197 appends to a last line that has no newline.
    ends_with_newline=True,
)
