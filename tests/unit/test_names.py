"""Ids and paths of a bundle: what is usable and what is refused."""

from __future__ import annotations

import posixpath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_api.errors import ConfigurationError, printable
from sandbox_api.names import check_conversation_id, check_format, name_problem, order_problem, path_problem


@pytest.mark.parametrize("good", ["a", "A-z_09", "-rf", "x" * 128, "01a22be9-5f42-7292-adca-d8b056614c78"])
def test_a_conversation_id_is_returned_as_it_is(good: str) -> None:
    """Letters, digits, underscore and dash, up to 128."""
    assert check_conversation_id(good) == good


@pytest.mark.parametrize("bad", ["", "session 1/../x", "x" * 300, "x" * 129, "é", "a.b", "a\n", "١", "a/b", "..", "\0"])
def test_a_bad_conversation_id_is_refused(bad: str) -> None:
    """`configuration`/`invalid_id`, before any path is built; the id is shown escaped once."""
    with pytest.raises(ConfigurationError) as caught:
        check_conversation_id(bad)
    assert caught.value.reason == "invalid_id"
    assert caught.value.message == f"'{printable(bad[:140])}' is not a conversation id"


@pytest.mark.parametrize("bad", ["", ".hidden", "a/b", "a b", "x" * 129, "é", ".."])
def test_a_bad_format_name_is_refused(bad: str) -> None:
    """A format name is one segment of a transport key."""
    with pytest.raises(ConfigurationError):
        check_format(bad)


@pytest.mark.parametrize(
    "good",
    [b"[slug]", b"a:b", b"-rf", b"new\nline", b"x" * 255, b" spaces ", b"dot.", b"...", b".gitignore", "ü".encode()],
)
def test_odd_but_legal_names_are_usable(good: bytes) -> None:
    """Any UTF-8 name that is one plain segment."""
    assert name_problem(good) is None


@pytest.mark.parametrize(
    "bad", [b"", b".", b"..", b".git", b".GIT", b".Git", b"a\\b", b"a\0b", b"a/b", b"x" * 256, b"\xff", b"\xed\xa0\x80"]
)
def test_unusable_names_are_told(bad: bytes) -> None:
    """Empty, relative steps, git folders, separators, NUL, too long, not UTF-8."""
    assert name_problem(bad)


@given(st.lists(st.binary(min_size=1, max_size=12), min_size=1, max_size=6))
def test_no_usable_path_leaves_its_root(segments: list[bytes]) -> None:
    """A path without a problem, normalised below a root, stays below it and is itself."""
    path = b"/".join(segments)
    if path_problem(path) is None:
        assert posixpath.normpath(b"/root/" + path) == b"/root/" + path


@pytest.mark.parametrize(
    "bad", [b"/x", b"../x", b"a/../../x", b"a//b", b"a/", b"a/.git/b", b"/".join([b"d"] * 65), b"x/" * 2050]
)
def test_unusable_paths_are_told(bad: bytes) -> None:
    """Absolute, stepping up, empty segments, too deep, too long."""
    assert path_problem(bad)


@pytest.mark.parametrize(
    ("paths", "culprit"),
    [
        ([b"a", b"a"], b"a"),
        ([b"b", b"a"], b"a"),
        ([b"a", b"a/b"], b"a/b"),
        ([b"a", b"a.b", b"a/b/c"], b"a/b/c"),
    ],
    ids=["duplicate", "disorder", "file and directory", "with a name between"],
)
def test_a_broken_order_names_its_path(paths: list[bytes], culprit: bytes) -> None:
    """Duplicates, disorder and a path below a file are found."""
    found = order_problem(paths)
    assert found is not None
    assert found[0] == culprit


@given(st.sets(st.text("ab./", min_size=1, max_size=5).filter(lambda text: not path_problem(text.encode()))))
def test_sorted_paths_are_refused_only_for_nesting(paths: set[str]) -> None:
    """The order check agrees with the definition: sorted, and no path below another."""
    ordered = sorted(path.encode() for path in paths)
    nested = any(other.startswith(path + b"/") for path in ordered for other in ordered)
    assert (order_problem(ordered) is not None) == nested
