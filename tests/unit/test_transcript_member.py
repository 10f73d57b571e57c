"""What belongs to a transcript conversation: named, checked, placed and counted."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import pytest

from host_client.errors import ConfigurationError, LimitError, SessionError
from host_client.stores import transcript_member
from host_client.stores.layout import Conversation, Related, Skipped
from host_client.stores.transcript_member import Members, below, is_own, kept_digest, members
from sandbox_api.manifest import Entry, bundle_digest
from support.transcript_format import LAYOUT, WITH_SIDECARS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from host_client.stores.layout import TranscriptFunctions

pytestmark = pytest.mark.anyio

MAIN = PurePosixPath("p/key/S1.jsonl")
CHILD = PurePosixPath("p/key/S1/subagents/agent-x.jsonl")


class Files:
    """Files that are there in name only."""

    def __init__(self, *paths: PurePosixPath) -> None:
        self.paths = paths

    async def find(
        self, directory: PurePosixPath, pattern: str = "*", *, contains: bytes = b""
    ) -> Sequence[PurePosixPath]:
        """Return those below the directory that match."""
        del contains
        return sorted(path for path in self.paths if path.is_relative_to(directory) and path.match(pattern))

    async def exists(self, path: PurePosixPath) -> bool:
        """Tell whether it is one of them."""
        return path in self.paths

    async def first_line(self, path: PurePosixPath) -> bytes:
        """Return nothing."""
        del path
        return b""


async def named(layout: TranscriptFunctions, *found: Related | Skipped, files: Files | None = None) -> Members:
    """Return the members of a conversation for which the layout names these."""

    async def related(conversation: Conversation) -> Sequence[Related | Skipped]:
        del conversation
        return found

    conversation = Conversation("S1", MAIN, files or Files(MAIN, CHILD), {})
    return await members(replace(layout, related=related), conversation)


async def test_children_belong_when_the_layout_says_so() -> None:
    """With sidecars every `.jsonl` below `<id>/subagents` belongs, beside the transcript; without none does."""
    other = PurePosixPath("p/key/S1/subagents/agent-x.meta.json")
    found = await named(WITH_SIDECARS, files=Files(MAIN, CHILD, other, PurePosixPath("p/key/S2/subagents/y.jsonl")))
    assert found == Members(MAIN, [Related(CHILD, "transcript", beside=True)], [])
    assert (await named(LAYOUT)).related == []


async def test_what_the_layout_names_wins_over_the_rule_of_children() -> None:
    """A file is told once, as the layout says; the main transcript is no companion of itself."""
    plain = Related(CHILD, "plain")
    found = await named(WITH_SIDECARS, plain, plain, Related(MAIN, "transcript"), Skipped(CHILD, "why not"))
    assert found.related == [plain]
    assert found.skipped == []
    assert [member.path for member in found.all] == [CHILD, MAIN]
    assert found.transcripts == [MAIN]


async def test_child_that_the_layout_leaves_out_is_left_out() -> None:
    """A file that the rule of children finds is not carried when the layout says so, and is told."""
    found = await named(WITH_SIDECARS, Skipped(CHILD, "why not"))
    assert found == Members(MAIN, [], [Skipped(CHILD, "why not")])


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x", "a/.git/config", "a\\b", "n" * 300, "\udcff"])
async def test_a_path_that_cannot_be_is_refused(path: str) -> None:
    """Nothing is opened by a path that is not plain; every one of them is named."""
    with pytest.raises(SessionError) as caught:
        await named(LAYOUT, Related(PurePosixPath(path)), Related(PurePosixPath("../y")))
    assert caught.value.reason == "unsafe_name"
    assert len(caught.value.offenders) == 2


async def test_a_layout_that_contradicts_itself_is_refused() -> None:
    """One file in two ways, and lines by no key, are mistakes of the layout's author."""
    for wrong in ((Related(CHILD), Related(CHILD, "transcript")), (Related(CHILD, "lines"),)):
        with pytest.raises(ConfigurationError) as caught:
            await named(LAYOUT, *wrong)
        assert caught.value.reason == "invalid_argument"


async def test_what_was_set_aside_is_no_member() -> None:
    """Files in recovery and staging folders never belong to a conversation."""
    found = await named(
        LAYOUT,
        Related(PurePosixPath(".outpost-recovery/S1-x/a")),
        Related(PurePosixPath(".outpost-session-00/a")),
        Related(PurePosixPath("a")),
    )
    assert [member.path for member in found.related] == [PurePosixPath("a")]
    assert is_own(PurePosixPath("x/.outpost-recovery/y"))


async def test_the_number_of_files_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A layout that finds endless files is stopped."""
    monkeypatch.setattr(transcript_member, "MAX_FILES_COUNT", 2)
    await named(LAYOUT, Related(PurePosixPath("a")))
    with pytest.raises(LimitError) as caught:
        await named(LAYOUT, Related(PurePosixPath("a")), Related(PurePosixPath("b")))
    assert caught.value.reason == "max_files"


def test_places_on_the_other_side() -> None:
    """What lies beside the transcript keeps that place, the rest its path below the home."""
    plan = PurePosixPath("plans/x.md")
    found = Members(MAIN, [Related(CHILD, beside=True), Related(plan)], [])
    target = PurePosixPath("p/other/S1.jsonl")
    assert found.places(target) == {
        CHILD: PurePosixPath("p/other/S1/subagents/agent-x.jsonl"),
        plan: plan,
        MAIN: target,
    }


@pytest.mark.parametrize(
    "related",
    [
        [Related(PurePosixPath("elsewhere/x"), beside=True)],
        [Related(PurePosixPath("q/S1.jsonl"))],
        [Related(PurePosixPath("q/S1.jsonl/below"))],
        [Related(PurePosixPath("p/key/x"), beside=True), Related(PurePosixPath("q/x"))],
    ],
)
def test_places_that_meet_are_refused(related: list[Related]) -> None:
    """Two files at one place, one below another, or none beside: refused before anything is sent."""
    with pytest.raises(ConfigurationError) as caught:
        Members(MAIN, related, []).places(PurePosixPath("q/S1.jsonl"))
    assert caught.value.reason == "invalid_argument"


def test_the_digest_is_that_of_a_bundle_in_order() -> None:
    """The order in which files were read does not matter."""
    entries = [Entry(name, 1, hashlib.sha256(name).digest()) for name in (b"a", b"a/b", b"b")]
    assert kept_digest(reversed(entries)) == kept_digest(entries) == bundle_digest(entries).hex()


def test_paths_are_told_below_the_home() -> None:
    """A layout's path becomes one below the home, or is refused."""
    home = PurePosixPath("/h")
    assert below(home, home / "a/b", "it") == PurePosixPath("a/b")
    assert below(home, home, "it", or_home=True) == PurePosixPath()
    for path in ("/h", "/hh/a", "a", "/h/../x", "/h/a/../../x", "/h/.git/x"):
        with pytest.raises(ConfigurationError) as caught:
            below(home, PurePosixPath(path), "it")
        assert caught.value.reason == "invalid_argument"
