"""Who owns what is written. Set through descriptors, never by path."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from sandbox_api.errors import ConfigurationError

if TYPE_CHECKING:
    from typing import TypeAlias

Owner: TypeAlias = "tuple[int, int]"
"""User and group id."""

_CAP_CHOWN = 1 << 0


def check_owner(owner: Owner | None) -> None:
    """Refuse an owner this process may not give files to, before anything is changed.

    Raises:
        ConfigurationError: `owner`.
    """
    if owner is None or _may_give_away():
        return
    uid, gid = owner
    if uid != os.geteuid() or gid not in {os.getegid(), *os.getgroups()}:
        raise _refuse(owner)


def give(fd: int, owner: Owner | None) -> None:
    """Set the owner of an open file or directory; None leaves it with this process.

    Raises:
        ConfigurationError: `owner`: the kernel refuses, for example in a user namespace without that id.
    """
    if owner is None:
        return
    try:
        os.fchown(fd, *owner)
    except OSError as error:
        if error.errno in (errno.EPERM, errno.EINVAL):
            raise _refuse(owner) from None
        raise


def _may_give_away() -> bool:
    # Root of a container without CAP_CHOWN may not, and a process with it need not be root.
    with open("/proc/self/status", "rb") as status:
        for line in status:
            if line.startswith(b"CapEff:"):
                return bool(int(line.split()[1], 16) & _CAP_CHOWN)
    return False


def _refuse(owner: Owner) -> ConfigurationError:
    return ConfigurationError(
        "owner",
        f"the daemon, user {os.geteuid()}, may not give files to user {owner[0]}, group {owner[1]}",
        hint="run the daemon as root or as that user, or leave the owner out",
        facts={"uid": str(owner[0]), "gid": str(owner[1])},
    )
