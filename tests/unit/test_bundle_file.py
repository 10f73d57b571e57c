"""Bundle files: what is saved is read back, in any legal spelling, and what is wrong is refused."""

from __future__ import annotations

import base64
import json
import os
import random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_api.errors import LimitError, OutpostError, SessionError
from sandbox_api.limits import Limits
from support.saved import (
    FILES,
    ID,
    PROFILE,
    SOURCE,
    contents,
    document,
    opened,
    save,
    saved_path,
    tree_digest,
    tree_entries,
    write_document,
    write_text,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_NAMES = st.text(st.characters(exclude_characters="/\\\0", exclude_categories=("Cs",)), min_size=1, max_size=12).filter(
    lambda name: name not in (".", "..") and name.lower() != ".git" and not name.endswith(".lock")
)
TREES = st.dictionaries(
    st.lists(_NAMES, min_size=1, max_size=3).map(lambda names: "/".join(["files", *names])),
    st.binary(max_size=200),
    max_size=5,
).filter(lambda tree: not any(path.startswith(other + "/") for path in tree for other in tree))


@given(tree=TREES, session=st.binary(max_size=50), piece_bytes=st.integers(1, 70))
def test_any_tree_is_read_as_it_was_saved(
    tmp_path_factory: pytest.TempPathFactory, tree: dict[str, bytes], session: bytes, piece_bytes: int
) -> None:
    """Any tree of any contents, arriving in pieces of any size, comes back with paths, bytes and digest."""
    directory = tmp_path_factory.mktemp("any")
    files = {"session.json": session, **tree}
    assert save(directory, files, piece_bytes=piece_bytes)
    with opened(directory) as saved:
        assert contents(saved) == files
        assert list(saved.entries) == tree_entries(files)
        assert saved.digest == tree_digest(files)
        assert (saved.source, saved.format, saved.conversation_id) == (SOURCE, PROFILE.format, ID)
        saved.verify()


def _same_or_refused(directory: Path, files: dict[str, bytes]) -> None:
    """Assert that a damaged file is refused, or still says exactly what it said."""
    try:
        with opened(directory) as saved:
            digest = saved.digest
            read = contents(saved)
    except OutpostError as error:
        assert error.code in ("session", "limit")  # noqa: PT017 - both outcomes are right, this is one of them
        return
    assert (read, digest) == (files, tree_digest(files))


def test_one_flipped_byte_anywhere_is_found_or_harmless(tmp_path: Path) -> None:
    """Whichever byte of a saved file changes, no wrong content, path or digest is ever given."""
    files = {"session.json": b"{}", "a/b": b"content"}
    save(tmp_path, files)
    good = saved_path(tmp_path).read_bytes()
    for at in range(len(good)):
        for flip in (1, 2, 0x20, 0x80, good[at] ^ ord('"'), good[at] ^ ord("\\"), good[at] ^ ord("=")):
            write_text(tmp_path, good[:at] + bytes([good[at] ^ flip]) + good[at + 1 :])
            _same_or_refused(tmp_path, files)


def test_truncation_anywhere_is_found(tmp_path: Path) -> None:
    """A file that ends early is refused as corrupt, wherever it ends."""
    save(tmp_path, {"session.json": b"{}", "a/b": b"content"})
    good = saved_path(tmp_path).read_bytes()
    for length in range(len(good)):
        write_text(tmp_path, good[:length])
        with pytest.raises(SessionError) as caught:
            opened(tmp_path)
        assert caught.value.reason == "corrupt"


@given(tree=TREES, data=st.data())
def test_damage_to_any_tree_is_found_or_harmless(
    tmp_path_factory: pytest.TempPathFactory, tree: dict[str, bytes], data: st.DataObject
) -> None:
    """For any tree, one damaged place never yields a wrong content."""
    directory = tmp_path_factory.mktemp("damage")
    files = {"session.json": b"{}", **tree}
    save(directory, files)
    text = bytearray(saved_path(directory).read_bytes())
    at = data.draw(st.integers(0, len(text) - 1))
    text[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    write_text(directory, bytes(text))
    _same_or_refused(directory, files)


@given(path=st.text(max_size=40) | st.lists(st.sampled_from(["..", ".", "", "a", ".git", "\\", "\0"])).map("/".join))
def test_no_path_leaves_the_root(tmp_path_factory: pytest.TempPathFactory, path: str) -> None:
    """Whatever path a file names: it is refused, or plain steps below the session directory."""
    directory = tmp_path_factory.getbasetemp()
    write_text(directory, json.dumps(document({"session.json": b"{}", path: b"x"})))
    try:
        with opened(directory) as saved:
            paths = [entry.path.decode() for entry in saved.entries]
    except SessionError as error:
        assert error.reason in ("unsafe_name", "corrupt", "missing_required")  # noqa: PT017 - one of two right outcomes
        return
    for read in paths:
        assert not read.startswith("/")
        assert not {"", ".", "..", ".git"} & set(read.split("/"))
        assert not {"\\", "\0"} & set(read)


def _escaped(text: str) -> str:
    return "".join(f"\\u{ord(char):04X}" if index % 2 else char for index, char in enumerate(text)).replace("/", "\\/")


SPELLINGS: dict[str, Callable[[dict[str, Any]], str]] = {
    "JSON.stringify": lambda value: json.dumps(value, separators=(",", ":"), ensure_ascii=False),
    "indented": lambda value: json.dumps(value, indent=3),
    "other order": lambda value: json.dumps({name: value[name] for name in reversed(value)}),
    "files in another order": lambda value: json.dumps({**value, "files": value["files"][::-1]}),
    "members in another order": lambda value: json.dumps(
        {**value, "files": [{"data": file["data"], "path": file["path"]} for file in value["files"]]}
    ),
    "extra members": lambda value: json.dumps(
        {
            "mine": {"deep": [1, "x", None]},
            **value,
            "files": [{"mode": 384, **file, "tags": ["a"]} for file in value["files"]],
        }
    ),
    "all escaped": lambda value: (
        '{"v\\u0065rsion":1e0,"format":"'
        + _escaped(value["format"])
        + f'","id":"{_escaped(value["id"])}","source":"{_escaped(value["source"])}","files":['
        + ",".join(
            f'{{"path":{json.dumps(file["path"])},"data":"{_escaped(file["data"])}"}}' for file in value["files"]
        )
        + "]}"
    ),
    "spaced": lambda value: " \n" + json.dumps(value, separators=("\t,\r\n", " : ")) + "\n\n",
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_legal_spelling_is_read(tmp_path: Path, spelling: str) -> None:
    """Key order, spaces, escapes (also in base64), extra members and file order change nothing of what is read."""
    files = {**FILES, "big": random.Random(1).randbytes(5000)}  # noqa: S311 - any bytes
    write_text(tmp_path, SPELLINGS[spelling](document(files)))
    with opened(tmp_path) as saved:
        assert contents(saved) == files
        assert saved.digest == tree_digest(files)


def _wrong(**changes: object) -> dict[str, Any]:
    value: dict[str, Any] = {**document(FILES), **changes}
    return {name: part for name, part in value.items() if part is not ...}


def _with_file(path: object, data: object, **extra: object) -> dict[str, Any]:
    value = document(FILES)
    assert isinstance(value["files"], list)
    value["files"].append({"path": path, "data": data, **extra})
    return value


@pytest.mark.parametrize(
    ("value", "reason", "named"),
    [
        ([], "corrupt", "object"),
        (_wrong(version=2), "corrupt", "version"),
        (_wrong(version="1"), "corrupt", "number"),
        (_wrong(version=...), "corrupt", "'version'"),
        (_wrong(format="other"), "corrupt", "format is 'other'"),
        (_wrong(format=...), "corrupt", "'format'"),
        (_wrong(id="S2"), "corrupt", "id is 'S2'"),
        (_wrong(source=5), "corrupt", "string"),
        (_wrong(files=...), "corrupt", "'files'"),
        (_wrong(files={}), "corrupt", "array"),
        (_wrong(files=[]), "corrupt", "no file"),
        (_wrong(files=[1]), "corrupt", "object"),
        (_wrong(files=[{"path": "session.json"}]), "corrupt", "'data'"),
        (_wrong(files=[{"data": ""}]), "corrupt", "'path'"),
        (_wrong(files=[{"path": "other", "data": ""}]), "missing_required", "session.json"),
        (_wrong(digest="0" * 64), "digest_mismatch", "digest"),
        (_wrong(digest="xyz"), "corrupt", "64"),
        (_with_file("../x", ""), "unsafe_name", "../x"),
        (_with_file("/etc/x", ""), "unsafe_name", "/etc/x"),
        (_with_file("a/.GIT/x", ""), "unsafe_name", ".GIT"),
        (_with_file("a\\b", ""), "unsafe_name", "backslash"),
        (_with_file("session.json", ""), "corrupt", "duplicate"),
        (_with_file("session.json/x", ""), "corrupt", "below a file"),
        (_with_file("cache/x", ""), "corrupt", "not selected"),
        (_with_file("a.lock", ""), "corrupt", "not selected"),
        (_with_file("x", "AAA"), "corrupt", "multiple of four"),
        (_with_file("x", "AAA*"), "corrupt", "character"),
        (_with_file("x", "AA-_"), "corrupt", "character"),
        (_with_file("x", "AA A"), "corrupt", "character"),
        (_with_file("x", "AB=="), "corrupt", "bits after"),
        (_with_file("x", "AAB="), "corrupt", "bits after"),
        (_with_file("x", "AA==AAAA"), "corrupt", "character"),
        (_with_file("x", "===="), "corrupt", "character"),
        (_with_file("x", "A\u00e9AA"), "corrupt", "character"),
        (_with_file("x", "AAAA", sha256="0" * 64), "digest_mismatch", "'x'"),
        (_with_file("x", "AAAA", sha256="ABC"), "corrupt", "64"),
    ],
)
def test_each_broken_rule_is_told(tmp_path: Path, value: object, reason: str, named: str) -> None:
    """A file that breaks one rule is refused with the reason, the file and the thing at fault, and stays as it is."""
    write_document(tmp_path, value)
    before = saved_path(tmp_path).read_bytes()
    with pytest.raises(SessionError) as caught, opened(tmp_path) as saved:
        saved.verify()
    assert caught.value.reason == reason
    assert named in str(caught.value)
    assert str(saved_path(tmp_path)) in caught.value.message
    assert saved_path(tmp_path).read_bytes() == before


def test_all_unsafe_paths_are_named(tmp_path: Path) -> None:
    """Not only the first offender is told."""
    write_document(tmp_path, document({**FILES, "../a": b"", "b/../c": b"", "ok": b""}))
    with pytest.raises(SessionError) as caught:
        opened(tmp_path)
    assert {offender.path for offender in caught.value.offenders} == {"../a", "b/../c"}


@pytest.mark.parametrize(
    ("limits", "reason"), [(Limits(max_files=3), "max_files"), (Limits(max_bytes=99), "max_bytes")]
)
def test_limits_hold_for_a_saved_file(tmp_path: Path, limits: Limits, reason: str) -> None:
    """A file with more files or bytes than the caller allows is refused, before its contents are read."""
    save(tmp_path, FILES)
    with pytest.raises(LimitError) as caught:
        opened(tmp_path, limits)
    assert caught.value.reason == reason


def test_a_wrong_content_is_never_given_whole(tmp_path: Path) -> None:
    """A content whose digest is wrong ends in an error before its last piece, however large it is."""
    big = random.Random(2).randbytes(3 << 20)  # noqa: S311 - any bytes
    save(tmp_path, {**FILES, "big": big})
    text = saved_path(tmp_path).read_bytes()
    at = text.index(b'"big"') + 100
    write_text(tmp_path, text[:at] + (b"A" if text[at : at + 1] != b"A" else b"B") + text[at + 1 :])
    given_bytes = 0
    with opened(tmp_path) as saved:
        index = [entry.path for entry in saved.entries].index(b"big")
        with pytest.raises(SessionError) as caught:  # noqa: PT012 - what came before the error counts
            for piece in saved.pieces(index, lambda: 1 << 20):
                given_bytes += len(piece)
    assert caught.value.reason == "digest_mismatch"
    assert given_bytes < len(big)


def test_a_link_and_a_pipe_are_not_read(tmp_path: Path) -> None:
    """A symbolic link in place of the file is refused, and a FIFO does not hang the reader."""
    save(tmp_path, FILES)
    saved_path(tmp_path).rename(tmp_path / "elsewhere.json")
    saved_path(tmp_path).symlink_to("elsewhere.json")
    with pytest.raises(OutpostError) as caught:
        opened(tmp_path)
    assert (caught.value.code, caught.value.reason) == ("workspace", "unsafe_path")
    saved_path(tmp_path).unlink()
    os.mkfifo(saved_path(tmp_path))
    with pytest.raises(SessionError) as refused:
        opened(tmp_path)
    assert refused.value.reason == "corrupt"


def test_base64_of_every_length_is_canonical(tmp_path: Path) -> None:
    """What we write is what any base64 encoder writes, for every length, piece by piece."""
    files = {"session.json": b"", **{f"n{size:02}": bytes(range(size)) for size in range(40)}}
    save(tmp_path, files, piece_bytes=7)
    read = json.loads(saved_path(tmp_path).read_text())
    assert {file["path"]: file["data"] for file in read["files"]} == {
        path: base64.b64encode(data).decode() for path, data in files.items()
    }
