"""Find the program that a name means, and say why there is none."""

from __future__ import annotations

import os
import stat

from sandbox_api.errors import ProcessError, printable

_DEFAULT_PATH = b"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where programs are looked for when the environment has no PATH."""


def find_program(name: bytes, path: bytes | None, directory_fd: int) -> bytes | None:
    """Return where a program is, relative or absolute as the name or PATH has it; None: there is none.

    Args:
        name: A path when it has a slash, else a name to look for in PATH.
        path: PATH; None: the usual directories.
        directory_fd: What relative paths are relative to.

    Raises:
        ProcessError: `not_executable`: what is there may not be executed, or is no file.
    """
    refused = b""
    for candidate in _candidates(name, path):
        try:
            found = os.stat(candidate, dir_fd=directory_fd)
        except (OSError, ValueError):
            continue
        if stat.S_ISREG(found.st_mode) and os.access(candidate, os.X_OK, dir_fd=directory_fd):
            return candidate
        # A directory on PATH that has the program's name is nothing that anybody meant.
        if b"/" in name or stat.S_ISREG(found.st_mode):
            refused = refused or candidate
    if refused:
        raise not_executable(refused)
    return None


def not_executable(path: bytes) -> ProcessError:
    """Return the failure for what cannot be executed."""
    return ProcessError(
        "not_executable",
        f"'{printable(path)}' cannot be executed",
        hint="it must be a program, or a script whose first line names one, and its mode must allow it",
        facts={"path": printable(path)},
    )


def no_such_program(name: bytes) -> ProcessError:
    """Return the failure for a program that is not there."""
    where = "there is no" if b"/" in name else "PATH has no"
    return ProcessError("no_such_program", f"{where} program '{printable(name)}'", facts={"program": printable(name)})


def _candidates(name: bytes, path: bytes | None) -> list[bytes]:
    if b"/" in name:
        return [name]
    folders = (_DEFAULT_PATH if path is None else path).split(b":")
    # An empty entry is the working directory.
    return [(folder or b".") + b"/" + name for folder in folders]
