"""Tell what lies on a mount of its own. Device numbers do not: a bind mount has those of its file system."""

from __future__ import annotations

_KEY = b"mnt_id:"


def mount_id(fd: int) -> int:
    """Return the number of the mount that an open descriptor, also one of `O_PATH`, was reached by; 0: not known."""
    try:
        with open(f"/proc/self/fdinfo/{fd}", "rb", buffering=0) as info:
            lines = info.read(4096).split(b"\n")
    except FileNotFoundError:
        return 0
    return next((int(line.removeprefix(_KEY)) for line in lines if line.startswith(_KEY)), 0)
