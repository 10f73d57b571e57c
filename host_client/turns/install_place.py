"""What both kinds of installation ask: whether a program can be run, and which entry is for a machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from host_client.agents.tool import for_platform
from host_client.errors import ProcessError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import PurePosixPath

    from host_client.sandbox.sandbox import Sandbox

T = TypeVar("T")


async def usable(sandbox: Sandbox, program: PurePosixPath) -> PurePosixPath | None:
    """Return the program when it is there and can be run."""
    try:
        return await sandbox.processes.find_program(str(program))
    except ProcessError as error:
        if error.reason != "not_executable":
            raise
        return None


def choice(choices: Mapping[str, T], platform: tuple[str, str], what: str) -> T:
    """Return what is named for a machine and a C library.

    Raises:
        ProcessError: `install_failed`: nothing is; names those there are.
    """
    chosen = for_platform(choices, *platform)
    if chosen is None:
        raise ProcessError(
            "install_failed",
            f"the catalogue has {what} not for {'-'.join(platform)}",
            hint=f"it has it for {', '.join(sorted(choices))}; install it in the sandbox's image",
            facts={"platform": "-".join(platform)},
        )
    return chosen
