"""Private daemons of a connection: started, ended and reaped with it, whatever happens."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import pytest

from host_client.errors import (
    ConfigurationError,
    UnavailableError,
)
from host_client.sandbox.place import Place
from host_client.sandbox.sandbox import connect
from host_client.sandbox.target import LocalTarget
from support.bundle_end import PROFILE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from host_client.sandbox.sandbox import Sandbox

pytestmark = pytest.mark.anyio

PLACE = Place(PROFILE, "S1")
CONTENTS = {b"a": b"first", b"b/c": b"second" * 500_000, b"b/empty": b""}


async def test_local_daemon_ends_with_its_connection(tmp_path: Path) -> None:
    """A private daemon serves the home, and its process, socket and folder are gone afterwards."""
    async with connect(f"local:{tmp_path}") as sandbox:
        assert sandbox.target == f"local:{tmp_path}"
        assert sandbox.home == sandbox.root == PurePosixPath(tmp_path)
        pid, socket = own_daemon()
        assert socket.is_socket()
        assert socket.parent.stat().st_mode & 0o077 == 0
    assert not is_alive(pid)
    assert not socket.parent.exists()


async def test_local_daemon_does_not_get_the_key_of_an_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs there as this user could read it from the daemon's environment."""
    monkeypatch.setenv("OUTPOST_ARCHIVE_KEY", "a-secret")
    monkeypatch.setenv("OTHER", "no secret")
    async with connect(f"local:{tmp_path}"):
        pid, _ = own_daemon()
        environment = Path(f"/proc/{pid}/environ").read_bytes()  # noqa: ASYNC240 - no disk
    assert b"a-secret" not in environment
    assert b"OTHER=no secret" in environment


async def test_local_daemon_ends_what_left_its_group(tmp_path: Path) -> None:
    """A sandbox that is a folder of this machine leaves nothing running on it, services of its own included."""
    service = "setsid sh -c 'echo $$ > alone; exec sleep 1000' > /dev/null 2>&1 &"
    async with connect(f"local:{tmp_path}") as sandbox:
        done = await sandbox.run(["sh", "-c", f"{service} until [ -s alone ]; do sleep 0.01; done; cat alone"])
        ended = os.pidfd_open(int(done.check().stdout))
    try:
        await asyncio.wait_for(readable(ended), 20)
    finally:
        os.close(ended)


async def test_local_daemon_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    """A parent that is killed leaves no daemon behind, and of its private folder an empty one."""
    code = (
        "import asyncio, sys\n"
        "from host_client.sandbox.sandbox import connect\n"
        "async def main():\n"
        "    async with connect(sys.argv[1]):\n"
        "        print('connected', flush=True)\n"
        "        await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    with started([sys.executable, "-c", code, f"local:{tmp_path}"]) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"connected\n"
        pid, socket = own_daemon(parent.pid)
        ended = os.pidfd_open(pid)
        parent.kill()
    try:
        await asyncio.wait_for(readable(ended), 20)
    finally:
        os.close(ended)
    socket.parent.rmdir()  # which fails when anything is in it


async def test_local_daemon_is_ended_when_connecting_is_cancelled(tmp_path: Path) -> None:
    """A cancel while the daemon starts leaves nothing; the guards of all tests look for the process."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05), connect(f"local:{tmp_path}"):
            await asyncio.Event().wait()


async def test_local_daemon_that_dies_is_unreachable(tmp_path: Path) -> None:
    """A daemon that is killed under a connection makes the next call fail by reason."""
    async with connect(f"local:{tmp_path}") as sandbox:
        pid, _ = own_daemon()
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(UnavailableError) as caught:
            await call_for_ever(sandbox)
    assert caught.value.reason == "unreachable"


async def test_local_daemon_that_does_not_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the process ends before it serves, the end of its standard error is in the failure."""
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(UnavailableError, match="did not start: it said nothing") as caught:
        async with connect(f"local:{tmp_path}"):
            pass
    assert (caught.value.reason, caught.value.facts["exit_status"]) == ("unreachable", "1")
    talking = tmp_path / "talking"
    talking.write_text("#!/bin/sh\necho 'no module' >&2\nexit 3\n")
    talking.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(talking))
    with pytest.raises(UnavailableError, match="no module"):
        async with connect(f"local:{tmp_path}"):
            pass


async def test_workspace_with_a_module_of_our_name_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A local daemon is ours even when the current directory, maybe an agent's workspace, has a module of its name."""
    (tmp_path / "sandbox_agent.py").write_text("raise SystemExit('ran')")
    monkeypatch.chdir(tmp_path)
    async with connect("local:."):
        pass


async def test_local_home_must_exist(tmp_path: Path) -> None:
    """A home that is not there is refused in either form of the target."""
    missing = tmp_path / "missing"
    for target in (f"local:{missing}", LocalTarget(missing, tmp_path)):
        with pytest.raises(ConfigurationError) as caught:
            async with connect(target):
                pass
        assert caught.value.reason == "invalid_target"


def started(command: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start a process whose output is read."""
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def own_daemon(parent: int | None = None) -> tuple[int, Path]:
    """Return the only daemon among a process's children, ours by default, and its socket."""
    found = [(pid, command_of(pid)) for pid in children(parent or os.getpid())]
    ((pid, command),) = [(pid, command) for pid, command in found if "sandbox_agent" in command]
    (socket,) = [Path(word[5:]) for word in command if word.startswith("unix:")]
    return pid, socket


def is_alive(pid: int) -> bool:
    """Tell whether a process is there, a zombie included."""
    return Path(f"/proc/{pid}").exists()


async def call_for_ever(sandbox: Sandbox) -> None:
    """Call until a call fails."""
    while True:
        await sandbox.info()


def children(pid: int) -> list[int]:
    """Return the child processes of a process."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def command_of(pid: int) -> list[str]:
    """Return the command line of a process."""
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")


async def readable(descriptor: int) -> None:
    """Wait until a descriptor can be read."""
    loop = asyncio.get_running_loop()
    event = asyncio.Event()
    loop.add_reader(descriptor, event.set)
    try:
        await event.wait()
    finally:
        loop.remove_reader(descriptor)
