"""A terminal for a CLI's own screen: type, and wait until something is shown."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

_CONTROL = re.compile(r"\x1b\[[0-9;?<>=]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[^\[\]]")


class Terminal:
    """A program on a pseudo-terminal for the time of a `with` block, ended by its process group.

    Args:
        command: Program and arguments.
        environment: All of it.
        folder: Where it runs.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], folder: Path) -> None:
        self._screen, other = pty.openpty()
        fcntl.ioctl(self._screen, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 150, 0, 0))
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            env={**environment, "TERM": "xterm-256color"},
            stdin=other,
            stdout=other,
            stderr=other,
            start_new_session=True,
        )
        os.close(other)
        self._shown = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._screen)

    def type(self, keys: str) -> None:
        """Type; what had been shown before is forgotten."""
        self._shown = b""
        os.write(self._screen, keys.encode())

    def wait_for(self, text: str, *, seconds: float = 30) -> None:
        """Wait until a text has been shown since the last key, whatever blanks and colours are in it."""
        deadline = time.monotonic() + seconds
        wanted = "".join(text.split())
        while wanted not in self._plain():
            left = deadline - time.monotonic()
            assert left > 0, f"{text!r} was not shown; the screen: {self._plain()[-2000:]}"
            if select.select([self._screen], [], [], left)[0]:
                self._shown += os.read(self._screen, 1 << 16)

    def _plain(self) -> str:
        return "".join(_CONTROL.sub("", self._shown.decode("utf-8", "replace")).split())
