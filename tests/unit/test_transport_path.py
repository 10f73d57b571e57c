"""Where objects lie: every key has a path of its own, and none is in another's way."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from host_client.transports.path import folders_of, key_of, path_of

SEGMENTS = st.from_regex(r"\A[A-Za-z0-9_-][A-Za-z0-9_.-]*\Z").map(lambda text: text[:120]) | st.integers(195, 405).map(
    lambda count: "n" * count
)
KEYS = st.lists(SEGMENTS, min_size=1, max_size=4).map("/".join).filter(lambda key: len(key) <= 512)


@given(KEYS)
def test_a_path_tells_its_key(key: str) -> None:
    """There and back, with names that any file system has room for."""
    assert key_of(path_of(key)) == key
    assert all(len(name) <= 202 for name in path_of(key))


@given(KEYS, KEYS)
def test_no_path_is_in_the_way_of_another(one: str, other: str) -> None:
    """No object's path is that of a folder of another, whatever the keys."""
    folders = {path_of(other)[:count] for count in range(len(path_of(other)))}
    assert path_of(one) not in folders
    assert (path_of(one) == path_of(other)) == (one == other)


@given(KEYS, KEYS)
def test_what_goes_on_is_below(one: str, other: str) -> None:
    """A key lies below the folders of another exactly when it goes on after it with a slash."""
    folders = folders_of(one)
    assert (path_of(other)[: len(folders)] == folders) == other.startswith(f"{one}/")


def test_what_is_no_object_has_no_key() -> None:
    """Files of others, and paths that would be another key's, are no objects."""
    for path in (
        ("a",),
        ("!",),
        (".a!",),
        ("a!", "b!"),
        ("a!!",),
        ("a!!", "b!"),
        ("x" * 201 + "!",),
        ("x" * 200 + "!!",),
        ("lost+found", "a!"),
        ("a", "..", "b!"),
        (),
    ):
        assert key_of(path) is None, path
    assert folders_of("") == ()
