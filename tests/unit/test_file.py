"""Single files below the roots: told, found, removed, whatever a sandbox puts in the way."""

from __future__ import annotations

import os
import tracemalloc
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from sandbox_agent.core.file import MAX_HEAD_BYTES, find_files, remove_file, stat_file
from sandbox_agent.core.paths import LinkError, Roots
from sandbox_api.errors import ConfigurationError, LimitError, WorkspaceError
from support.special import make_special

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


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


def test_stat_tells_each_kind(roots: Roots, root: Path) -> None:
    """A file, a directory, a link and a special file are told as what they are; the link is not followed."""
    (root / "file").write_bytes(b"12345")
    (root / "file").chmod(0o640)
    (root / "link").symlink_to("file")
    make_special(root / "fifo", "fifo")
    info = stat_file(roots, os.fsencode(root / "file"))
    assert (info.path, info.kind, info.size, info.mode) == (os.fsencode(root / "file"), "file", 5, 0o640)
    assert (info.uid, info.gid) == (os.getuid(), os.getgid())
    assert info.modified_ns == (root / "file").stat().st_mtime_ns
    kinds = [stat_file(roots, os.fsencode(path)).kind for path in (root, root / "link", root / "fifo")]
    assert kinds == ["directory", "symlink", "other"]


def test_stat_refuses_what_lies_elsewhere(roots: Roots, root: Path) -> None:
    """Outside the roots, and through a link, nothing is told."""
    (root / "link").symlink_to(root.parent)
    with pytest.raises(WorkspaceError, match="outside_roots"):
        stat_file(roots, os.fsencode(root.parent / "x"))
    with pytest.raises(WorkspaceError, match="unsafe_path"):
        stat_file(roots, os.fsencode(root) + b"/../x")
    with pytest.raises(LinkError):
        stat_file(roots, os.fsencode(root / "link" / "x"))
    with pytest.raises(FileNotFoundError):
        stat_file(roots, os.fsencode(root / "missing"))


def test_remove(roots: Roots, root: Path) -> None:
    """One regular file goes, and nothing else does."""
    (root / "a").write_text("")
    (root / "b").write_text("")
    remove_file(roots, os.fsencode(root / "a"))
    assert [path.name for path in root.iterdir()] == ["b"]


@pytest.mark.parametrize("kind", ["directory", "fifo", "socket"])
def test_remove_refuses_other_kinds(roots: Roots, root: Path, kind: str) -> None:
    """A directory or special file stays."""
    path = make_special(root / "x", kind)
    with pytest.raises(WorkspaceError, match="not_a_file"):
        remove_file(roots, os.fsencode(path))
    assert path.exists()


