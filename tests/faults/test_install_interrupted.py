"""Installations that are interrupted, on either side and at any moment, or that several clients want at once."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import AsyncExitStack
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import pytest

from host_client import connect
from host_client.errors import LimitError, OutpostError, ProcessError, UnavailableError
from host_client.turns import install_queue
from host_client.turns.install import ensure
from host_client.turns.install_npm import NpmInstallation
from support.archive_server import archive_server
from support.filesystem import mounted
from support.install_scene import INSTALLS, LOCK, archived, install_scene, package
from support.wait import until, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from host_client import Sandbox
    from support.install_scene import InstallScene

pytestmark = pytest.mark.anyio

CATALOGUE = {"tool": package()}

# A client of its own, which a test may kill: it keeps its place in the queue for a second.
CLIENT = """
import asyncio, sys
from host_client import connect
from host_client.agents.catalogue import NpmPackage
from host_client.turns import install_queue
from host_client.turns.install import ensure

install_queue.IDLE_SECONDS, install_queue.BEAT_SECONDS = 1.0, 0.1
catalogue = {"tool": NpmPackage(package="tool", version="1.2.3", program="tool", lock=sys.argv[2])}

async def main():
    async with connect(sys.argv[1]) as sandbox:
        print(await ensure(sandbox, "tool", "tool", catalogue=catalogue))

asyncio.run(main())
"""


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[InstallScene]:
    """A daemon of this test alone."""
    with install_scene(tmp_path) as made:
        yield made


class Held:
    """An npm that installs one half, waits, and installs the other."""

    def __init__(self, scene: InstallScene, folder: Path) -> None:
        self._begun, self._go = folder / "begun", folder / "go"
        scene.npm(
            f"mkdir -p node_modules/.bin; echo half > node_modules/.bin/tool; chmod +x node_modules/.bin/tool\n"
            f"echo $$ > {self._begun}.draft; mv {self._begun}.draft {self._begun}\n"
            f"while [ ! -e {self._go} ]; do sleep 0.02; done\nrm -r node_modules\n{INSTALLS}"
        )

    async def begun(self) -> int:
        """Wait until it is in the middle; return its number."""
        await asyncio.to_thread(wait_until, self._begun.exists, "npm")
        return int(self._begun.read_text())

    def go_on(self) -> None:
        """Let it go on."""
        self._go.touch()


@pytest.fixture
def held(scene: InstallScene, tmp_path: Path) -> Iterator[Held]:
    """An npm that waits in the middle; nothing waits any more after the test."""
    holding = Held(scene, tmp_path)
    yield holding
    holding.go_on()


def running_client(scene: InstallScene) -> subprocess.Popen[bytes]:
    """Start a client that installs."""
    command = [sys.executable, "-c", CLIENT, scene.daemon.target, LOCK]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL)


def is_gone(pid: int) -> bool:
    """Tell whether a process is over."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def installed(sandbox: Sandbox) -> str:
    """Get the tool."""
    return await ensure(sandbox, "tool", "tool", catalogue=CATALOGUE)


async def output_of(sandbox: Sandbox, program: str) -> bytes:
    """Run a program."""
    return (await sandbox.run([program])).check().stdout


async def waiting(sandbox: Sandbox) -> int:
    """Count those who are in the queue."""
    states = await sandbox.processes.list()
    return sum(state.exit is None and state.id.startswith(install_queue.TICKET) for state in states)


async def until_waiting(sandbox: Sandbox, count: int) -> None:
    """Wait until that many are in the queue."""

    async def is_so() -> bool:
        return await waiting(sandbox) == count

    await until(is_so, f"{count} in the queue")


async def test_two_clients_install_once(scene: InstallScene, held: Held) -> None:
    """The second waits for the first and uses what is there then; the queue is empty afterwards."""
    async with connect(scene.daemon.target) as first, connect(scene.daemon.target) as second:
        async with asyncio.TaskGroup() as group:
            one = group.create_task(installed(first))
            await held.begun()
            two = group.create_task(installed(second))
            await until_waiting(second, 2)
            held.go_on()
        assert one.result() == two.result()
        assert await output_of(second, two.result()) == b"tool\n"
        assert await waiting(first) == 0
    assert len(scene.runs()) == 1


async def test_many_clients_install_once(scene: InstallScene) -> None:
    """Whoever begins at the same moment, in whatever order they come."""
    scene.npm()
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connect(scene.daemon.target)) for _ in range(6)]
        programs = await asyncio.gather(*map(installed, clients))
    assert len(set(programs)) == 1
    assert len(scene.runs()) == 1


