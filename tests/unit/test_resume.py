"""Restores that go on with what a broken attempt of the same id has staged."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from sandbox_agent.core.intent import Intent, Record
from sandbox_agent.core.kept import Kept
from sandbox_api.errors import ConflictError, SessionError
from support.broken_restore import (
    BEFORE_LARGE,
    FILES,
    LARGE,
    PART,
    RESTORE_ID,
    StreamError,
    break_restore,
    content_of,
    go_on,
    staging_of,
)
from support.restoring import OLD, entries_of, files_of, open_restore, restoring_sandbox, staged
from support.sandbox import FLAT, ID, make_session, place

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sandbox_agent.core.sandbox import Sandbox


@pytest.mark.parametrize(
    "sent_bytes", [0, 100, 101, BEFORE_LARGE, BEFORE_LARGE + PART, BEFORE_LARGE + len(LARGE), None]
)
def test_only_the_rest_is_fed(tmp_path: Path, sent_bytes: int | None) -> None:
    """Wherever the stream broke: files that were whole are not lacking, a large one goes on, the result is the same."""
    whole_bytes = sum(map(len, FILES.values()))
    sent = whole_bytes if sent_bytes is None else sent_bytes
    with restoring_sandbox(tmp_path) as held:
        session = make_session(tmp_path, OLD)
        break_restore(held, FILES, sent)
        assert files_of(session) == OLD
        fed, result = go_on(held)
        kept = {100: 100, 101: 100}.get(sent, sent)
        assert fed == whole_bytes - kept
        assert files_of(session) == FILES
        assert result.recovery
    assert staged(tmp_path) == []


def test_several_attempts(tmp_path: Path) -> None:
    """Each attempt adds to what the ones before it had staged, also when it breaks before any content."""
    with restoring_sandbox(tmp_path) as held:
        for sent_bytes in (150, 0, 200 + 70_000, 0, 100_000):
            with suppress(StreamError), open_restore(held, FILES, restore_id=RESTORE_ID) as restore:
                lacking = restore.begin()
                content = content_of(FILES, lacking, restore)
                restore.go_on([index for index, _ in restore.parts])
                restore.feed(content[:sent_bytes])
                restore.keep()
                raise StreamError
            assert len(staging_of(tmp_path)) == 1
        fed, _ = go_on(held)
        assert fed == len(LARGE) - 170_000 + len(FILES["state.json"])
        assert files_of(tmp_path / ".demo/sessions" / ID) == FILES


def test_told_what_is_there(tmp_path: Path) -> None:
    """The sizes of what is there whole are told, and the part with its size and digest."""
    with restoring_sandbox(tmp_path) as held:
        break_restore(held, FILES, BEFORE_LARGE + PART)
        with open_restore(held, FILES, restore_id=RESTORE_ID) as restore:
            assert restore.begin() == [False, False, True, True]
            assert restore.staged_bytes == BEFORE_LARGE
            [(index, part)] = restore.parts
            assert (index, part.size) == (2, PART)
            assert part.content.digest() == entries_of({"x": LARGE[:PART]})[0].sha256


def test_part_that_is_not_gone_on_with(tmp_path: Path) -> None:
    """A part that the client does not choose is removed, and the file comes from its start."""
    with restoring_sandbox(tmp_path) as held:
        break_restore(held, FILES, BEFORE_LARGE + PART)
        with open_restore(held, FILES, restore_id=RESTORE_ID) as restore:
            lacking = restore.begin()
            restore.go_on([])
            assert restore.left_bytes == len(LARGE) + len(FILES["state.json"])
            restore.feed(content_of(FILES, lacking))
            restore.commit()
        assert files_of(tmp_path / ".demo/sessions" / ID) == FILES


def _choose(held: Sandbox, indices: list[int]) -> None:
    with open_restore(held, FILES, restore_id=RESTORE_ID) as restore:
        restore.begin()
        restore.go_on(indices)


@pytest.mark.parametrize("indices", [[0], [2, 2], [3], [2, 3]])
def test_part_that_was_not_offered(tmp_path: Path, indices: list[int]) -> None:
    """A client that goes on with what it was not offered breaks the rules, and nothing stays."""
    with restoring_sandbox(tmp_path) as held:
        break_restore(held, FILES, BEFORE_LARGE + PART)
        with pytest.raises(SessionError, match="not offered") as caught:
            _choose(held, indices)
        assert caught.value.reason == "protocol"
    assert staged(tmp_path) == []


def test_file_that_grew_meanwhile(tmp_path: Path) -> None:
    """What was a whole file is the part of a longer one of the same name; the digest of the whole decides."""
    grown = {**FILES, "large": LARGE + b"more"}
    with restoring_sandbox(tmp_path) as held:
        break_restore(held, FILES, BEFORE_LARGE + len(LARGE))
        fed, _ = go_on(held, grown)
        assert fed == len(b"more") + len(FILES["state.json"])
        assert files_of(tmp_path / ".demo/sessions" / ID) == grown


def test_never_a_splice(tmp_path: Path) -> None:
    """A client that goes on behind a part that is not its own is refused by the digest of the whole file."""
    other = {**FILES, "large": b"another beginning" + LARGE}
    with restoring_sandbox(tmp_path) as held:
        session = make_session(tmp_path, OLD)
        break_restore(held, FILES, BEFORE_LARGE + PART)
        with pytest.raises(SessionError) as caught:
            go_on(held, other)
        assert caught.value.reason == "digest_mismatch"
        assert files_of(session) == OLD
    assert staged(tmp_path) == []


def test_what_is_no_longer_wanted_goes(tmp_path: Path) -> None:
    """Files of the broken attempt that the manifest has no more, or with other content, are not in the session."""
    changed = {"a/two": b"9" * 200, "state.json": b"{}"}
    with restoring_sandbox(tmp_path) as held:
        break_restore(held, FILES, BEFORE_LARGE + PART)
        fed, _ = go_on(held, changed)
        assert fed == 202
        assert files_of(tmp_path / ".demo/sessions" / ID) == changed
    assert staged(tmp_path) == []


def _feed(held: Sandbox, content: bytes, restore_id: str) -> None:
    with open_restore(held, FILES, restore_id=restore_id) as restore:
        restore.begin()
        restore.feed(content)


@pytest.mark.parametrize("restore_id", ["", RESTORE_ID])
def test_other_failures_leave_nothing(tmp_path: Path, restore_id: str) -> None:
    """Whatever is no broken stream leaves nothing staged, with an id or without."""
    with restoring_sandbox(tmp_path) as held:
        with pytest.raises(SessionError):
            _feed(held, b"x" * 200, restore_id)
        assert staged(tmp_path) == []


def test_without_an_id_nothing_stays(tmp_path: Path) -> None:
    """A broken stream without an id leaves nothing, neither files nor folders."""
    with restoring_sandbox(tmp_path) as held:
        break_restore(held, FILES, BEFORE_LARGE + PART, restore_id="")
        assert not (tmp_path / ".demo").exists()
        assert staged(tmp_path) == []


def _commit_after(held: Sandbox, change: Callable[[], object]) -> None:
    with open_restore(held, FILES, restore_id=RESTORE_ID) as restore:
        restore.feed(content_of(FILES, restore.begin()))
        restore.keep()
        change()
        restore.commit()


def test_commit_that_fails_leaves_nothing(tmp_path: Path) -> None:
    """Once the commit has begun a broken stream leaves nothing: hooks have rewritten what is staged."""
    with restoring_sandbox(tmp_path) as held:
        session = make_session(tmp_path, OLD)
        with pytest.raises(ConflictError):
            _commit_after(held, lambda: session.rename(session.with_name("elsewhere")))
        assert staged(tmp_path) == []


def test_id_counts_at_its_place(tmp_path: Path) -> None:
    """The same id at another place is another restore, which leaves what waits where it is."""
    elsewhere = place(FLAT, "another")
    with restoring_sandbox(tmp_path) as held:
        break_restore(held, FILES, BEFORE_LARGE)
        with open_restore(held, FILES, elsewhere, restore_id=RESTORE_ID) as restore:
            lacking = restore.begin()
            assert lacking == [True] * 4
            restore.feed(content_of(FILES, lacking))
            restore.commit()
        fed, _ = go_on(held)
        assert fed == len(LARGE) + len(FILES["state.json"])


def test_another_id_takes_nothing_over(tmp_path: Path) -> None:
    """What waits is for its own id."""
    with restoring_sandbox(tmp_path) as held:
        break_restore(held, FILES, BEFORE_LARGE)
        fed, _ = go_on(held, restore_id="attempt_2")
        assert fed == sum(map(len, FILES.values()))
        assert len(staging_of(tmp_path)) == 1


def test_one_restore_at_a_time(tmp_path: Path) -> None:
    """A second restore of an id at the same place is told to wait while the first is at work, and not after it."""
    with restoring_sandbox(tmp_path) as held:
        held.journal.kept = Kept(max_wait_seconds=0.0)
        with open_restore(held, FILES, restore_id=RESTORE_ID) as first:
            first.feed(content_of(FILES, first.begin())[:150])
            with pytest.raises(ConflictError) as caught, open_restore(held, FILES, restore_id=RESTORE_ID) as second:
                second.begin()
            assert caught.value.reason == "busy"
            first.feed(content_of(FILES, [True] * 4)[150:])
            first.commit()
        assert go_on(held)[1].unchanged


def test_one_restore_at_a_time_among_daemons(tmp_path: Path) -> None:
    """While another daemon is at work with an id, a restore of it is told to wait; what waits stays."""
    with restoring_sandbox(tmp_path) as held:
        break_restore(held, FILES, BEFORE_LARGE)
        break_restore(held, FILES, BEFORE_LARGE, restore_id="x")
        record = Record(os.fsencode(tmp_path / ".demo"), b"sessions", ID, restore_id=RESTORE_ID)
        other = held.journal.begin(record, durable=False)
        with pytest.raises(ConflictError) as caught:
            go_on(held)
        assert caught.value.reason == "busy"
        other.end()
        assert go_on(held)[0] == len(LARGE) + len(FILES["state.json"])


def test_kill_while_files_are_moved(tmp_path: Path) -> None:
    """What a killed attempt had moved already, and what it had not, are both gone on with."""
    with restoring_sandbox(tmp_path) as held:
        break_restore(held, FILES, BEFORE_LARGE + PART)
        [old] = staging_of(tmp_path)
        record = Record(os.fsencode(tmp_path / ".demo"), b"sessions", ID, restore_id=RESTORE_ID)
        killed = held.journal.begin(record, durable=False)
        moved = old.with_name(killed.staging_name.decode())
        (moved / "a").mkdir(parents=True)
        (old / "a/one").rename(moved / "a/one")
        killed.close()
    with restoring_sandbox(tmp_path) as held:
        held.journal.sweep(held.roots)
        fed, _ = go_on(held)
        assert fed == len(LARGE) - PART + len(FILES["state.json"])
    assert staged(tmp_path) == []


def test_parts_are_bounded(tmp_path: Path) -> None:
    """Of very many parts only as many are offered as the contract says; the others come from their start."""
    files = {f"{number:03d}": bytes([number]) * 70_000 for number in range(70)} | {"state.json": b"{}"}
    with restoring_sandbox(tmp_path) as held:
        record = Record(os.fsencode(tmp_path / ".demo"), b"sessions", ID, restore_id=RESTORE_ID)
        intent = held.journal.begin(record, durable=False)
        staging = tmp_path / ".demo/sessions" / intent.staging_name.decode()
        staging.mkdir(parents=True)
        for name, content in files.items():
            (staging / name).write_bytes(content[:69_000])
        intent.close()
        fed, _ = go_on(held, files)
        assert fed == 64 * 1000 + 6 * 70_000
        assert files_of(tmp_path / ".demo/sessions" / ID) == files


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_owner_of_the_attempt_that_goes_on(tmp_path: Path) -> None:
    """Files of the broken attempt get the owner and mode that this one's have."""
    with restoring_sandbox(tmp_path) as held:
        break_restore(held, FILES, BEFORE_LARGE + PART)
        [staging] = staging_of(tmp_path)
        (staging / "a/one").chmod(0o4755)
        with open_restore(held, FILES, restore_id=RESTORE_ID, owner=(1234, 1235)) as restore:
            lacking = restore.begin()
            restore.feed(content_of(FILES, lacking, restore))
            restore.commit()
        session = tmp_path / ".demo/sessions" / ID
        for path in (session, *session.rglob("*")):
            status = path.stat()
            assert (status.st_uid, status.st_gid) == (1234, 1235)
            assert status.st_mode & 0o7777 == (0o700 if path.is_dir() else 0o600)


def test_journal_that_cannot_be_told_from_a_commit(tmp_path: Path) -> None:
    """A restore that was killed in its commit is the sweep's to finish, never another attempt's to use."""
    with restoring_sandbox(tmp_path) as held:
        break_restore(held, FILES, BEFORE_LARGE)
        [note] = (tmp_path / ".outpost-agent").iterdir()
        intent = Intent.take_over(held.journal.directory, note.name.encode())
        assert intent is not None
        intent.write(durable=False, recovery="", staging_inode=7, old_inode=0)
        intent.close()
        fed, _ = go_on(held)
        assert fed == sum(map(len, FILES.values()))
        held.journal.sweep(held.roots)
    assert staged(tmp_path) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_file_of_another_user_is_not_taken(tmp_path: Path) -> None:
    """A daemon that is root takes no file that the sandbox's user put there, though its content is right."""
    with restoring_sandbox(tmp_path) as held:
        break_restore(held, FILES, BEFORE_LARGE)
        [staging] = staging_of(tmp_path)
        os.chown(staging / "a/one", 1234, 1235)
        assert go_on(held)[0] == 100 + len(LARGE) + len(FILES["state.json"])
        assert (tmp_path / ".demo/sessions" / ID / "a/one").stat().st_uid == 0
