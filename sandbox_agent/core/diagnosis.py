"""Look for what would make later calls fail, or work worse than they could.

Writes and removes one scratch directory per place; nothing else changes.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal
from uuid import uuid4

from sandbox_agent.core.capability import kernel_release
from sandbox_agent.core.paths import has_openat2
from sandbox_agent.core.recovery_entry import FOLDER
from sandbox_agent.core.removal import remove_tree
from sandbox_agent.core.rename import NO_EXCHANGE, exchange
from sandbox_agent.core.sandbox import Place
from sandbox_agent.core.session import cli_home_path, failures, open_cli_home
from sandbox_agent.errors import from_os
from sandbox_api.errors import OutpostError, printable
from sandbox_api.limits import MIB
from sandbox_api.names import STAGING_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import TypeAlias

    from sandbox_agent.core.paths import Directory
    from sandbox_agent.core.sandbox import Sandbox
    from sandbox_api.profile import Profile

    Level: TypeAlias = Literal["ok", "warning", "problem"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        check: Stable word of what was looked at.
        format: Format it belongs to; empty for the daemon itself.
        level: `ok`; `warning` for a drawback; `problem` for what will fail.
        message: One sentence for people.
        hint: What to do about it; empty when all is well.
    """

    check: str
    format: str
    level: Level
    message: str
    hint: str = ""


def diagnose(sandbox: Sandbox, profiles: Sequence[Profile], variables: Mapping[str, str]) -> list[Finding]:
    """Look at the daemon, and at the place of each format; their hooks are not run."""
    findings = _looked_at("", _daemon(sandbox))
    for profile in profiles:
        findings += _looked_at(profile.format, _format(sandbox, Place(profile, "", variables)))
    return findings


def _looked_at(name: str, findings: Iterator[Finding]) -> list[Finding]:
    """Return the findings up to the one that made looking further impossible."""
    found: list[Finding] = []
    try:
        found.extend(findings)
    except OutpostError as error:
        found.append(Finding("place", name, "problem", error.message, error.hint))
    return found


def _daemon(sandbox: Sandbox) -> Iterator[Finding]:
    if has_openat2():
        yield Finding("openat2", "", "ok", "the kernel resolves paths beneath a root")
    else:
        yield Finding(
            "openat2",
            "",
            "warning",
            f"kernel {kernel_release()} has no openat2, or a filter hides it; paths are opened step by step",
            "use Linux 5.6 or later, and a container runtime that allows openat2",
        )
    with failures(), sandbox.roots.directory(sandbox.home) as home:
        yield from _scratch("home", "", home)
    yield _state(sandbox)


def _state(sandbox: Sandbox) -> Finding:
    try:
        with failures():
            sandbox.journal.check()
    except OutpostError as error:
        hint = error.hint or "remove it, or name another with --state"
        return Finding("state", "", "problem", f"restores are refused: {error.message}", hint)
    return Finding("state", "", "ok", "the state folder is the daemon's alone, or not made yet")


def _format(sandbox: Sandbox, place: Place) -> Iterator[Finding]:
    """Look at the place of one format.

    Raises:
        OutpostError: the place cannot be looked at; it will not work.
    """
    name = place.profile.format
    path = cli_home_path(sandbox, place)
    cli_home = open_cli_home(sandbox, place)
    if cli_home is None:
        yield Finding("place", name, "ok", f"{printable(path)} does not exist yet and is made by a restore")
        yield from _nearest(sandbox, name, path)
        return
    with cli_home, failures():
        yield Finding("place", name, "ok", f"the CLI home is {printable(cli_home.path)}")
        sessions = _open_if_there(cli_home, place.profile.sessions.encode())
        with sessions or cli_home.directory(b"") as folder:
            yield from _scratch("writable", name, folder)
            yield from _same_file_system(name, cli_home, folder)
            yield _room(sandbox, name, folder)
        yield _owner(name, cli_home)


def _nearest(sandbox: Sandbox, name: str, path: bytes) -> Iterator[Finding]:
    """Look at the deepest directory that exists on the way to a CLI home that does not."""
    root, relative = sandbox.roots.locate(path)
    with failures():
        while True:
            relative = relative.rpartition(b"/")[0]
            with suppress(FileNotFoundError), root.directory(relative) as folder:
                yield from _scratch("writable", name, folder)
                yield _room(sandbox, name, folder)
                yield _owner(name, folder)
                return


def _scratch(check: str, name: str, folder: Directory) -> Iterator[Finding]:
    """Try to write in a directory, and to exchange two directories there."""
    where = printable(folder.path)
    scratch_name = f"{STAGING_PREFIX}{uuid4().hex}".encode()
    try:
        with folder.make_directory(scratch_name) as scratch:
            for part in (b"a", b"b"):
                scratch.make_directory(part).close()
            yield Finding(check, name, "ok", f"{where} can be written")
            if name:
                yield _exchange(name, scratch, where)
    except OSError as error:
        failure = from_os(error, folder.path)
        yield Finding(check, name, "problem", failure.message, "give the daemon's user write access, and free space")
    finally:
        remove_tree(folder, scratch_name)


def _exchange(name: str, scratch: Directory, where: str) -> Finding:
    try:
        exchange(scratch, b"a", scratch, b"b")
    except OSError as error:
        if error.errno not in NO_EXCHANGE:
            raise
        return Finding(
            "exchange",
            name,
            "warning",
            f"the file system of {where} cannot exchange directories: a session is briefly away while it is replaced",
            "keep the CLI home on ext4, xfs, btrfs or tmpfs",
        )
    return Finding("exchange", name, "ok", f"directories in {where} are exchanged in one step")


def _same_file_system(name: str, cli_home: Directory, folder: Directory) -> Iterator[Finding]:
    recovery = _open_if_there(cli_home, FOLDER)
    with recovery or cli_home.directory(b"") as target:
        if os.fstat(target.fd).st_dev == os.fstat(folder.fd).st_dev:
            yield Finding("same_filesystem", name, "ok", "sessions and recovery are on one file system")
        else:
            yield Finding(
                "same_filesystem",
                name,
                "warning",
                f"{printable(folder.path)} and {printable(target.path)} are on different file systems: a session that "
                "is replaced is copied to recovery",
                "mount the whole CLI home instead of the folder of the sessions",
            )


def _room(sandbox: Sandbox, name: str, folder: Directory) -> Finding:
    status = os.fstatvfs(folder.fd)
    free_bytes = status.f_bavail * status.f_frsize
    where = printable(folder.path)
    if status.f_blocks and free_bytes < sandbox.limits.max_bytes:
        return Finding(
            "free_space",
            name,
            "warning",
            f"{free_bytes // MIB} MiB are free at {where}; a session may have {sandbox.limits.max_bytes // MIB} MiB",
            "free some space, for example by pruning recovery",
        )
    return Finding("free_space", name, "ok", f"{where} has room for the largest session")


def _owner(name: str, folder: Directory) -> Finding:
    """Tell when what the daemon writes would not belong to who uses it."""
    user = os.fstat(folder.fd).st_uid
    if user == os.geteuid():
        return Finding("owner", name, "ok", "what is restored belongs to the user of the CLI home")
    return Finding(
        "owner",
        name,
        "warning",
        f"{printable(folder.path)} belongs to user {user}, the daemon is user {os.geteuid()}",
        f"name the owner of what is restored, user {user}, or run the daemon as that user",
    )


def _open_if_there(cli_home: Directory, relative: bytes) -> Directory | None:
    with suppress(FileNotFoundError):
        return cli_home.directory(relative)
    return None
