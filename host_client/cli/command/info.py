"""`outpost info`: who answers."""

from __future__ import annotations

import click

from host_client.cli.options import json_option
from host_client.cli.output import Output, size
from host_client.sandbox.sandbox import connect


@click.command()
@click.argument("target")
@json_option
async def info(target: str, *, as_json: bool) -> None:
    """Tell what the daemon at TARGET is and what it can do."""
    async with connect(target) as sandbox:
        told = await sandbox.info()
    system = " ".join(filter(None, ("Linux", told.kernel, told.machine, told.c_library)))
    document: dict[str, object] = {
        "version": told.version,
        "contracts": list(told.contracts),
        "capabilities": sorted(told.capabilities),
        "home": str(told.home),
        "workspace": str(told.workspace),
        "roots": [str(root) for root in told.roots],
        "uid": told.uid,
        "gid": told.gid,
        "max_bytes": told.limits.max_bytes,
        "max_files": told.limits.max_files,
        "instance_id": told.instance_id,
        "time": told.time.isoformat(),
        "kernel": told.kernel,
        "machine": told.machine,
        "c_library": told.c_library,
    }
    Output(as_json).result(
        document,
        [
            f"sandbox-agent {told.version}, {', '.join(told.contracts)}",
            f"system     {system}, user {told.uid}:{told.gid}",
            f"home       {told.home}",
            f"workspace  {told.workspace}",
            *(f"root       {root}" for root in told.roots),
            f"limits     {size(told.limits.max_bytes)}, {told.limits.max_files} files",
            f"can        {', '.join(sorted(told.capabilities))}",
        ],
    )
