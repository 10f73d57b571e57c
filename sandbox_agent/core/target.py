"""Where a restore puts its session."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sandbox_agent.core.liveness import in_use_pid
from sandbox_agent.core.missing import Missing
from sandbox_agent.core.session import cli_home_path, find_sessions, make_cli_home, open_cli_home
from sandbox_api.errors import ConflictError, Offender, printable
from sandbox_api.names import check_conversation_id

if TYPE_CHECKING:
    from sandbox_agent.core.hooks import HookRunner
    from sandbox_agent.core.owner import Owner
    from sandbox_agent.core.paths import Directory
    from sandbox_agent.core.sandbox import Place, Sandbox
    from sandbox_api.profile import Profile


@dataclass(frozen=True, slots=True)
class Target:
    """The place of a session.

    Attributes:
        parent: Folder of the session below the CLI home.
        name: Name of the session directory in it.
    """

    parent: bytes
    name: bytes

    @property
    def relative(self) -> bytes:
        """Path of the session directory below the CLI home."""
        return self.parent + b"/" + self.name


def target_of(sandbox: Sandbox, place: Place, hooks: HookRunner) -> Target:
    """Return where a session belongs; with buckets, in the one of the workspace.

    Raises:
        ConfigurationError: `invalid_id`, `invalid_bucket`.
        SessionError: `hook_*`.
    """
    profile = place.profile
    name = check_conversation_id(place.conversation_id).encode()
    parent = profile.sessions.encode()
    if profile.buckets:
        parent = os.path.join(parent, hooks.bucket(sandbox.workspace))
    return Target(parent, name)


def check_alone(cli_home: Directory, place: Place, target: Target) -> None:
    """Refuse a target while another bucket has a session of the same id.

    Raises:
        ConflictError: `other_bucket` with all of them.
        SessionError: `symlink`.
    """
    found = find_sessions(cli_home, place.profile, place.conversation_id)
    others = [cli_home.join(session.relative) for session in found if session.relative != target.relative]
    if others:
        raise ConflictError(
            "other_bucket",
            f"the session {place.conversation_id} is in another directory of the CLI home already",
            hint="restore into a private home, or move that session away",
            facts={"path": printable(others[0])},
            offenders=(Offender(printable(path), "has the session") for path in others),
        )


def open_session(cli_home: Directory, target: Target) -> Directory | None:
    """Open the session directory of a target; None when nothing is there.

    Raises:
        ConflictError: `exists`: something else is in its place.
        OSError: `LinkError` where a link is on the way.
    """
    try:
        if not stat.S_ISDIR(cli_home.stat(target.relative).st_mode):
            path = printable(cli_home.join(target.relative))
            raise ConflictError("exists", f"{path!r} is no directory", hint="move it away", facts={"path": path})
        return cli_home.directory(target.relative)
    except FileNotFoundError:
        return None


def check_idle(session: Directory, profile: Profile, *, force: bool) -> None:
    """Refuse to replace a session that a running process has open, unless forced.

    Raises:
        ConflictError: `in_use`.
    """
    pid = 0 if force else in_use_pid(session, profile)
    if pid:
        raise ConflictError(
            "in_use",
            f"process {pid} has the session '{printable(session.path)}' open",
            hint="end that process, or force the restore",
            facts={"pid": str(pid), "path": printable(session.path)},
        )


class MadeFolders:
    """The folders on the way to a target, and which of them were missing before.

    Args:
        sandbox: Where the target lies.
        place: Names the CLI home.
        target: The target in it.
    """

    def __init__(self, sandbox: Sandbox, place: Place, target: Target) -> None:
        self._sandbox = sandbox
        self._place = place
        self._target = target
        cli_home = open_cli_home(sandbox, place)
        if cli_home is None:
            path = cli_home_path(sandbox, place)
        else:
            with cli_home:
                path = cli_home.path
        root, relative = sandbox.roots.locate(path)
        self._missing = Missing(root, [os.path.join(relative, target.parent)])

    def make(self, owner: Owner | None) -> tuple[Directory, Directory]:
        """Open the CLI home and the folder of the session, making what is missing; the caller closes both."""
        cli_home = make_cli_home(self._sandbox, self._place, owner)
        try:
            return cli_home, cli_home.make_directories(self._target.parent, owner=owner)
        except BaseException:
            cli_home.close()
            raise

    def remove(self) -> None:
        """Remove again what was missing before, where nothing is in it by now."""
        self._missing.remove()
