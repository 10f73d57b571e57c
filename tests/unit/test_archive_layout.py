"""Keys of an archive: what is listed is ours only if it is exactly what we would have written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_client.errors import ConfigurationError
from host_client.stores.archive_layout import ConversationKey, Layout, content_name, new_generation
from host_client.transports.contract import check_key

NAME = "ab" + "0123456789" * 6 + "cd"
SNAPSHOT = "0123456789abcdef" * 2
NAMESPACES = ["a", "a/b", "a/ab", "a/b/c", "a-b", "ab", "a/index", "a/snapshots", f"a/{NAME}", f"a/{SNAPSHOT}", "index"]
segment = st.from_regex(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,20}", fullmatch=True)


def test_keys_are_what_the_documentation_says() -> None:
    """Index, manifest, data with and without a generation, mark."""
    layout = Layout("team/a")
    assert layout.index_key("claude", "x") == "conversations/team/a/claude/x/index"
    assert layout.snapshot_key("claude", "x", SNAPSHOT) == f"conversations/team/a/claude/x/snapshots/{SNAPSHOT}"
    assert layout.data_key(NAME) == f"data/team/a/ab/{NAME}"
    assert layout.data_key(f"{NAME}.00000001") == f"data/team/a/ab/{NAME}.00000001"
    assert layout.mark_key(NAME) == f"marks/team/a/{NAME}"
    assert layout.probe_key().startswith("probe/team/a/")
    assert layout.probe_key() != layout.probe_key()


@given(namespace=st.lists(segment, min_size=1, max_size=5).map("/".join), format_name=segment)
def test_all_keys_can_be_used_and_are_read_back(namespace: str, format_name: str) -> None:
    """Every key of a namespace is one that a transport accepts, and says again what it is."""
    layout = Layout(namespace)
    index, manifest = layout.index_key(format_name, "x" * 128), layout.snapshot_key(format_name, "x" * 128, SNAPSHOT)
    assert layout.parse_conversation(check_key(index)) == ConversationKey(format_name, "x" * 128)
    assert layout.parse_conversation(check_key(manifest)) == ConversationKey(format_name, "x" * 128, SNAPSHOT)
    for name in (NAME, new_generation(NAME)):
        assert layout.parse_data(check_key(layout.data_key(name))) == name
        assert layout.parse_mark(check_key(layout.mark_key(name))) == name
    check_key(layout.probe_key())


@pytest.mark.parametrize("mine", NAMESPACES)
@pytest.mark.parametrize("theirs", NAMESPACES)
def test_namespaces_do_not_meet(mine: str, theirs: str) -> None:
    """No key of a namespace is taken for one of another, whatever its name continues."""
    other = Layout(theirs)
    seen = [
        Layout(mine).parse_conversation(other.index_key("claude", "x")),
        Layout(mine).parse_conversation(other.snapshot_key("claude", "x", SNAPSHOT)),
        Layout(mine).parse_conversation(other.index_key("snapshots", "snapshots")),
        Layout(mine).parse_conversation(other.snapshot_key("index", "index", SNAPSHOT)),
        Layout(mine).parse_data(other.data_key(NAME)),
        Layout(mine).parse_mark(other.mark_key(NAME)),
    ]
    assert all(seen) if mine == theirs else not any(seen)


@pytest.mark.parametrize(
    "key",
    [
        "conversations/a",
        "conversations/a/claude/x",
        "conversations/a/claude/x/index2",
        "conversations/a/claude/x/index/",
        "conversations/a/claude/x.y/index",
        "conversations/a/.claude/x/index",
        f"conversations/a/claude/x/snapshots/{SNAPSHOT}0",
        f"conversations/a/claude/x/snapshots/{SNAPSHOT.upper()}",
        f"conversations/a/claude/x/manifests/{SNAPSHOT}",
        "conversations/a/claude/x/index\n",
        f"data/a/cd/{NAME}",
        f"data/a/ab/{NAME}.1",
        f"data/a/ab/{NAME}.0000000G",
        f"data/a/ab/{NAME}/x",
        f"data/a/{NAME}",
        f"data/ab/ab/{NAME}",
        f"marks/a/ab/{NAME}",
        f"marks/a/{NAME[1:]}",
    ],
)
def test_what_is_not_ours_is_passed_over(key: str) -> None:
    """Keys that are nearly right as well."""
    layout = Layout("a")
    assert layout.parse_conversation(key) is layout.parse_data(key) is layout.parse_mark(key) is None


@pytest.mark.parametrize("namespace", ["", "/", "a/", "/a", "a//b", ".a", "a/..", "ä", "a b", "a" * 129])
def test_what_cannot_be_a_namespace_is_refused(namespace: str) -> None:
    """By the rule of keys, and since the longest key must fit."""
    with pytest.raises(ConfigurationError) as caught:
        Layout(namespace)
    assert caught.value.reason == "invalid_key"


def test_the_longest_keys_fit() -> None:
    """The longest namespace, format and id make a key that a transport accepts."""
    layout = Layout("n" * 128)
    assert check_key(layout.snapshot_key("f" * 128, "i" * 128, SNAPSHOT))


def test_generations_keep_the_content_name() -> None:
    """A second generation replaces the first one."""
    again = new_generation(new_generation(NAME))
    assert content_name(again) == NAME
    assert len(again) == len(NAME) + 9
