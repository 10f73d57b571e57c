"""Conversations as the host keeps them: found, and read whole."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import pytest

from host_client.errors import LimitError, SessionError
from host_client.session.transcript_scan import TranscriptScan
from host_client.stores.context import ConversationContext
from host_client.stores.layout import Conversation, Related, Skipped
from host_client.stores.transcript_home import HostFiles, HostHome
from host_client.stores.transcript_kept import effective_limits, find_kept, read_kept
from sandbox_api.limits import Limits
from sandbox_api.manifest import Entry, bundle_digest
from support.transcript_format import ID, IN_BUCKETS, lines, write_transcript

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.anyio

LIMITS = effective_limits(ConversationContext())
MAIN = PurePosixPath("sessions/r/S1.jsonl")


def files_of(tmp_path: Path, repository: Path | None = None) -> HostFiles:
    """Return the files of a conversation home, seen from a repository."""
    context = ConversationContext(conversation_home=tmp_path, repository=repository or tmp_path / "r")
    return HostFiles(HostHome.of(IN_BUCKETS, context))


def entry(files: HostFiles, path: str) -> Entry:
    """Return the entry of a file."""
    content = (files.home.host_path / path).read_bytes()
    return Entry(os.fsencode(path), len(content), hashlib.sha256(content).digest())


async def test_everything_that_belongs_is_counted(tmp_path: Path) -> None:
    """Digest, files and bytes are those of the main transcript and its children."""
    write_transcript(tmp_path / ".mycli/sessions/r")
    files = files_of(tmp_path)
    kept = await read_kept(IN_BUCKETS, ID, files, MAIN, limits=LIMITS)
    child = "sessions/r/S1/subagents/agent-x.jsonl"
    expected = [entry(files, str(MAIN)), entry(files, child)]
    assert kept.digest == bundle_digest(sorted(expected)).hex()
    assert kept.bytes_count == sum(one.size for one in expected)
    assert kept.scan.has_record
    assert kept.notices == []


async def test_what_is_known_is_not_read_again(tmp_path: Path) -> None:
    """Entries of files that were just written are believed, with the scan of the main transcript."""
    write_transcript(tmp_path / ".mycli/sessions/r")
    scan = TranscriptScan()
    known = {MAIN: Entry(os.fsencode(MAIN), 3, bytes(32))}
    kept = await read_kept(IN_BUCKETS, ID, files_of(tmp_path), MAIN, limits=LIMITS, known=known, scan=scan)
    assert kept.entries[MAIN] == known[MAIN]
    assert kept.scan is scan


async def test_odd_ends_are_noticed(tmp_path: Path) -> None:
    """A torn tail and NUL bytes are told with their offsets, a transcript without a directory as such."""
    content = b'{"a":1}\n\0\0\n{"to'
    write_transcript(tmp_path / ".mycli/sessions/r", content)
    kept = await read_kept(IN_BUCKETS, ID, files_of(tmp_path), MAIN, limits=LIMITS)
    assert {notice.reason: notice.offset for notice in kept.notices} == {
        "torn_tail": 11,
        "nul_bytes": 8,
        "no_origin": None,
    }


async def test_missing_files_are_noticed_or_refused(tmp_path: Path) -> None:
    """A companion that is not there is a notice, a required file a failure; what is skipped is told."""
    write_transcript(tmp_path / ".mycli/sessions/r")
    gone = PurePosixPath("gone.txt")

    async def related(_: Conversation) -> Sequence[Related | Skipped]:
        return [Related(gone), Skipped(PurePosixPath("db"), "index")]

    kept = await read_kept(replace(IN_BUCKETS, related=related), ID, files_of(tmp_path), MAIN, limits=LIMITS)
    assert [(notice.reason, notice.path) for notice in kept.notices] == [("missing_companion", "gone.txt")]
    assert [(item.path, item.why) for item in kept.left_out] == [("db", "index")]

    async def required(_: Conversation) -> Sequence[Related | Skipped]:
        return [Related(gone, required=True)]

    with pytest.raises(SessionError) as caught:
        await read_kept(replace(IN_BUCKETS, related=required), ID, files_of(tmp_path), MAIN, limits=LIMITS)
    assert caught.value.reason == "missing_required"
    assert [offender.path for offender in caught.value.offenders] == ["gone.txt"]


async def test_lines_of_others_do_not_count(tmp_path: Path) -> None:
    """Of a shared file only the lines that belong count, and a file that has none does not."""
    write_transcript(tmp_path / ".mycli/sessions/r")
    index = tmp_path / ".mycli/index.jsonl"

    async def related(_: Conversation) -> Sequence[Related | Skipped]:
        return [Related(PurePosixPath("index.jsonl"), "lines", key="id", values=frozenset({ID}))]

    layout = replace(IN_BUCKETS, related=related)
    index.write_bytes(b'{"id":"other"}\n[1]\nno json\n')
    without = await read_kept(layout, ID, files_of(tmp_path), MAIN, limits=LIMITS)
    assert PurePosixPath("index.jsonl") not in without.entries
    index.write_bytes(b'{"id":"other"}\n{"n":1,"id":"S1"}\n{"id":"other"}\n{"id":"S1"}')
    kept = await read_kept(layout, ID, files_of(tmp_path), MAIN, limits=LIMITS)
    own = b'{"n":1,"id":"S1"}\n{"id":"S1"}\n'
    assert kept.entries[PurePosixPath("index.jsonl")] == Entry(b"index.jsonl", len(own), hashlib.sha256(own).digest())


async def test_limits_hold(tmp_path: Path) -> None:
    """The caller's limits bound files and bytes."""
    write_transcript(tmp_path / ".mycli/sessions/r")
    for limits, reason in ((Limits(max_files=1), "max_files"), (Limits(max_bytes=len(lines())), "max_bytes")):
        with pytest.raises(LimitError) as caught:
            await read_kept(IN_BUCKETS, ID, files_of(tmp_path), MAIN, limits=limits)
        assert caught.value.reason == reason


