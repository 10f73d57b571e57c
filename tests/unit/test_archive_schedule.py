"""The order in which objects are read so that all files are hashed."""

from __future__ import annotations

import hashlib
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from host_client.stores.archive_schedule import Part, Schedule, Wanted, advance, parts

CONTENTS = {"a": b"alpha", "b": b"be", "c": b"", "d": b"delta!", "e": b"e"}


def sha256(content: bytes) -> str:
    """Return a SHA-256 in hex."""
    return hashlib.sha256(content).hexdigest()


def wanted(name: str) -> Wanted:
    """Return an object as a manifest speaks of it."""
    return Wanted(name, len(CONTENTS[name]))


def whole(names: str) -> list[Part]:
    """Return a file that is whole objects, one after the other."""
    return [Part(wanted(name), 0, len(CONTENTS[name])) for name in names]


def wrong_files(schedule: Schedule[str], missing: str = "") -> tuple[list[str], list[str]]:
    """Go through a schedule; return the order of objects, and whose files turned out to be others."""
    order = []
    wrong: list[str] = []
    for (name, _), steps in schedule.order():
        order.append(name)
        for _, owners in advance(steps, None if name == missing else CONTENTS[name]):
            wrong += owners
    return order, wrong


def test_a_stream_of_files_is_cut_into_parts() -> None:
    """Files within a chunk, across chunks and without content."""
    x, y = Wanted("x", 5), Wanted("y", 4)
    assert list(parts([3, 0, 4, 2], [x, y])) == [[Part(x, 0, 3)], [], [Part(x, 3, 5), Part(y, 0, 2)], [Part(y, 2, 4)]]


def test_what_chunks_do_not_have_is_left_out() -> None:
    """Sizes that do not fit make no endless loop, and no part that is not there."""
    x = Wanted("x", 5)
    assert list(parts([9, 1], [x])) == [[Part(x, 0, 5)], []]


def test_common_beginnings_are_read_once() -> None:
    """Ten states of a file that grows: each object once."""
    schedule: Schedule[str] = Schedule()
    names = "abdeab"
    for count in range(1, 5):
        file = whole(names[:count])
        schedule.add(file, sha256(b"".join(CONTENTS[part.wanted.name] for part in file)), f"s{count}")
    order, wrong = wrong_files(schedule)
    assert order == ["a", "b", "d", "e"]
    assert not wrong


def test_common_ends_are_read_once() -> None:
    """Two files whose first objects differ and whose others are the same."""
    schedule: Schedule[str] = Schedule()
    for first in "ab":
        schedule.add(whole(first + "de"), sha256(CONTENTS[first] + b"delta!e"), first)
    order, wrong = wrong_files(schedule)
    assert Counter(order) == Counter("abde")
    assert order[2:] == ["d", "e"]
    assert not wrong


def test_a_wrong_digest_is_told_with_its_owners() -> None:
    """Who has the file is told, and nobody else."""
    schedule: Schedule[str] = Schedule()
    schedule.add(whole("ab"), sha256(b"other"), "one")
    schedule.add(whole("ab"), sha256(b"other"), "two")
    schedule.add(whole("ab"), sha256(b"alphabe"), "three")
    schedule.add(whole("abd"), sha256(b"alphabedelta!"), "four")
    assert wrong_files(schedule)[1] == ["one", "two"]


def test_what_a_missing_object_hurts() -> None:
    """All files with bytes of it, and none of them is judged by its digest."""
    schedule: Schedule[str] = Schedule()
    for names in ("a", "ab", "abd", "db"):
        schedule.add(whole(names), sha256(b"other"), names)
    assert set(schedule.hurt(wanted("b"))) == {"ab", "abd", "db"}
    assert wrong_files(schedule, missing="b")[1] == ["a"]


def test_what_many_missing_objects_hurt_is_told_soon() -> None:
    """Who wrote a manifest may have named one object, or many that are not there, as often as there is room."""
    schedule: Schedule[str] = Schedule()
    many = [Wanted(str(number), 1) for number in range(20_000)]
    for owner, objects in (("same", 20_000 * [Wanted("x", 1)]), ("others", many)):
        schedule.add([Part(one, 0, 1) for one in objects], "0" * 64, owner)
    assert list(schedule.hurt(Wanted("x", 1))) == ["same"]
    assert [owner for one in many for owner in schedule.hurt(one)] == 20_000 * ["others"]


@given(st.lists(st.lists(st.sampled_from("abde"), min_size=1, max_size=6).map("".join), min_size=1, max_size=8))
def test_every_file_is_judged_whatever_the_order_of_its_objects(files: list[str]) -> None:
    """Files that have objects in any order, repeated as well: right ones are found right, wrong ones wrong."""
    schedule: Schedule[str] = Schedule()
    for names in sorted(set(files)):
        content = b"".join(CONTENTS[name] for name in names)
        schedule.add(whole(names), sha256(content), f"right {names}")
        schedule.add(whole(names), sha256(content + b"x"), f"wrong {names}")
    order, wrong = wrong_files(schedule)
    assert Counter(wrong) == Counter({f"wrong {names}": 1 for names in set(files)})
    assert set(order) == set("".join(files))
    assert all(step.hash is None for steps in schedule.steps.values() for step in steps)


@given(st.permutations("abde"), st.lists(st.integers(0, 4), min_size=1, max_size=6))
def test_no_object_is_read_twice_where_that_can_be(objects: list[str], counts: list[int]) -> None:
    """Files that have their objects in one common order, each with some of them left out."""
    schedule: Schedule[str] = Schedule()
    for count in counts:
        names = objects[:count] + objects[count + 1 :]
        schedule.add(whole("".join(names)), "", "")
    order, _ = wrong_files(schedule)
    assert len(order) == len(set(order))
