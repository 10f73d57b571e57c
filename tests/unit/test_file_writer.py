"""Writing one file whole or not at all, whatever a sandbox puts in the way."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as some

from sandbox_agent.core import file_writer, syscall
from sandbox_agent.core import scratch as scratch_file
from sandbox_agent.core.file_writer import FileWriter
from sandbox_agent.core.paths import LinkError, Roots
from sandbox_api.errors import ConfigurationError, ConflictError, OutpostError, SessionError, WorkspaceError
from support.special import make_special

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root; beside it lies what must not be reached."""
    path = tmp_path / "root"
    path.mkdir()
    return path


@pytest.fixture
def roots(root: Path) -> Iterator[Roots]:
    """The root, held."""
    with closing(Roots([os.fsencode(root)])) as held:
        yield held


def _sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _writer(roots: Roots, path: Path, **changes: Any) -> FileWriter:
    options: dict[str, Any] = {
        "mode": 0,
        "make_parents": False,
        "must_not_exist": False,
        "full_durability": True,
        "owner": None,
    }
    return FileWriter(roots, os.fsencode(path), **{**options, **changes})


def _write(roots: Roots, path: Path, content: bytes, **changes: Any) -> None:
    with _writer(roots, path, **changes) as writer:
        writer.feed(content)
        writer.commit(_sha256(content))


def _names(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


@given(pieces=some.lists(some.binary(max_size=50)))
def test_write_any_content(tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes]) -> None:
    """Whatever the pieces, the file has their bytes, in order."""
    root = tmp_path_factory.mktemp("root")
    with closing(Roots([os.fsencode(root)])) as roots, _writer(roots, root / "file", full_durability=False) as writer:
        for piece in pieces:
            writer.feed(piece)
        info = writer.commit(_sha256(b"".join(pieces)))
    assert (root / "file").read_bytes() == b"".join(pieces)
    assert (info.path, info.size, info.kind) == (os.fsencode(root / "file"), sum(map(len, pieces)), "file")


@pytest.mark.parametrize("full_durability", [True, False])
def test_write_replaces_at_once(roots: Roots, root: Path, *, full_durability: bool) -> None:
    """Until the commit the old content is in place, afterwards the new, and no scratch file is left."""
    (root / "file").write_text("old")
    with _writer(roots, root / "file", full_durability=full_durability) as writer:
        writer.feed(b"new")
        assert (root / "file").read_text() == "old"
        assert len(_names(root)) == 2
        writer.commit(_sha256(b"new"))
    assert (root / "file").read_text() == "new"
    assert _names(root) == ["file"]


@pytest.mark.parametrize(("mode", "expected"), [(0, 0o600), (0o644, 0o644), (0o400, 0o400)])
def test_write_mode(roots: Roots, root: Path, mode: int, expected: int) -> None:
    """The mode is as asked for, whatever the umask and the old file; 0600 when nothing is said."""
    (root / "file").write_text("")
    (root / "file").chmod(0o755)
    _write(roots, root / "file", b"", mode=mode)
    assert stat.S_IMODE((root / "file").stat().st_mode) == expected


def test_write_refuses_odd_modes(roots: Roots, root: Path) -> None:
    """Nothing is made set-uid."""
    with pytest.raises(ConfigurationError, match="invalid_argument"):
        _write(roots, root / "file", b"", mode=0o4755)
    assert _names(root) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files away, which only root may")
def test_write_owner(roots: Roots, root: Path) -> None:
    """File and made directories belong to the owner that was named."""
    _write(roots, root / "a" / "file", b"", owner=(1001, 1002), make_parents=True, mode=0o640)
    for path in (root / "a", root / "a" / "file"):
        assert (path.stat().st_uid, path.stat().st_gid) == (1001, 1002)
    assert stat.S_IMODE((root / "a" / "file").stat().st_mode) == 0o640


