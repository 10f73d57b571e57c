"""The start of the `outpost` command: an interrupt while its modules load."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

_INTERRUPTED = """
import os, signal, sys
import outpost_command

class Finder:
    def find_spec(self, name, *_):
        if name == "host_client.sandbox.connection":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder())
{before}
status = outpost_command.main()
assert signal.getsignal(signal.SIGINT) is {handler}
sys.exit(status)
"""


def _start(before: str, handler: str = "signal.default_int_handler") -> subprocess.CompletedProcess[bytes]:
    code = _INTERRUPTED.format(before=before, handler=handler)
    return subprocess.run([sys.executable, "-c", code, "--version"], capture_output=True, check=False)


def test_an_interrupt_while_modules_load_is_one_line() -> None:
    """No traceback, and the exit status of every interrupt."""
    done = _start("")
    assert (done.returncode, done.stdout) == (130, b"")
    assert done.stderr == b"outpost: interrupted; nothing was left half done\n"


def test_an_interrupt_that_is_ignored_stays_so() -> None:
    """What a shell starts in the background is not ended by what is typed meanwhile."""
    done = _start("signal.signal(signal.SIGINT, signal.SIG_IGN)", "signal.SIG_IGN")
    assert (done.returncode, done.stderr) == (0, b"")


def test_once_loaded_an_interrupt_is_handled_as_ever() -> None:
    """The command's own handling, which winds up what is under way, finds the usual handler."""
    done = _start("sys.meta_path.pop(0)")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"outpost, version ")


def test_the_installed_command_starts_there() -> None:
    """The entry point is the function that these tests call."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["scripts"]["outpost"] == "outpost_command:main"
