"""The environment of a turn's commands, from its layers.

The one rule: values are handed on and never told: not in an error, not in a log.
"""

from __future__ import annotations

import errno
import os
import stat
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

from dotenv.parser import parse_stream

from host_client.errors import ConfigurationError, WorkspaceError, printable
from host_client.session.failure import host_failure
from host_client.session.folder import Folder
from sandbox_api.names import VARIABLE

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE = Path(".outpost/.env")
"""Below the repository: variables for every agent that works on it."""

MAX_FILE_BYTES = 1 << 20
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def repository_variables(repository: Path | None, host: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return what the repository's `.outpost/.env` sets; blocks.

    A value is what stands there: nothing is put in for `$NAME`. An empty one is the host's own value of that name;
    where the host has none, the name is left out.

    Args:
        repository: Repository on the host; None, or one without that file: nothing is set.
        host: Environment of the host; None: of this process.

    Raises:
        ConfigurationError: `invalid_argument`: the file is too large, no UTF-8, has a line that means nothing, or sets
            what is no variable.
        WorkspaceError: `unsafe_path`: the file or its folder is a link; `access`, `not_a_file`.
    """
    text = _read(repository) if repository else None
    if not text:
        return {}
    known = os.environ if host is None else host
    variables = {}
    for name, value in _parsed(text).items():
        if not VARIABLE.fullmatch(name) or "\0" in (value or ""):
            shown = printable(name)[:80]
            raise ConfigurationError("invalid_argument", f"{FILE} sets '{shown}', which cannot be a variable")
        if value or known.get(name):
            variables[name] = value or known[name]
    return variables


def layered(
    repository: Mapping[str, str], provider: Mapping[str, str], agent: Mapping[str, str], agent_name: str
) -> dict[str, str]:
    """Return the environment of an agent's commands: of one name, the last layer's value.

    Raises:
        ConfigurationError: `variable_collision`: provider and agent set the same name.
    """
    both = sorted(provider.keys() & agent.keys())
    if both:
        raise ConfigurationError(
            "variable_collision",
            f"the provider of the sandbox and {agent_name} both set {', '.join(both)[:300]}",
            hint="set each variable in one place",
            facts={"variables": ",".join(both)[:1000]},
        )
    return {**repository, **provider, **agent}


def _parsed(text: str) -> dict[str, str | None]:
    # `dotenv_values` would pass over a line that it does not understand, with a word to the log of this process.
    values = {}
    for binding in parse_stream(StringIO(text)):
        if binding.error:
            raise ConfigurationError(
                "invalid_argument",
                f"line {binding.original.line} of {FILE} sets no variable",
                hint="a line is NAME=VALUE, with quotes around values that have spaces or a #",
                facts={"line": str(binding.original.line)},
            )
        if binding.key is not None:
            values[binding.key] = binding.value
    return values


def _read(repository: Path) -> str | None:
    """Return the text of the file; None when there is none."""
    host_path = repository / FILE
    try:
        with Folder.open(repository, FILE.parts[:-1], create=False) as folder:
            fd = os.open(FILE.name, _FLAGS, dir_fd=folder.fd)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise host_failure(error, host_path) from None
    except WorkspaceError as error:
        if error.reason == "not_found":
            return None
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)  # which `open` would refuse in words of its own where it is a directory
        raise host_failure(OSError(errno.ENXIO, ""), host_path)
    with open(fd, "rb") as file:  # noqa: PTH123  a descriptor
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise ConfigurationError(
            "invalid_argument", f"{printable(str(host_path))} is larger than {MAX_FILE_BYTES} bytes"
        )
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ConfigurationError("invalid_argument", f"{printable(str(host_path))} is no UTF-8") from None
