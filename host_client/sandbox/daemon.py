"""What a daemon says about itself and its sandbox."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from host_client.errors import SessionError, UnavailableError
from host_client.sandbox import reply
from host_client.sandbox.request import expressible
from sandbox_api.limits import Limits
from sandbox_api.v1 import daemon_pb2
from sandbox_api.wire import pack_profile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from pathlib import PurePosixPath

    from host_client.sandbox.connection import Connection
    from sandbox_api.profile import Profile

CONTRACT = "sandbox_api.v1"

Level = Literal["ok", "warning", "problem"]
_LEVELS: dict[int, Level] = {
    daemon_pb2.DiagnoseResponse.LEVEL_OK: "ok",
    daemon_pb2.DiagnoseResponse.LEVEL_WARNING: "warning",
}


@dataclass(frozen=True, slots=True)
class Info:
    """What a daemon is and what it can do.

    Attributes:
        version: Of its distribution, for people; look at `capabilities` instead of comparing.
        contracts: Contract packages it serves.
        capabilities: Words for what it can do.
        home: The agent home, as its operator named it.
        workspace: The workspace, links resolved.
        roots: Below these it reads and writes.
        uid: User it runs as.
        gid: Group it runs as.
        limits: Its own limits of a bundle.
        instance_id: Random for each start.
        time: The sandbox's clock.
        kernel: Kernel release, for people.
        machine: Machine as `uname -m` tells it, such as `x86_64`; empty: the daemon is too old to tell.
        c_library: `glibc` or `musl`; empty: unknown.
    """

    version: str
    contracts: Sequence[str]
    capabilities: frozenset[str]
    home: PurePosixPath
    workspace: PurePosixPath
    roots: Sequence[PurePosixPath]
    uid: int
    gid: int
    limits: Limits
    instance_id: str
    time: datetime
    kernel: str
    machine: str = ""
    c_library: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing a daemon looked at.

    Attributes:
        check: Stable machine word.
        format: Format it belongs to; empty for the daemon itself.
        level: `ok`, `warning` (works, with a drawback) or `problem` (a call will fail).
        message: One sentence for people.
        hint: What to do about it; empty when all is well.
    """

    check: str
    format: str
    level: Level
    message: str
    hint: str


@dataclass(frozen=True, slots=True)
class ResolvedHome:
    """Where a CLI keeps its state in a sandbox.

    Attributes:
        path: Absolute, links of the home itself resolved.
        exists: Whether it is there yet.
    """

    path: PurePosixPath
    exists: bool


async def info(connection: Connection, *, seconds: float | None = None) -> Info:
    """Ask a daemon who it is, waiting at most that long.

    Raises:
        UnavailableError: `unreachable`; `unsupported`: it does not serve our contract.
        SessionError: `protocol`: the answer cannot be.
    """
    answer = await connection.ask(
        "DaemonService/GetInfo", daemon_pb2.GetInfoRequest(), daemon_pb2.GetInfoResponse, seconds=seconds
    )
    if CONTRACT not in answer.contracts:
        raise UnavailableError("unsupported", f"the daemon at {connection.target} does not serve {CONTRACT}")
    if not answer.limits.max_bytes or not answer.limits.max_files:
        raise SessionError("protocol", "the daemon has no limits")
    return Info(
        version=reply.text(answer.version),
        contracts=tuple(map(reply.text, answer.contracts)),
        capabilities=frozenset(map(reply.text, answer.capabilities)),
        home=reply.sandbox_path(answer.home, "home"),
        workspace=reply.sandbox_path(answer.workspace, "workspace"),
        roots=tuple(reply.sandbox_path(root, "root") for root in answer.roots),
        uid=answer.uid,
        gid=answer.gid,
        limits=Limits(answer.limits.max_bytes, answer.limits.max_files),
        instance_id=reply.text(answer.instance_id),
        time=reply.moment(answer.time),
        kernel=reply.text(answer.kernel),
        machine=reply.text(answer.machine),
        c_library=reply.text(answer.c_library),
    )


async def diagnose(
    connection: Connection, profiles: Sequence[Profile], variables: Mapping[str, str] | None
) -> Sequence[Finding]:
    """Ask a daemon what would make later calls fail.

    Raises:
        ConfigurationError: `invalid_profile`.
        UnavailableError: any reason.
    """
    with expressible():
        request = daemon_pb2.DiagnoseRequest(profiles=map(pack_profile, profiles), variables=variables)
    answer = await connection.ask("DaemonService/Diagnose", request, daemon_pb2.DiagnoseResponse)
    return tuple(
        Finding(
            check=reply.text(finding.check),
            format=reply.text(finding.format),
            level=_LEVELS.get(finding.level, "problem"),
            message=reply.text(finding.message),
            hint=reply.text(finding.hint),
        )
        for finding in answer.findings
    )


async def resolve_home(
    connection: Connection,
    variable: str | None,
    directory: str,
    variables: Mapping[str, str] | None,
    *,
    follow_root_link: bool,
) -> ResolvedHome:
    """Ask a daemon where a CLI has its home; see `Sandbox.resolve_home`."""
    with expressible():
        request = daemon_pb2.ResolveHomeRequest(
            variable=variable or "",
            directory=directory,
            variables=variables,
            follow_root_link=follow_root_link,
        )
    answer = await connection.ask("DaemonService/ResolveHome", request, daemon_pb2.ResolveHomeResponse)
    return ResolvedHome(reply.sandbox_path(answer.home, "CLI home"), answer.exists)