def test_remove_that_is_refused_names_the_file(roots: Roots, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its absolute path."""
    (root / "d").mkdir()
    (root / "d/file").write_text("")

    def refused(name: bytes, **_: int) -> None:
        raise PermissionError(1, "no", name)

    monkeypatch.setattr(os, "unlink", refused)
    with pytest.raises(PermissionError) as caught:
        remove_file(roots, bytes(root / "d/file"))
    assert caught.value.filename == bytes(root / "d/file")


def test_remove_refuses_links_and_roots(roots: Roots, root: Path) -> None:
    """A link stays, as does what it leads to; so does the root."""
    (root / "file").write_text("")
    (root / "link").symlink_to("file")
    with pytest.raises(LinkError):
        remove_file(roots, os.fsencode(root / "link"))
    with pytest.raises(WorkspaceError, match="not_a_file"):
        remove_file(roots, os.fsencode(root))
    assert sorted(path.name for path in root.iterdir()) == ["file", "link"]


def _found(roots: Roots, directory: Path, pattern: str, max_files: int = 100, **head: Any) -> list[str]:
    found = find_files(roots, os.fsencode(directory), pattern, max_files, **head)
    paths = [info.path for infos in found for info in infos]
    return [os.fsdecode(os.path.relpath(path, os.fsencode(directory))) for path in paths]


def test_find_by_name_in_path_order(roots: Roots, root: Path) -> None:
    """Files come in the byte order of their paths, from every depth; directories never match."""
    for name in ("b/x.jsonl", "a.jsonl", "a/y.jsonl", "a/z.txt", "a-/w.jsonl", "é/v.jsonl", "d.jsonl/u.jsonl"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("")
    expected = ["a-/w.jsonl", "a.jsonl", "a/y.jsonl", "b/x.jsonl", "d.jsonl/u.jsonl", "é/v.jsonl"]
    assert _found(roots, root, "*.jsonl") == expected == sorted(expected, key=os.fsencode)


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("?.t", ["é.t"]),
        ("[ab]*", ["a[1]", "b"]),
        ("[!ab]*", [".hidden", "é.t"]),
        ("a[[]1]", ["a[1]"]),
        ("*", [".hidden", "a[1]", "b", "é.t"]),
        ("B", []),
    ],
)
def test_find_patterns(roots: Roots, root: Path, pattern: str, names: list[str]) -> None:
    """The three wildcards mean what they mean in a shell; case counts, and a dot is a character."""
    for name in ("a[1]", "b", "é.t", ".hidden"):
        (root / name).write_text("")
    assert _found(roots, root, pattern) == names


@pytest.mark.parametrize("pattern", ["", "a/b", "a\0"])
def test_find_refuses_patterns(roots: Roots, root: Path, pattern: str) -> None:
    """A pattern that no file name can match is a mistake."""
    with pytest.raises(ConfigurationError, match="invalid_argument"):
        _found(roots, root, pattern)


def test_find_follows_no_link(roots: Roots, root: Path) -> None:
    """Links to files and directories, and special files, are passed over; a link to start at is refused."""
    (root.parent / "outside").mkdir()
    (root.parent / "outside" / "x").write_text("")
    (root / "file").write_text("")
    (root / "link").symlink_to("file")
    (root / "directory").symlink_to(root.parent / "outside")
    make_special(root / "fifo", "fifo")
    assert _found(roots, root, "*") == ["file"]
    with pytest.raises(LinkError):
        _found(roots, root / "directory", "*")


def test_find_in_a_missing_directory(roots: Roots, root: Path) -> None:
    """A directory that does not exist has no files."""
    assert _found(roots, root / "missing", "*") == []


def test_find_limits(roots: Roots, root: Path) -> None:
    """More files than allowed, and endless depth, are refused."""
    for number in range(3):
        (root / str(number)).write_text("")
    assert len(_found(roots, root, "*", max_files=3)) == 3
    with pytest.raises(LimitError, match="max_files"):
        _found(roots, root, "*", max_files=2)
    (root / "/".join("d" * 70)).mkdir(parents=True)
    with pytest.raises(LimitError, match="max_depth"):
        _found(roots, root, "nothing")


def test_find_remembers_only_what_matches(roots: Roots, root: Path) -> None:
    """Memory grows neither with files that do not match nor with more of those that do than are allowed."""
    for number in range(3000):
        (root / f"{number:0200}.txt").touch()
    (root / "one.jsonl").touch()
    tracemalloc.start()
    assert _found(roots, root, "*.jsonl") == ["one.jsonl"]
    with pytest.raises(LimitError, match="max_files"):
        _found(roots, root, "*.txt", max_files=3)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 3000 * 100


def test_find_can_be_left_at_any_directory(roots: Roots, root: Path) -> None:
    """Each directory gives a sign of life, matches or not, so that a cancel is not stuck in a large tree."""
    for number in range(10):
        (root / str(number)).mkdir()
    parts = find_files(roots, os.fsencode(root), "*", 1)
    assert sum(1 for infos in parts if infos == []) >= 10


def test_find_by_content(roots: Roots, root: Path) -> None:
    """Only files that have the bytes within their head are found, and only they count against the limit."""
    for name, content in (("a", b"..needle"), ("b", b"...needle"), ("c", b"other"), ("d", b""), ("e/f", b"needle\n")):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(content)
    assert _found(roots, root, "*", 2, contains=b"needle", head_bytes=8) == ["a", "e/f"]
    with pytest.raises(LimitError, match="max_files"):
        _found(roots, root, "*", 2, contains=b"needle", head_bytes=9)
    assert _found(roots, root, "[bc]", contains=b"needle") == ["b"]


def test_find_by_content_looks_at_64_kib_by_default(roots: Roots, root: Path) -> None:
    """What lies behind is not looked at."""
    (root / "within").write_bytes(bytes((64 << 10) - 1) + b"x")
    (root / "behind").write_bytes(bytes(64 << 10) + b"x")
    assert _found(roots, root, "*", contains=b"x") == ["within"]
    assert _found(roots, root, "*", contains=b"x", head_bytes=MAX_HEAD_BYTES) == ["behind", "within"]


@pytest.mark.parametrize(
    ("contains", "head_bytes"), [(b"", MAX_HEAD_BYTES + 1), (b"12345", 4), (bytes((64 << 10) + 1), 0)]
)
def test_find_refuses_heads(roots: Roots, root: Path, contains: bytes, head_bytes: int) -> None:
    """More than the most, and a head too small to have what is looked for, are mistakes."""
    with pytest.raises(ConfigurationError, match="invalid_argument"):
        _found(roots, root, "*", contains=contains, head_bytes=head_bytes)


@pytest.mark.parametrize("kind", ["link", "fifo", "directory", "gone"])
def test_find_by_content_passes_over_what_became_something_else(
    roots: Roots, root: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A file swapped between the listing and the open is neither followed nor waited for."""
    (root.parent / "secret").write_bytes(b"needle")
    for name in ("a", "b"):
        (root / name).write_bytes(b"needle")
    opened = os.open

    def swapping(path: Any, *arguments: Any, **keywords: Any) -> int:
        if path == b"a" and (root / "a").is_file() and not (root / "a").is_symlink():
            (root / "a").unlink()
            if kind == "link":
                (root / "a").symlink_to(root.parent / "secret")
            elif kind != "gone":
                make_special(root / "a", kind)
        return opened(path, *arguments, **keywords)

    monkeypatch.setattr(os, "open", swapping)
    assert _found(roots, root, "*", contains=b"needle") == ["b"]


def test_find_by_content_gives_signs_of_life(roots: Roots, root: Path) -> None:
    """A cancel is not stuck in a directory of many files either."""
    for number in range(300):
        (root / str(number)).touch()
    parts = find_files(roots, os.fsencode(root), "*", 1, contains=b"x")
    assert sum(1 for infos in parts if infos == []) > 4
