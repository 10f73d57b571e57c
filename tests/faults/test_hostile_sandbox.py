"""A sandbox that works against the capture: nothing outside is read, nothing hangs, all offenders are named."""

from __future__ import annotations

import os
import re
import socket
import stat
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from sandbox_agent.core import paths, syscall
from sandbox_agent.core.capture import Capture
from sandbox_api.errors import OutpostError, SessionError
from sandbox_api.limits import MIB, Limits
from support.sandbox import FLAT, make_session, place, sandbox, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from sandbox_agent.core.sandbox import Place, Sandbox

CANARY = b"CANARY" * 100
SWAP_COUNT = 4000

# Exchanges a name with a link of the same place, over and over, each in one atomic step.
SWAP = """
import os, sys
from sandbox_agent.core.syscall import RENAME_EXCHANGE, renameat2
folder = os.open(sys.argv[1], os.O_RDONLY)
name, link = (os.fsencode(text) for text in sys.argv[2:4])
for _ in range(int(sys.argv[4])):
    renameat2(folder, name, folder, link, RENAME_EXCHANGE)
"""


@pytest.fixture(params=["openat2", "stepwise"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run with openat2 and with the fallback."""
    if request.param == "stepwise":
        monkeypatch.setattr(paths, "has_openat2", lambda: False)


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Sandbox]:
    """Hold a sandbox with an empty home."""
    (tmp_path / "home").mkdir()
    with sandbox(tmp_path / "home") as held:
        yield held


def captured(box: Sandbox, where: Place | None = None, *, skip_links: bool = False) -> tuple[list[str], bytes]:
    """Capture to the end; return the paths and the payload."""
    with Capture(box, where or place(), limits=Limits(), skip_links=skip_links, held={}) as running:
        entries = running.begin()
        payload = b"".join(running.pieces(lambda: MIB))
        running.finish()
    return [os.fsdecode(entry.path) for entry in entries], payload


def refusal(box: Sandbox, where: Place | None = None) -> OutpostError:
    """Return the failure of a capture."""
    with pytest.raises(OutpostError) as caught:
        captured(box, where)
    return caught.value


class Canary:
    """A directory outside, with a file; knows whether this process opened one of them."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory = directory
        self.file = directory / "file"
        self.opened: list[str] = []
        directory.mkdir()
        self.file.write_bytes(CANARY)
        self._identities = {path.stat()[1:3]: str(path) for path in (self.file, directory)}
        for module, name in ((os, "open"), (syscall, "openat2")):
            monkeypatch.setattr(module, name, self._watched(getattr(module, name)))

    def _watched(self, function: Callable[..., int]) -> Callable[..., int]:
        def watch(*arguments: object, **keywords: object) -> int:
            fd = function(*arguments, **keywords)
            if path := self._identities.get(os.fstat(fd)[1:3]):
                self.opened.append(path)
            return fd

        return watch


@pytest.fixture
def canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Canary]:
    """Make a canary; fail when the test opened it."""
    made = Canary(tmp_path / "outside", monkeypatch)
    yield made
    assert made.opened == []


def test_the_canary_is_sharp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever of the canary is opened, in whichever way, is noted: otherwise the tests below prove nothing."""
    made = Canary(tmp_path / "outside", monkeypatch)
    with paths.Directory(os.open(tmp_path, os.O_RDONLY), os.fsencode(tmp_path)) as held:
        held.directory(b"outside").close()
        os.close(held.file(b"outside/file"))
    assert made.opened == [str(made.directory), str(made.file)]


@pytest.mark.parametrize("victim", ["d/file", "d", "d/e", "session", "sessions"])
@pytest.mark.usefixtures("way")
def test_swapping_for_links_in_a_tight_loop(box: Sandbox, tmp_path: Path, canary: Canary, victim: str) -> None:
    """While a file, a directory, the session or a parent is swapped for a link outside, no byte from there is read.

    Each capture ends with the session's own content or is refused; when the swapping ends, it succeeds.
    """
    session = make_session(tmp_path / "home", {"state.json": b"{}", "d/file": b"inside", "d/e/file": b"inside"})
    target = {"session": session, "sessions": session.parent}.get(victim, session / victim)
    link = target.parent / "swap.lock"  # not selected, so that only the race is in the way
    link.symlink_to(canary.file if target.is_file() else canary.directory)
    attempts_count = 0
    with subprocess.Popen(
        [sys.executable, "-c", SWAP, target.parent, target.name, link.name, str(SWAP_COUNT)]
    ) as swapping:
        while swapping.poll() is None:
            attempts_count += 1
            try:
                listed, payload = captured(box)
            except SessionError as error:
                assert error.reason in {"changed", "symlink", "not_found", "root_symlink"}  # noqa: PT017 -- or success
            else:
                assert set(listed) == {"state.json", "d/file", "d/e/file"}
                assert b"CANARY" not in payload
    assert swapping.returncode == 0
    assert attempts_count
    assert len(captured(box)[0]) == 3


def test_links_of_a_genuine_session(box: Sandbox, tmp_path: Path, canary: Canary) -> None:
    """All links of a session are named, wherever they lead; left out by choice, they are listed and never followed."""
    session = make_session(tmp_path / "home", {"state.json": b"{}", "files/a": b"1"})
    (session / "files" / "dir").symlink_to(canary.directory)
    (session / "files" / "file").symlink_to(canary.file)
    (session / "inner").symlink_to("state.json")
    (session / "loop").symlink_to("loop")
    error = refusal(box)
    names = ["files/dir", "files/file", "inner", "loop"]
    assert error.reason == "symlink"
    assert [offender.path for offender in error.offenders] == names
    assert captured(box, skip_links=True)[0] == ["files/a", "state.json"]


def test_special_files_are_refused_without_being_opened(box: Sandbox, tmp_path: Path) -> None:
    """FIFO, socket and device are all named; nothing waits for the other end of a FIFO."""
    session = make_session(tmp_path / "home", {"state.json": b"{}"})
    os.mkfifo(session / "fifo")
    expected = {"fifo": "is a FIFO", "socket": "is a socket"}
    with closing(socket.socket(socket.AF_UNIX)) as listener:
        listener.bind(str(session / "socket"))
    if os.geteuid() == 0:
        os.mknod(session / "device", stat.S_IFCHR | 0o600, os.makedev(1, 5))
        expected["device"] = "is a device"
    error = refusal(box)
    assert error.reason == "special_file"
    assert {offender.path: offender.problem for offender in error.offenders} == expected


def test_a_required_file_that_is_a_fifo(box: Sandbox, tmp_path: Path) -> None:
    """A FIFO in place of a file that every session has does not hang the capture."""
    session = make_session(tmp_path / "home", {"a": b""})
    os.mkfifo(session / "state.json")
    assert refusal(box).reason == "special_file"


def test_a_file_that_becomes_a_fifo_does_not_hang(box: Sandbox, tmp_path: Path) -> None:
    """A file swapped for a FIFO after the walk is `changed` at once."""
    session = make_session(tmp_path / "home", {"state.json": b"{}"})
    with Capture(box, place(), limits=Limits(), skip_links=False, held={}) as running:
        running.begin()
        (session / "state.json").unlink()
        os.mkfifo(session / "state.json")
        with pytest.raises(SessionError) as caught:
            list(running.pieces(lambda: MIB))
    assert caught.value.reason == "changed"


@pytest.mark.parametrize(
    "name", ["[slug]", "a:b", "-rf", "new\nline", "x" * 255, " spaces ", "dot.", "~", "*", "é" * 100, "\x7f", "$(id)"]
)
def test_odd_names_are_captured(box: Sandbox, tmp_path: Path, name: str) -> None:
    """Names that are odd and valid are captured as they are, of files and of directories."""
    make_session(tmp_path / "home", {"state.json": b"{}", f"{name}/{name}": b"content"})
    listed, payload = captured(box)
    assert f"{name}/{name}" in listed
    assert b"content" in payload


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        (b"\xff\xfe", "\\xff\\xfe"),
        (b"a\\b", "a\\b"),
        (b".git", ".git"),
        (b".GiT", ".GiT"),
        (b"\xed\xa0\x80", "\\xed\\xa0\\x80"),
    ],
)
def test_unusable_names_are_refused_escaped(box: Sandbox, tmp_path: Path, name: bytes, printed: str) -> None:
    """Names that a bundle cannot hold are `unsafe_name`, printed without control or raw bytes, wherever they are."""
    session = make_session(tmp_path / "home", {"state.json": b"{}", "d/ok": b""})
    for parent in (session, session / "d"):
        (parent / os.fsdecode(name)).mkdir()
        write(parent / os.fsdecode(name), {"below": b""})
    error = refusal(box)
    assert error.reason == "unsafe_name"
    assert [offender.path for offender in error.offenders] == sorted([printed, f"d/{printed}"])


def test_a_sibling_with_the_root_as_prefix_is_outside(tmp_path: Path) -> None:
    """With the root `dir`, a CLI home in `dir2` is `outside_roots`: prefixes are compared by component."""
    (tmp_path / "dir").mkdir()
    make_session(tmp_path / "dir2", {"state.json": b"{}"})
    with sandbox(tmp_path / "dir") as box:
        error = refusal(box, place(variables={"DEMO_HOME": str(tmp_path / "dir2" / ".demo")}))
    assert (error.code, error.reason) == ("workspace", "outside_roots")


def test_locks_are_left_out_and_told(box: Sandbox, tmp_path: Path) -> None:
    """A lock of a running process is left out, and the capture says who has the session open and is complete."""
    lock = f"inuse.{os.getpid()}.lock"
    make_session(tmp_path / "home", {"state.json": b"{}", lock: b"", "other.lock": b""})
    with Capture(box, place(), limits=Limits(), skip_links=False, held={}) as running:
        assert [entry.path for entry in running.begin()] == [b"state.json"]
        assert running.in_use_pid == os.getpid()
        assert running.left_out == [(lock.encode(), "not_selected"), (b"other.lock", "not_selected")]


def test_a_live_database_is_never_taken_alone(box: Sandbox, tmp_path: Path) -> None:
    """A database with a log that the profile leaves out is refused, not captured without its last changes."""
    make_session(tmp_path / "home", {"state.json": b"{}", "session.db": b"x" * 4096, "session.db-wal": b"x" * 4152})
    profile = replace(FLAT, exclude=re.compile(r"-(wal|shm)$"))
    error = refusal(box, place(profile))
    assert error.reason == "live_database"
    assert [str(offender) for offender in error.offenders] == ["session.db: has changes in session.db-wal"]


def test_a_deep_tree_ends(box: Sandbox, tmp_path: Path) -> None:
    """A tree of 200 levels is `max_depth`: it is named once, where it is too deep, and not entered further."""
    session = make_session(tmp_path / "home", {"state.json": b"{}"})
    held = os.open(session, os.O_RDONLY)
    for _ in range(200):
        os.mkdir(b"deep", dir_fd=held)
        below = os.open(b"deep", os.O_RDONLY, dir_fd=held)
        os.close(held)
        held = below
    os.close(held)
    error = refusal(box)
    assert (error.code, error.reason, error.offender_count) == ("limit", "max_depth", 1)


def test_a_huge_sparse_file_is_refused_before_it_is_read(box: Sandbox, tmp_path: Path) -> None:
    """A file of 8 TiB that takes no space is refused by its size, and named."""
    session = make_session(tmp_path / "home", {"state.json": b"{}"})
    with (session / "sparse").open("wb") as file:
        file.truncate(1 << 43)
    error = refusal(box)
    assert (error.code, error.reason) == ("limit", "max_bytes")
    assert error.offenders[0].path == "sparse"


def test_a_file_that_never_stops_growing(box: Sandbox, tmp_path: Path) -> None:
    """A file to which a process appends without end is `changed`, and when the writer rests, whole: never a mixture."""
    session = make_session(tmp_path / "home", {"state.json": b"{}", "log": b"x" * MIB})
    reasons: list[str] = []
    script = "import sys\nwith open(sys.argv[1], 'ab', buffering=0) as file:\n    while True: file.write(b'x' * 10)"
    with subprocess.Popen([sys.executable, "-c", script, session / "log"]) as writing:
        try:
            while (session / "log").stat().st_size == MIB:
                assert writing.poll() is None
            while "changed" not in reasons:
                try:
                    captured(box)
                except SessionError as error:
                    reasons.append(error.reason)
        finally:
            writing.kill()
    assert set(reasons) == {"changed"}
    assert len(captured(box)[0]) == 2