async def test_a_place_in_the_queue_is_kept_by_signs_of_life(
    scene: InstallScene, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that is the place prints as long as its client lives, so its idle limit does not end it."""
    monkeypatch.setattr(install_queue, "BEAT_SECONDS", 0.01)
    async with connect(scene.daemon.target) as sandbox, asyncio.TaskGroup() as group:
        group.create_task(installed(sandbox))
        await held.begun()

        async def has_printed() -> bool:
            return any(state.stdout_bytes > 5 for state in await sandbox.processes.list())

        await until(has_printed, "signs of life")
        held.go_on()


async def test_a_cancel_ends_npm(scene: InstallScene, held: Held) -> None:
    """What it had written is not used, and the next installation is not kept waiting and clears it away."""
    async with connect(scene.daemon.target) as sandbox:
        task = asyncio.ensure_future(installed(sandbox))
        pid = await held.begun()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(wait_until, lambda: is_gone(pid), "the end of npm")
        assert await waiting(sandbox) == 0
        left = {path.parents[2] for path in scene.tools.rglob("node_modules/.bin/tool")}
        scene.npm()
        assert await output_of(sandbox, await installed(sandbox)) == b"tool\n"
        assert left
        assert not any(path.exists() for path in left)


async def test_a_cancel_at_any_call_leaves_nothing_half(scene: InstallScene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever question to the daemon is the last one, the tool is there as a whole or is installed from the start."""
    scene.npm(f"mkdir node_modules; echo half > node_modules/half\n{INSTALLS}")
    calls_count, is_cut = 0, True
    async with connect(scene.daemon.target) as other:
        while is_cut:
            async with connect(scene.daemon.target) as sandbox:
                is_cut = await _cut(sandbox, monkeypatch, calls_count)
            assert await output_of(other, await installed(other)) == b"tool\n"
            assert await waiting(other) == 0
            shutil.rmtree(scene.tools)
            calls_count += 1
    assert calls_count > 10


async def _cut(sandbox: Sandbox, patch: pytest.MonkeyPatch, calls_count: int) -> bool:
    """Cancel an installation at a call; return whether there were so many."""
    left = calls_count
    is_cut = False

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            nonlocal left, is_cut
            if not left and not is_cut:
                is_cut = True
                task.cancel()
            left -= 1
            return real(*arguments, **named)

        return call

    connection = sandbox.files._connection
    for name in ("ask", "open", "begin"):
        patch.setattr(connection, name, counted(getattr(connection, name)))
    task = asyncio.ensure_future(installed(sandbox))
    await asyncio.wait([task])
    assert task.cancelled() or await output_of(sandbox, task.result()) == b"tool\n"
    return is_cut


async def test_a_cancelled_wait_leaves_the_others(scene: InstallScene, held: Held) -> None:
    """Who does not want to wait any more goes, and nothing of the installation in progress with him."""
    async with connect(scene.daemon.target) as first, connect(scene.daemon.target) as second:
        task = asyncio.ensure_future(installed(first))
        await held.begun()
        other = asyncio.ensure_future(installed(second))
        await until_waiting(second, 2)
        other.cancel()
        with pytest.raises(asyncio.CancelledError):
            await other
        assert await waiting(first) == 1
        held.go_on()
        assert await output_of(first, await task) == b"tool\n"


async def test_a_killed_client_does_not_block(scene: InstallScene, held: Held) -> None:
    """Its place in the queue ends by itself; what its npm did on its own is never used."""
    with running_client(scene) as client:
        pid = await held.begun()
        client.kill()
    async with connect(scene.daemon.target) as sandbox:
        scene.npm()
        program = await installed(sandbox)
        assert await output_of(sandbox, program) == b"tool\n"
        held.go_on()
        await asyncio.to_thread(wait_until, lambda: is_gone(pid), "the end of npm")
        assert await installed(sandbox) == program
        assert await output_of(sandbox, program) == b"tool\n"


async def test_a_killed_daemon_leaves_nothing_that_is_used(tmp_path: Path) -> None:
    """The client is told, and after a restart the tool is installed from the start."""
    with install_scene(tmp_path) as scene:
        held = Held(scene, tmp_path)
        async with connect(scene.daemon.target) as sandbox:
            task = asyncio.ensure_future(installed(sandbox))
            await held.begun()
            scene.daemon.process.kill()
            await asyncio.to_thread(scene.daemon.process.wait)
            with install_scene(tmp_path) as again:
                with pytest.raises((ProcessError, UnavailableError)):
                    await task
                again.npm()
                async with connect(again.daemon.target) as other:
                    assert await output_of(other, await installed(other)) == b"tool\n"
                    held.go_on()
                    assert await output_of(other, await installed(other)) == b"tool\n"
        assert len(scene.runs()) == 2


async def test_a_lost_turn_shows_nothing(scene: InstallScene, held: Held) -> None:
    """A client whose place ended while it slept finds out before anybody can use what another one may be clearing."""
    async with connect(scene.daemon.target) as first, connect(scene.daemon.target) as second:
        task = asyncio.ensure_future(installed(first))
        await held.begun()
        (ticket,) = [state.id for state in await second.processes.list() if state.id.startswith(install_queue.TICKET)]
        await second.processes.release(ticket)
        held.go_on()
        with pytest.raises(UnavailableError, match="turn to install"):
            await task
        assert not list(scene.tools.glob("*/complete"))
        scene.npm()
        assert await output_of(second, await installed(second)) == b"tool\n"


async def test_a_turn_that_was_lost_before_it_began_touches_nothing(scene: InstallScene) -> None:
    """A client that slept before it installs does not clear away what another one installed meanwhile."""
    scene.npm()
    async with connect(scene.daemon.target) as sandbox:
        program = await installed(sandbox)
        (complete,) = scene.tools.glob("*/complete")
        late = NpmInstallation(sandbox, PurePosixPath(complete.parent), package(), ("", ""), {})
        with pytest.raises(UnavailableError, match="turn to install"):
            await late.make(install_queue.Turn(sandbox, f"{install_queue.TICKET}gone"))
        assert await installed(sandbox) == program
        assert await output_of(sandbox, program) == b"tool\n"
    assert len(scene.runs()) == 1


async def test_a_lost_place_is_said(scene: InstallScene, held: Held) -> None:
    """Who waits and loses the place, by a restart for example, is told so and may come again."""
    async with connect(scene.daemon.target) as first, connect(scene.daemon.target) as second:
        task = asyncio.ensure_future(installed(first))
        await held.begun()
        other = asyncio.ensure_future(installed(second))
        await until_waiting(second, 2)
        last = [state.id for state in await first.processes.list() if state.id.startswith(install_queue.TICKET)][-1]
        await first.processes.release(last)
        held.go_on()
        with pytest.raises(UnavailableError, match="turn to install"):
            await other
        assert await output_of(first, await task) == b"tool\n"


async def test_a_turn_is_given_back_after_a_failure(scene: InstallScene) -> None:
    """The next client does not wait for one that failed."""
    scene.npm("exit 1")
    async with connect(scene.daemon.target) as sandbox:
        with pytest.raises(ProcessError):
            await installed(sandbox)
        assert await waiting(sandbox) == 0


async def test_a_cancelled_download_reaches_nothing(scene: InstallScene) -> None:
    """The archive is not in the sandbox, nor is anything of it."""
    with archive_server() as server:
        catalogue = archived(server, b"program", hold=threading.Event())
        async with connect(scene.daemon.target) as sandbox:
            task = asyncio.ensure_future(ensure(sandbox, "tool", "tool", catalogue=catalogue))
            await asyncio.to_thread(server.waiting.wait)
            task.cancel()
            server.let_go()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await waiting(sandbox) == 0
        assert not scene.tools.exists()


async def test_a_daemon_that_is_gone_is_an_error(scene: InstallScene) -> None:
    """Not a program that is missing."""
    async with connect(scene.daemon.target) as sandbox:
        scene.daemon.process.send_signal(signal.SIGKILL)
        await asyncio.to_thread(scene.daemon.process.wait)
        with pytest.raises(OutpostError) as failure:
            await installed(sandbox)
    assert failure.value.code == "unavailable"


async def test_a_full_disk_shows_nothing(tmp_path: Path) -> None:
    """Neither what npm could not finish nor what could not be shown is used, and the room is free again."""
    fills = "head -c 4000000 /dev/zero > node_modules/fill"
    with mounted(tmp_path / "home", "tmpfs", "size=1m"), install_scene(tmp_path) as scene:
        async with connect(scene.daemon.target) as sandbox:
            scene.npm(f"{INSTALLS}{fills}\n")
            with pytest.raises(ProcessError, match="could not install"):
                await installed(sandbox)
            scene.npm(f"{INSTALLS}{fills} || true\n")
            with pytest.raises(LimitError) as failure:
                await installed(sandbox)
            assert failure.value.reason == "disk_full"
            assert not list(scene.tools.rglob("tool"))
            scene.npm()
            assert await output_of(sandbox, await installed(sandbox)) == b"tool\n"


async def test_a_program_that_finds_no_room_is_not_there(tmp_path: Path) -> None:
    """The daemon's write fails as a whole."""
    with (
        archive_server() as server,
        mounted(tmp_path / "home", "tmpfs", "size=1m"),
        install_scene(tmp_path) as scene,
    ):
        async with connect(scene.daemon.target) as sandbox:
            with pytest.raises(LimitError) as failure:
                await ensure(sandbox, "tool", "tool", catalogue=archived(server, bytes(4_000_000)))
            assert failure.value.reason == "disk_full"
            assert [path for path in scene.tools.rglob("*") if path.is_file()] == []