def test_write_owner_without_privilege(roots: Roots, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the privilege nothing is changed."""

    def refused(fd: int, uid: int, gid: int) -> None:  # noqa: ARG001
        raise PermissionError(errno.EPERM, "")

    monkeypatch.setattr(os, "fchown", refused)
    with pytest.raises(ConfigurationError, match="owner"):
        _write(roots, root / "a" / "file", b"", owner=(os.getuid() + 1, os.getgid()), make_parents=True)
    assert _names(root) == []


def test_write_makes_parents(roots: Roots, root: Path) -> None:
    """Missing directories appear with the file, 0700, and only when asked for."""
    with pytest.raises(FileNotFoundError):
        _write(roots, root / "a" / "b" / "file", b"x")
    with _writer(roots, root / "a" / "b" / "file", make_parents=True) as writer:
        assert not (root / "a").exists()
        writer.commit(_sha256(b""))
    assert _names(root) == ["a", "a/b", "a/b/file"]
    assert stat.S_IMODE((root / "a" / "b").stat().st_mode) == 0o700
    _write(roots, root / "a" / "c" / "file", b"", make_parents=True)


def test_write_meets_parents_made_meanwhile(roots: Roots, root: Path) -> None:
    """A directory that somebody else makes in between is used; a link in its place is refused."""
    with _writer(roots, root / "a" / "file", make_parents=True) as writer:
        (root / "a").mkdir()
        writer.commit(_sha256(b""))
    with _writer(roots, root / "b" / "file", make_parents=True) as writer:
        (root / "b").symlink_to(root.parent)
        with pytest.raises(LinkError):
            writer.commit(_sha256(b""))
    assert _names(root) == ["a", "a/file", "b"]
    assert not (root.parent / "file").exists()


def test_write_must_not_exist(roots: Roots, root: Path) -> None:
    """What is there stays: found before any content comes, and again at the last moment."""
    with _writer(roots, root / "file", must_not_exist=True) as writer:
        writer.commit(_sha256(b""))
    with pytest.raises(ConflictError, match="exists"):
        _write(roots, root / "file", b"x", must_not_exist=True)
    with _writer(roots, root / "late", must_not_exist=True) as writer:
        (root / "late").write_text("theirs")
        with pytest.raises(ConflictError, match="exists"):
            writer.commit(_sha256(b""))
    assert (root / "late").read_text() == "theirs"
    assert _names(root) == ["file", "late"]


@pytest.mark.parametrize("is_supported", [True, False])
def test_write_must_not_exist_is_atomic(
    roots: Roots, root: Path, monkeypatch: pytest.MonkeyPatch, *, is_supported: bool
) -> None:
    """Who takes the name after the last look still wins, also where the file system has no exclusive rename."""
    rename = syscall.renameat2

    def racing(*arguments: Any) -> None:
        if not is_supported:
            raise OSError(errno.EINVAL, "")
        rename(*arguments)

    monkeypatch.setattr(file_writer.syscall, "renameat2", racing)
    monkeypatch.setattr(FileWriter, "_check_target", lambda *_: None)
    _write(roots, root / "new", b"x", must_not_exist=True)
    assert (root / "new").read_bytes() == b"x"
    (root / "file").write_text("theirs")
    with pytest.raises(ConflictError, match="exists"):
        _write(roots, root / "file", b"x", must_not_exist=True)
    assert (root / "file").read_text() == "theirs"
    assert _names(root) == ["file", "new"]


def test_write_checks_the_digest(roots: Roots, root: Path) -> None:
    """Content without the promised digest never appears."""
    (root / "file").write_text("old")
    with _writer(roots, root / "file") as writer:
        writer.feed(b"new")
        with pytest.raises(SessionError, match="digest_mismatch"):
            writer.commit(_sha256(b"newer"))
    assert (root / "file").read_text() == "old"
    assert _names(root) == ["file"]


def test_write_left_early_leaves_nothing(roots: Roots, root: Path) -> None:
    """Without a commit no scratch file and no directory is left."""
    with _writer(roots, root / "a" / "file", make_parents=True) as writer:
        writer.feed(b"new")
    assert _names(root) == []


@pytest.mark.parametrize("kind", ["directory", "fifo", "socket"])
def test_write_refuses_other_kinds(roots: Roots, root: Path, kind: str) -> None:
    """A directory or special file is not replaced; neither is the root."""
    make_special(root / "x", kind)
    for path in (root / "x", root):
        with pytest.raises(WorkspaceError, match="not_a_file"):
            _write(roots, path, b"")
    assert _names(root) == ["x"]


def test_write_follows_no_link(roots: Roots, root: Path) -> None:
    """Neither through a link nor in place of one is anything written, also when it appears late."""
    (root.parent / "outside").write_text("theirs")
    (root / "link").symlink_to(root.parent / "outside")
    (root / "directory").symlink_to(root.parent)
    for path in (root / "link", root / "directory" / "outside"):
        with pytest.raises(LinkError):
            _write(roots, path, b"ours")
    with _writer(roots, root / "late") as writer:
        (root / "late").symlink_to(root.parent / "outside")
        with pytest.raises(LinkError):
            writer.commit(_sha256(b""))
    assert (root.parent / "outside").read_text() == "theirs"
    assert _names(root) == ["directory", "late", "link"]


def test_write_does_not_use_a_scratch_name_twice(roots: Roots, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link that the sandbox put where the scratch file goes is not followed: the create is exclusive."""
    guessed = UUID(int=7)
    monkeypatch.setattr(scratch_file, "uuid4", lambda: guessed)
    scratch = root / (scratch_file.PREFIX + guessed.hex)
    scratch.symlink_to(root.parent / "made")
    with pytest.raises(OSError, match=r"."):
        _write(roots, root / "file", b"x")
    assert scratch.is_symlink()
    assert not (root.parent / "made").exists()


def test_write_removes_what_a_killed_daemon_left(roots: Roots, root: Path) -> None:
    """A scratch file that nobody writes goes with the next write; a living one, and what is no such file, stay."""
    left = root / f"{scratch_file.PREFIX}{'0' * 32}"
    left.write_bytes(b"half of it")
    theirs = [root / f"{scratch_file.PREFIX}theirs", root / f"{scratch_file.PREFIX}{'1' * 32}"]
    theirs[0].write_bytes(b"")
    theirs[1].symlink_to("theirs")
    os.mkfifo(theirs_fifo := root / f"{scratch_file.PREFIX}{'2' * 32}")
    with _writer(roots, root / "slow") as slow:
        slow.feed(b"slow")
        [living] = {*root.iterdir()} - {*theirs, theirs_fifo}
        assert living.name.startswith(scratch_file.PREFIX)
        _write(roots, root / "fast", b"fast")
        assert living.exists()
        slow.commit(_sha256(b"slow"))
    assert {*root.iterdir()} == {*theirs, theirs_fifo, root / "slow", root / "fast"}


def test_write_outlives_the_loss_of_its_scratch_file(roots: Roots, root: Path) -> None:
    """A scratch file that the sandbox has removed is no failure of the clean-up, which would hide the first one."""
    writer = _writer(roots, root / "file")
    writer.__enter__()
    next(root.iterdir()).unlink()
    writer.__exit__(None, None, None)
    assert _names(root) == []


def test_write_that_cannot_replace_names_the_file(roots: Roots, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The failure of the last step names what was asked for, not the scratch file."""

    def busy(source: bytes, _: bytes, **__: int) -> None:
        raise OSError(errno.EBUSY, "", source)

    monkeypatch.setattr(os, "rename", busy)
    with pytest.raises(OSError, match=str(errno.EBUSY)) as caught:
        _write(roots, root / "file", b"")
    assert caught.value.filename == bytes(root / "file")
    assert _names(root) == []


def test_write_full_disk(roots: Roots, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the disk is full the old file is in place and the scratch file gone."""
    (root / "file").write_text("old")

    def full(fd: int, data: Any) -> int:  # noqa: ARG001
        raise OSError(errno.ENOSPC, "")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match=str(errno.ENOSPC)):
        _write(roots, root / "file", b"new")
    assert _names(root) == ["file"]
    assert (root / "file").read_text() == "old"


def test_write_syncs_content_and_names(roots: Roots, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With full durability the content is forced to disk before the name appears, and the names after; else nothing."""
    synced: list[str] = []
    fsync = os.fsync

    def recording(fd: int) -> None:
        name = Path(f"/proc/self/fd/{fd}").readlink().name
        synced.append("content" if name.startswith(".outpost-file-") else name)
        fsync(fd)

    monkeypatch.setattr(os, "fsync", recording)
    _write(roots, root / "a" / "b" / "file", b"x", make_parents=True)
    assert synced == ["content", "b", "a", "root"]
    synced.clear()
    _write(roots, root / "file", b"x", full_durability=False)
    assert synced == []


def test_commit_before_entering(roots: Roots, root: Path) -> None:
    """A writer that was not entered has nothing to commit."""
    with pytest.raises(ValueError, match="entered"):
        _writer(roots, root / "file").commit(b"")


@given(path=some.text(max_size=30))
def test_no_path_leaves_the_root(tmp_path_factory: pytest.TempPathFactory, path: str) -> None:
    """Whatever path a caller writes to, what appears lies in the root."""
    base = tmp_path_factory.mktemp("base")
    (base / "root").mkdir()
    with closing(Roots([os.fsencode(base / "root")])) as roots:
        target = os.fsencode(base / "root") + b"/" + path.encode("utf-8", "surrogatepass")
        try:
            with FileWriter(
                roots, target, mode=0, make_parents=True, must_not_exist=False, full_durability=False, owner=None
            ) as writer:
                writer.commit(_sha256(b""))
        except (OutpostError, OSError):
            assert _names(base / "root") == []
    assert [entry.name for entry in base.iterdir()] == ["root"]
