"""Remembered digests: believed only for a file that cannot have changed unseen."""

from __future__ import annotations

from sandbox_agent.core.digest import SETTLED_NS, Digests

CHANGED_NS = 10**18
SETTLED = CHANGED_NS + SETTLED_NS
FILE = (1, 2, 3, CHANGED_NS - 5, CHANGED_NS)


def test_a_settled_file_is_remembered_in_its_state_alone() -> None:
    """Another time, size or inode is another state."""
    digests = Digests()
    digests.note([(FILE, b"sha")], read_ns=SETTLED)
    assert digests.get(FILE) == b"sha"
    for place in range(5):
        other = (*FILE[:place], FILE[place] + 1, *FILE[place + 1 :])
        assert digests.get(other) is None


def test_a_file_that_changed_just_before_is_not_remembered() -> None:
    """A second change within the same step of the file system's clock would not show; nor a time to come."""
    digests = Digests()
    for read_ns in (SETTLED - 1, CHANGED_NS, CHANGED_NS - 1):
        digests.note([(FILE, b"sha")], read_ns=read_ns)
        assert digests.get(FILE) is None
    modified_later = (1, 2, 3, CHANGED_NS + 1, CHANGED_NS)
    digests.note([(modified_later, b"sha")], read_ns=SETTLED)
    assert digests.get(modified_later) is None


def test_the_oldest_are_forgotten() -> None:
    """Memory is bounded; noting again makes young."""
    digests = Digests(max_count=2)
    files = [(number, *FILE[1:]) for number in range(3)]
    for file in (files[0], files[1], files[0], files[2]):
        digests.note([(file, b"sha")], read_ns=SETTLED)
    assert [digests.get(file) for file in files] == [b"sha", None, b"sha"]
