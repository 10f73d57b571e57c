"""A conversation is open while a process runs that says so, or holds a lock that says so; never for a file alone."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import pytest

from sandbox_agent.core import holder
from sandbox_agent.core.holder import MAX_HOLDERS_COUNT, Holder, find_holders, find_holders_in
from sandbox_agent.core.paths import Directory, LinkError, Roots
from sandbox_api.errors import ConfigurationError
from sandbox_api.lock import HEAD_BYTES, LockSign
from support.special import make_special

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NUMBERED = LockSign("sessions", r"^(?P<pid>\d+)\.json$", b'"id-1"')
LOCKED = LockSign("locks", r"^id-1\.lock$")

_HOLD = """
import fcntl, sys
file = open(sys.argv[2], "r+b")
kinds = {"flock": lambda: fcntl.flock(file, fcntl.LOCK_EX), "shared": lambda: fcntl.flock(file, fcntl.LOCK_SH),
         "fcntl": lambda: fcntl.lockf(file, fcntl.LOCK_EX)}
kinds[sys.argv[1]]()
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Directory]:
    """Hold a CLI home with the folders of both kinds of signs."""
    for name in ("sessions", "locks"):
        (tmp_path / name).mkdir()
    with Directory(os.open(tmp_path, os.O_RDONLY), os.fsencode(tmp_path)) as held:
        yield held


