"""How the `outpost` command starts: an interrupt while its modules load, which takes a while, ends it in one line.

A package of its own: whatever is imported from `host_client` loads all of that first.
"""

from __future__ import annotations

import os
import signal

_STDERR = 2
_INTERRUPTED = 130


def main() -> int:
    """Load the command and run it; return its exit status."""
    usual = signal.getsignal(signal.SIGINT)
    if usual is signal.default_int_handler:  # else whoever started us has it ignored
        signal.signal(signal.SIGINT, _end)
    from host_client.cli.__main__ import main as run  # noqa: PLC0415 - this is what takes a while

    signal.signal(signal.SIGINT, usual)
    return run()


def _end(*_: object) -> None:
    """End at once: an exception would come out of a module that is half loaded, and there is nothing to wind up."""
    try:
        os.write(_STDERR, b"outpost: interrupted; nothing was left half done\n")
    finally:
        os._exit(_INTERRUPTED)
