"""ProcessService: what processes print, and who reads it."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING

from support.status import fails
from support.wait import wait_until

if TYPE_CHECKING:
    from support.process_scene import Scene


def test_attach_from_an_offset(scene: Scene) -> None:
    """What the client has is not sent again, while it runs and after it; what it cannot have is refused."""
    process_id = scene.shell("printf 0123456789; printf abc >&2")
    scene.wait(process_id)
    read = scene.read(process_id, stdout=4, stderr=1)
    assert (bytes(read.stdout), bytes(read.stderr)) == (b"456789", b"bc")
    assert bytes(scene.read(process_id, stdout=10, stderr=3).stdout) == b""
    for offsets in ((11, 0), (0, 4)):
        with fails("configuration", "invalid_argument"):
            scene.read(process_id, *offsets)


def test_two_readers(scene: Scene) -> None:
    """Each client gets everything, whenever it came."""
    process_id = scene.start("cat", open_input=True)
    with scene.attached(process_id) as first:
        first.write(0, b"early ")
        first.until(b"early ")
        with scene.attached(process_id) as second:
            second.write(6, b"late", end=True)
            assert bytes(second.rest().stdout) == bytes(first.rest().stdout) == b"early late"


def test_large_output(scene: Scene) -> None:
    """Output many times the window comes whole and in order while somebody reads, though that began late."""
    script = "import sys\nsys.stdout.write(''.join(f'{index:015d}\\n' for index in range(1 << 20)))"
    read = scene.read(scene.start(sys.executable, "-c", script, keep_bytes=1 << 20, hold_seconds=60))
    assert read.stdout == b"".join(b"%015d\n" % index for index in range(1 << 20))


def test_small_output_is_gathered(scene: Scene) -> None:
    """A process that prints by the byte is told of by the batch."""
    script = "import os\nfor index in range(20_000): os.write(1, b'x')"
    with scene.attached(scene.start(sys.executable, "-S", "-c", script)) as attached:
        parts = 0
        while attached.next():
            parts += 1
    assert attached.read.stdout == b"x" * 20_000
    assert parts < 5_000


def test_process_waits_for_its_reader(scene: Scene) -> None:
    """A process that fills its window waits while it is held; whoever comes then misses nothing."""
    process_id = scene.shell("head -c 1000000 /dev/zero; echo end", keep_bytes=64 << 10, hold_seconds=60)
    wait_until(lambda: scene.state(process_id).stdout_bytes == 64 << 10, "the full window")
    assert not scene.state(process_id).HasField("exit")
    assert scene.read(process_id).stdout == bytes(1_000_000) + b"end\n"


def test_oldest_output_is_dropped(scene: Scene) -> None:
    """A process that nobody reads goes on once it was held long enough; what is lost is said, and where the rest is."""
    process_id = scene.shell("head -c 1000000 /dev/zero; printf end", keep_bytes=64 << 10)
    assert scene.wait(process_id).stdout_bytes == 1_000_003
    with fails("process", "output_lost"):
        scene.read(process_id)
    start = 1_000_003 - (64 << 10)
    with fails("process", "output_lost"):
        scene.read(process_id, stdout=start - 1)
    assert scene.read(process_id, stdout=start).stdout == bytes((64 << 10) - 3) + b"end"


def test_hold_ends_by_itself(scene: Scene) -> None:
    """A held process that nobody comes for goes on after its time."""
    process_id = scene.shell("head -c 1000000 /dev/zero", keep_bytes=64 << 10, hold_seconds=0.2)
    assert scene.wait(process_id).stdout_bytes == 1_000_000


def test_slowest_reader_is_waited_for(scene: Scene) -> None:
    """While two read, the process waits for the slower one, who misses nothing."""
    size = 32 << 20
    process_id = scene.start("head", "-c", str(size), "/dev/zero", keep_bytes=1 << 20, hold_seconds=60)
    with scene.attached(process_id) as slow:
        slow.until(b"\0")
        with scene.attached(process_id, stdout=scene.state(process_id).stdout_bytes) as fast:
            fast.until(b"\0")
            # Nothing but the first part of the slow one was taken: the process cannot have ended.
            assert not scene.state(process_id).HasField("exit")
            fast.call.cancel()
        assert len(slow.rest().stdout) == size


def test_unknown_process(scene: Scene) -> None:
    """Every call that needs a process says that there is none; a release does not need one."""
    with fails("process", "unknown"):
        scene.read("none")
    with fails("process", "unknown"):
        scene.signal("none", signal.SIGTERM)
    with fails("process", "unknown"):
        scene.wait("none")
    scene.release("none")