@contextmanager
def locking(path: Path, kind: str) -> Iterator[int]:
    """Have another process hold a lock on a file, and give its number."""
    command = [sys.executable, "-c", _HOLD, kind, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield process.pid
        process.communicate()


def test_a_numbered_sign_counts_with_its_process_and_content(home: Directory, tmp_path: Path) -> None:
    """It needs a running process that is old enough, and what is looked for within the head."""
    path = tmp_path / "sessions" / f"{os.getpid()}.json"
    path.write_bytes(b'{"sessionId":"id-1"}')
    (tmp_path / "sessions" / f"{os.getpid()}.key").write_bytes(b'"id-1"')
    assert find_holders(home, [NUMBERED]) == [Holder(bytes(path), os.getpid())]
    long_ago = time.time() - 10 * 365 * 86400
    os.utime(path, (long_ago, long_ago))
    assert find_holders(home, [NUMBERED]) == []
    path.write_bytes(b'{"sessionId":"id-2"}')
    assert find_holders(home, [NUMBERED]) == []
    path.write_bytes(bytes(HEAD_BYTES) + b'"id-1"')
    assert find_holders(home, [NUMBERED]) == []


def test_a_number_of_no_process_does_not_count(home: Directory, tmp_path: Path) -> None:
    """A process that ended, and a number that no process can have."""
    with subprocess.Popen(["true"]) as process:
        process.wait()
    for number in (process.pid, 0, 1 << 30):
        (tmp_path / "sessions" / f"{number}.json").write_bytes(b'"id-1"')
    assert find_holders(home, [NUMBERED]) == []


@pytest.mark.parametrize("kind", ["flock", "fcntl"])
def test_a_locked_file_counts_while_it_is_locked(home: Directory, tmp_path: Path, kind: str) -> None:
    """The process that holds the lock is told; the file that a killed one left says nothing."""
    path = tmp_path / "locks" / "id-1.lock"
    path.touch()
    (tmp_path / "locks" / "id-2.lock").touch()
    with locking(path, kind) as pid:
        assert find_holders(home, [LOCKED]) == [Holder(bytes(path), pid)]
        assert find_holders(home, [LockSign("locks", r"^id-2\.lock$")]) == []
    assert find_holders(home, [LOCKED]) == []


@pytest.mark.parametrize("listing", ["empty", "missing"])
def test_a_lock_that_is_not_listed_counts(
    home: Directory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listing: str
) -> None:
    """A lock from another container, or on a device of another number, is found by trying; its process is not told."""
    path = tmp_path / "locks" / "id-1.lock"
    path.touch()
    (tmp_path / "locks-listed").touch()
    listed = tmp_path / "locks-listed" if listing == "empty" else tmp_path / "none"
    monkeypatch.setattr(holder, "LISTING", str(listed))
    with locking(path, "flock"):
        assert find_holders(home, [LOCKED]) == [Holder(bytes(path), 0)]
    assert find_holders(home, [LOCKED]) == []
    with path.open() as file:  # what was tried has been let go
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_lock_that_is_listed_is_not_tried(home: Directory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks for the lock in that moment is not in its way."""
    path = tmp_path / "locks" / "id-1.lock"
    path.touch()
    with locking(path, "flock") as pid:
        monkeypatch.setattr(fcntl, "flock", lambda *_: pytest.fail("tried"))
        assert find_holders(home, [LOCKED]) == [Holder(bytes(path), pid)]


def test_a_shared_lock_does_not_count(home: Directory, tmp_path: Path) -> None:
    """Others that only look hold one; a CLI that has a conversation open holds it alone."""
    path = tmp_path / "locks" / "id-1.lock"
    path.touch()
    with locking(path, "shared"):
        assert find_holders(home, [LOCKED]) == []


@pytest.mark.parametrize("sign", [LOCKED, LockSign("locks", r"^id-1\.lock$", b"x"), NUMBERED])
def test_only_regular_files_are_signs(home: Directory, tmp_path: Path, sign: LockSign) -> None:
    """A link, wherever it leads, and a special file say nothing, and nothing waits for them."""
    names = {"locks": "id-1.lock", "sessions": f"{os.getpid()}.json"}
    path = tmp_path / sign.directory / names[sign.directory]
    (tmp_path / "real").write_bytes(b'x "id-1"')
    with locking(tmp_path / "real", "flock"):
        path.symlink_to(tmp_path / "real")
        assert find_holders(home, [sign]) == []
    for kind in ("fifo", "socket", "directory"):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        make_special(path, kind)
        assert find_holders(home, [sign]) == []


def test_a_folder_that_is_missing_or_a_link(home: Directory, tmp_path: Path) -> None:
    """Without a folder there is no sign; one behind a link may have some, which is refused."""
    assert find_holders(home, [LockSign("none/below", ".")]) == []
    (tmp_path / "linked").symlink_to("locks")
    with pytest.raises(LinkError):
        find_holders(home, [LockSign("linked", ".")])


def test_holders_are_told_once_and_not_without_end(home: Directory, tmp_path: Path) -> None:
    """Two signs that a file shows are one holder, and a sandbox cannot make up any number of them."""
    for number in range(MAX_HOLDERS_COUNT + 1):
        (tmp_path / "sessions" / f"{os.getpid()}.{number:03}").touch()
    sign = LockSign("sessions", r"^(?P<pid>\d+)\.\d+$")
    assert len(find_holders(home, [sign])) == MAX_HOLDERS_COUNT
    one = LockSign("sessions", r"^(?P<pid>\d+)\.000$")
    assert len(find_holders(home, [one, one])) == 1


def test_a_home_by_its_path(home: Directory, tmp_path: Path) -> None:
    """A home that is missing has no holders."""
    (tmp_path / "locks" / "id-1.lock").touch()
    with locking(tmp_path / "locks" / "id-1.lock", "flock") as pid, closing(Roots([home.path])) as roots:
        assert [found.pid for found in find_holders_in(roots, home.path, [LOCKED])] == [pid]
        assert find_holders_in(roots, home.path + b"/none", [LOCKED]) == []
        assert find_holders_in(roots, home.path + b"/locks/id-1.lock", [LOCKED]) == []


@pytest.mark.parametrize(
    "pattern", [r"^(a+)+$", r"^(?:a|a)*$", r"(a{1,9}){9}", r"(?x) (a+) +", r"[)(](\)|a)+", "a" * 1001, "(", "x*" * 501]
)
def test_signs_that_a_name_could_keep_busy_are_refused(pattern: str) -> None:
    """A repeated group can take longer than anybody waits; no other call of the daemon goes on meanwhile."""
    with pytest.raises(ConfigurationError) as caught:
        LockSign("sessions", pattern)
    assert caught.value.reason == "invalid_argument"


@pytest.mark.parametrize("pattern", [r"^(?P<pid>\d+)(\.x)?$", r"\)*\(+[)]+[]()]*[^])]+", r"\\(a)", "[a\\])]+"])
def test_signs_without_repeated_groups_are_accepted(pattern: str) -> None:
    """What only looks like a group does not count."""
    assert LockSign("sessions", pattern).pattern == pattern
