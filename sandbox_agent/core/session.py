"""Find session directories: from a profile and an id to the CLI home, and to the one session or all candidates.

The one rule: no link is followed. A link that a session might lie behind is a refusal, never a guess.
"""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sandbox_agent.core.liveness import in_use_pid
from sandbox_agent.core.paths import LinkError, check_absolute
from sandbox_agent.errors import from_os
from sandbox_api.errors import ConfigurationError, Offender, SessionError, printable
from sandbox_api.names import CONVERSATION_ID, STAGING_PREFIX, VARIABLE, check_conversation_id, path_problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sandbox_agent.core.paths import Directory
    from sandbox_agent.core.sandbox import CliHome, Place, Sandbox
    from sandbox_api.profile import Profile


@dataclass(frozen=True, slots=True)
class Found:
    """A session directory: its id, its path below the CLI home, and the bucket in between."""

    conversation_id: str
    relative: bytes
    bucket: bytes | None


@dataclass(frozen=True, slots=True)
class Summary:
    """What can be told about a session without reading it.

    Attributes:
        conversation_id: Its id.
        path: Absolute path of the session directory.
        modified_ns: Newest modification time of the required files, in nanoseconds; None when there is none.
        complete: Whether all required files are there.
        in_use_pid: Process that has it open; 0: none is known.
    """

    conversation_id: str
    path: bytes
    modified_ns: int | None
    complete: bool
    in_use_pid: int


@contextmanager
def failures() -> Iterator[None]:
    """Turn what the system reports inside into a failure of the table: a link into `symlink`, the rest by `from_os`."""
    try:
        yield
    except LinkError as error:
        path = os.fsencode(error.filename)
        raise _symlink([path], f"{printable(path)} is a symbolic link on the way to the session") from None
    except OSError as error:
        failure = from_os(error)
        for note in getattr(error, "__notes__", ()):
            failure.add_note(note)
        raise failure from None


def open_cli_home(sandbox: Sandbox, place: Place) -> Directory | None:
    """Open the CLI home of a place; None when it does not exist. The caller closes it.

    It is named by the profile's variable when the place, or else the daemon's environment, sets that to something, and
    otherwise lies in the agent home. Its `path` has no links left.

    Raises:
        SessionError: `root_symlink`: it is a link and the place does not accept that; `symlink`: a link on the way.
        WorkspaceError: `unsafe_path`, `outside_roots`, `access`.
    """
    with failures():
        root, relative = _locate_cli_home(sandbox, place.cli_home)
        try:
            return root.directory(relative)
        except FileNotFoundError:
            return None


def make_cli_home(sandbox: Sandbox, place: Place, owner: tuple[int, int] | None) -> Directory:
    """Open the CLI home of a place, creating what of its path is missing. The caller closes it.

    Args:
        sandbox: Where it lies.
        place: Names it.
        owner: User and group id of directories that are created; None: the daemon's own.

    Raises:
        SessionError: `root_symlink`, `symlink`.
        WorkspaceError: `unsafe_path`, `outside_roots`, `access`.
    """
    with failures():
        root, relative = _locate_cli_home(sandbox, place.cli_home)
        return root.make_directories(relative, owner=owner)


def find_sessions(cli_home: Directory, profile: Profile, conversation_id: str = "") -> list[Found]:
    """Find the directories of one session, or of all, sorted by path. Nothing below them is looked at.

    Without an id, links are passed over. With an id, a link of that name is refused, and so are links among the buckets
    when no real bucket has the id: the session may lie behind one, and none is followed to find out.

    Raises:
        ConfigurationError: `invalid_id`.
        SessionError: `symlink`, with all links concerned.
        WorkspaceError: `access`.
    """
    wanted = check_conversation_id(conversation_id).encode() if conversation_id else b""
    sessions = profile.sessions.encode()
    with failures():
        try:
            folder = cli_home.directory(sessions)
        except (FileNotFoundError, NotADirectoryError):
            return []
        with folder:
            buckets, bucket_links = _buckets(folder) if profile.buckets else ([b""], [])
            found: list[Found] = []
            links: list[bytes] = []
            for bucket in buckets:
                names, linked = _entries_of(folder, bucket, wanted)
                links += [folder.join(os.path.join(bucket, name)) for name in linked]
                found += [
                    Found(name.decode(), os.path.join(sessions, bucket, name), bucket or None)
                    for name in names
                    if CONVERSATION_ID.fullmatch(name.decode("ascii", "replace"))
                ]
            if wanted and not found:
                links += [folder.join(name) for name in bucket_links]
    if wanted and links:
        raise _symlink(links, f"the session {conversation_id} is, or may lie behind, a symbolic link")
    return sorted(found, key=lambda item: item.relative)


def only_session(cli_home: Directory, profile: Profile, conversation_id: str) -> Found:
    """Find the one directory of a session.

    Raises:
        ConfigurationError: `invalid_id`.
        SessionError: `not_found`; `ambiguous` with all candidates; `symlink`.
    """
    found = find_sessions(cli_home, profile, check_conversation_id(conversation_id))
    if not found:
        raise not_found(profile, conversation_id, cli_home.join(profile.sessions.encode()))
    if len(found) > 1:
        raise SessionError(
            "ambiguous",
            f"{len(found)} directories have the {profile.format} session {conversation_id}",
            hint="move or remove all but the one that is meant",
            offenders=(Offender(printable(cli_home.join(one.relative)), "has this session") for one in found),
        )
    return found[0]