def test_one_id_in_two_folders(tmp_path: Path) -> None:
    """The repository's own one is taken and the other told; from elsewhere both are named with size and time."""
    for name, count in (("p", 10), ("q", 12)):
        write_transcript(tmp_path / ".mycli/sessions" / name, lines(count=count))
    found = find_kept(IN_BUCKETS, ID, files_of(tmp_path, tmp_path / "q"))
    assert found is not None
    assert found.main == PurePosixPath("sessions/q/S1.jsonl")
    assert [(notice.reason, notice.path) for notice in found.notices] == [("other_copy", "sessions/p/S1.jsonl")]
    assert [item.path for item in found.left_out] == ["sessions/p/S1.jsonl"]
    with pytest.raises(SessionError) as caught:
        find_kept(IN_BUCKETS, ID, files_of(tmp_path))
    assert caught.value.reason == "ambiguous"
    told = {offender.path: offender.problem for offender in caught.value.offenders}
    folder = tmp_path / ".mycli/sessions"
    sizes = {str(folder / "p/S1.jsonl"): len(lines(count=10)), str(folder / "q/S1.jsonl"): len(lines(count=12))}
    assert {path: int(problem.split()[0]) for path, problem in told.items()} == sizes
    assert all(problem.endswith("UTC") for problem in told.values())


def test_a_repository_that_is_a_link_has_both_names(tmp_path: Path) -> None:
    """A session recorded under the path of the link is found too; the resolved path wins when both have one."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    files = files_of(tmp_path, tmp_path / "link")
    write_transcript(tmp_path / ".mycli/sessions/link")
    write_transcript(tmp_path / ".mycli/sessions/other")
    found = find_kept(IN_BUCKETS, ID, files)
    assert found is not None
    assert found.main == PurePosixPath("sessions/link/S1.jsonl")
    write_transcript(tmp_path / ".mycli/sessions/real")
    both = find_kept(IN_BUCKETS, ID, files)
    assert both is not None
    assert both.main == PurePosixPath("sessions/real/S1.jsonl")
    assert len(both.others) == 2