def not_found(profile: Profile, conversation_id: str, path: bytes) -> SessionError:
    """Return the failure that says where a session was looked for in vain."""
    return SessionError(
        "not_found",
        f"no {profile.format} session {conversation_id} is in {printable(path)}",
        hint=f"check the id, the home, and the variable {profile.root_variable} of the CLI's environment"
        if profile.root_variable
        else "check the id and the home",
        facts={"id": conversation_id, "path": printable(path)},
    )


def cli_home_path(sandbox: Sandbox, place: Place) -> bytes:
    """Return the absolute path that names the CLI home of a place; whether it exists is not asked.

    Raises:
        WorkspaceError: `unsafe_path`: the variable holds no plain absolute path.
    """
    return _path_of(sandbox, place.cli_home)


def resolve_cli_home(sandbox: Sandbox, cli_home: CliHome) -> tuple[bytes, bool]:
    """Return the absolute path of a CLI home, its own link resolved, and whether a directory is there.

    Raises:
        ConfigurationError: `invalid_argument`: the name of its variable or directory is none.
        SessionError: `root_symlink`: it is a link and that is not accepted; `symlink`: a link on the way.
        WorkspaceError: `unsafe_path`, `outside_roots`, `access`; `not_found`: something else is there.
    """
    if cli_home.variable and not VARIABLE.fullmatch(cli_home.variable):
        raise ConfigurationError("invalid_argument", f"'{printable(cli_home.variable)}' is not a variable's name")
    if cli_home.directory and (problem := path_problem(cli_home.directory.encode())):
        raise ConfigurationError(
            "invalid_argument",
            f"the CLI home '{printable(cli_home.directory)}' below the agent home {problem}",
            hint="give a relative path without '..'",
        )
    with failures():
        root, relative = _locate_cli_home(sandbox, cli_home)
        try:
            root.directory(relative).close()
        except FileNotFoundError:
            return root.join(relative), False
        return root.join(relative), True


def list_sessions(sandbox: Sandbox, place: Place) -> Iterator[Summary]:
    """Yield all sessions of a place's format, by path. One that goes away meanwhile is passed over.

    Raises:
        SessionError: `root_symlink`, `symlink`: a link on the way to the folder of the sessions.
        WorkspaceError: `unsafe_path`, `outside_roots`, `access`.
    """
    cli_home = open_cli_home(sandbox, place)
    if cli_home is None:
        return
    with cli_home:
        for found in find_sessions(cli_home, place.profile):
            with failures():
                try:
                    session = cli_home.directory(found.relative)
                except (FileNotFoundError, NotADirectoryError, LinkError):
                    continue
                with session:
                    summary = _summarize(session, place.profile, found)
            yield summary


def _summarize(session: Directory, profile: Profile, found: Found) -> Summary:
    modified = [moment for path in profile.required if (moment := _modified_ns(session, path.encode())) is not None]
    return Summary(
        conversation_id=found.conversation_id,
        path=session.path,
        modified_ns=max(modified, default=None),
        complete=len(modified) == len(profile.required),
        in_use_pid=in_use_pid(session, profile),
    )


def _modified_ns(session: Directory, path: bytes) -> int | None:
    try:
        status = session.stat(path)
    except (FileNotFoundError, NotADirectoryError, LinkError):
        return None
    return status.st_mtime_ns if stat.S_ISREG(status.st_mode) else None


def _path_of(sandbox: Sandbox, cli_home: CliHome) -> bytes:
    name = cli_home.variable
    value = cli_home.variables.get(name, sandbox.environment.get(name)) if name else None
    default = os.path.join(sandbox.home, cli_home.directory.encode())
    return check_absolute(os.fsencode(value) if value else default)


def _locate_cli_home(sandbox: Sandbox, cli_home: CliHome) -> tuple[Directory, bytes]:
    """Return the root that holds the CLI home and the path below it; its own link is resolved where accepted."""
    root, relative = sandbox.roots.locate(_path_of(sandbox, cli_home))
    try:
        is_link = stat.S_ISLNK(root.stat(relative).st_mode)
    except FileNotFoundError:
        is_link = False
    if not is_link:
        return root, relative
    path = root.join(relative)
    if not cli_home.follow_root_link:
        raise SessionError(
            "root_symlink",
            f"the CLI home {printable(path)} is a symbolic link",
            hint="accept it with follow_root_link, or name the directory it leads to",
            facts={"path": printable(path)},
            offenders=[Offender(printable(path), "is a symbolic link")],
        )
    # Whatever this path leads to by the time it is opened: that happens below a root, without following anything.
    return sandbox.roots.locate(os.path.realpath(path))


def _buckets(folder: Directory) -> tuple[list[bytes], list[bytes]]:
    directories, links = _entries(folder, folder.names())
    return [name for name in directories if not name.startswith(STAGING_PREFIX.encode())], links


def _entries_of(folder: Directory, bucket: bytes, wanted: bytes) -> tuple[list[bytes], list[bytes]]:
    try:
        held = folder.directory(bucket)
    except (FileNotFoundError, NotADirectoryError):
        return [], []
    with held:
        return _entries(held, [wanted] if wanted else held.names())


def _entries(folder: Directory, names: Iterable[bytes]) -> tuple[list[bytes], list[bytes]]:
    """Return which of the names are directories, and which are links."""
    directories: list[bytes] = []
    links: list[bytes] = []
    for name in names:
        try:
            mode = folder.stat(name).st_mode
        except FileNotFoundError:
            continue
        if stat.S_ISDIR(mode):
            directories.append(name)
        elif stat.S_ISLNK(mode):
            links.append(name)
    return directories, links


def _symlink(paths: Iterable[bytes], message: str) -> SessionError:
    return SessionError(
        "symlink",
        message,
        hint="replace the link by the directory it leads to",
        offenders=(Offender(printable(path), "is a symbolic link") for path in paths),
    )
