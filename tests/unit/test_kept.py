"""What broken restores have staged waits, for a bounded time and in a bounded number."""

from __future__ import annotations

import os
import threading
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from sandbox_agent.core.intent import Record
from sandbox_agent.core.journal import Journal
from sandbox_agent.core.kept import MAX_KEPT_COUNT, MAX_KEPT_SECONDS, Kept
from sandbox_agent.core.kept_sweep import KeptSweep
from sandbox_agent.core.state import StateJournal
from sandbox_api.errors import ConflictError
from support.broken_restore import RESTORE_ID, break_restore, staging_of
from support.restoring import NEW, restoring_sandbox, staged
from support.sandbox import ID
from support.wait import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from sandbox_agent.core.sandbox import Sandbox


class Clock:
    """A clock that stands still until it is told to go on."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.seconds


def _with_kept(held: Sandbox, kept: Kept) -> None:
    held.journal.kept = kept


def _sweep(held: Sandbox) -> None:
    held.journal.sweep(held.roots)


def test_waits_for_its_time(tmp_path: Path) -> None:
    """A sweep leaves what waits alone until the time is over, and removes it then, note and all."""
    clock = Clock()
    with restoring_sandbox(tmp_path) as held:
        _with_kept(held, Kept(now=clock))
        break_restore(held, NEW, 5000)
        clock.seconds += MAX_KEPT_SECONDS - 1
        assert held.journal.sweep(held.roots) == []
        assert len(staging_of(tmp_path)) == 1
        clock.seconds += 1
        [told] = held.journal.sweep(held.roots)
        assert told.startswith("removed ")
        assert staged(tmp_path) == []


def test_next_start_gives_the_whole_time(tmp_path: Path) -> None:
    """What a killed daemon had staged waits for the whole time from when the next daemon first saw it."""
    clock = Clock()
    with restoring_sandbox(tmp_path) as held:
        _with_kept(held, Kept(now=clock))
        break_restore(held, NEW, 5000)
        clock.seconds += MAX_KEPT_SECONDS - 1
    with restoring_sandbox(tmp_path) as held:
        _with_kept(held, Kept(now=clock))
        assert held.journal.sweep(held.roots) == []
        clock.seconds += MAX_KEPT_SECONDS - 1
        assert held.journal.sweep(held.roots) == []
        clock.seconds += 1
        assert len(held.journal.sweep(held.roots)) == 1
    assert staged(tmp_path) == []


def test_each_attempt_has_the_whole_time(tmp_path: Path) -> None:
    """An attempt that breaks again waits anew."""
    clock = Clock()
    with restoring_sandbox(tmp_path) as held:
        _with_kept(held, Kept(now=clock))
        break_restore(held, NEW, 5000)
        clock.seconds += MAX_KEPT_SECONDS - 1
        break_restore(held, NEW, 0)
        clock.seconds += MAX_KEPT_SECONDS - 1
        assert held.journal.sweep(held.roots) == []
        assert len(staging_of(tmp_path)) == 1


def test_oldest_go_first(tmp_path: Path) -> None:
    """No more wait than allowed: the sweep removes the oldest of them, though their time is not over."""
    with restoring_sandbox(tmp_path) as held:
        break_restore(held, NEW, 5000, restore_id="oldest")
        [oldest] = staging_of(tmp_path)
        for number in range(MAX_KEPT_COUNT):
            break_restore(held, NEW, 5000, restore_id=f"r{number}")
        assert len(held.journal.sweep(held.roots)) == 1
        left = staging_of(tmp_path)
        assert len(left) == MAX_KEPT_COUNT
        assert oldest not in left


def test_nothing_waits_without_time(tmp_path: Path) -> None:
    """With no time to wait, the next sweep removes it."""
    with restoring_sandbox(tmp_path) as held:
        _with_kept(held, Kept(0.0))
        break_restore(held, NEW, 5000)
        assert len(held.journal.sweep(held.roots)) == 1
    assert staged(tmp_path) == []


def test_forged_id_is_no_id(tmp_path: Path) -> None:
    """A note with an id that no client can have is removed like any that makes no sense."""
    with restoring_sandbox(tmp_path) as held:
        break_restore(held, NEW, 5000)
        [note] = (tmp_path / ".outpost-agent").iterdir()
        note.write_text(note.read_text().replace(RESTORE_ID, "../x"))
        assert held.journal.sweep(held.roots) == []
        assert not note.exists()


def test_sweep_of_another_home_takes_no_note_of_it(tmp_path: Path) -> None:
    """A sweep of one home neither removes what waits in another nor begins its time anew."""
    clock = Clock()
    with restoring_sandbox(tmp_path) as held:
        _with_kept(held, Kept(now=clock))
        break_restore(held, NEW, 5000)
        clock.seconds += MAX_KEPT_SECONDS
        assert held.journal.sweep(held.roots, b"/elsewhere") == []
        assert len(held.journal.sweep(held.roots, os.fsencode(tmp_path / ".demo"))) == 1


def test_restore_at_work_is_not_waited_for(tmp_path: Path) -> None:
    """A restore that is at work is nobody's to sweep, and its time does not run."""
    clock = Clock()
    with restoring_sandbox(tmp_path) as held:
        _with_kept(held, Kept(now=clock))
        record = Record(os.fsencode(tmp_path / ".demo"), b"sessions", ID, restore_id=RESTORE_ID)
        intent = held.journal.begin(record, durable=False)
        assert held.journal.sweep(held.roots) == []
        clock.seconds += MAX_KEPT_SECONDS
        assert held.journal.sweep(held.roots) == []
        held.journal.keep(intent)
        assert held.journal.sweep(held.roots) == []
        assert len(list((tmp_path / ".outpost-agent").iterdir())) == 1


def test_nothing_waits_without_a_folder(tmp_path: Path) -> None:
    """Asking what waits makes no state folder."""
    with closing(StateJournal(os.fsencode(tmp_path / "state"))) as journal:
        assert journal.take_kept(RESTORE_ID, lambda _: True) == []
    assert not (tmp_path / "state").exists()


def test_thread_sweeps_what_is_over() -> None:
    """What is over is swept once, without a call from outside, also when it cannot be removed."""
    swept = threading.Semaphore(0)
    kept = Kept(0.05)
    sweep = KeptSweep(kept, swept.release)
    assert kept.is_waiting(b"one", 1)
    assert swept.acquire(timeout=30)
    assert kept.is_waiting(b"two", 1)
    assert swept.acquire(timeout=30)
    sweep.close()
    assert not swept.acquire(blocking=False)


def test_end_leaves_nothing_waiting(tmp_path: Path) -> None:
    """A daemon that ends removes what waits."""
    with restoring_sandbox(tmp_path) as held:
        sweep = KeptSweep(held.journal.kept, lambda: _sweep(held))
        break_restore(held, NEW, 5000)
        assert len(staging_of(tmp_path)) == 1
        sweep.close()
        assert staged(tmp_path) == []


def test_end_without_anything_looks_at_nothing() -> None:
    """Where nothing waits, the end does not look at the state folder."""
    swept: list[None] = []
    KeptSweep(Kept(), lambda: swept.append(None)).close()
    assert swept == []


def test_vanished_note_is_forgotten(tmp_path: Path) -> None:
    """A note that is gone does not wake the thread again and again."""
    with restoring_sandbox(tmp_path) as held:
        kept = Kept(0.05)
        _with_kept(held, kept)
        break_restore(held, NEW, 5000)
        for note in (tmp_path / ".outpost-agent").iterdir():
            note.unlink()
        held.journal.sweep(held.roots)
        assert not kept.end()


def test_journals_share_what_waits(tmp_path: Path) -> None:
    """Another daemon of the same state folder goes on with what this one has left."""
    with restoring_sandbox(tmp_path) as held:
        break_restore(held, NEW, 5000)
        other = Journal(held.journal.directory)
        [(intent, record)] = other.take_kept(RESTORE_ID, lambda _: True)
        assert record.restore_id == RESTORE_ID
        other.keep(intent)
        assert held.journal.sweep(held.roots) == []


def test_busy_threads_wait_for_no_look(tmp_path: Path) -> None:
    """Sweeps at the same time are never taken for another restore at work."""
    with restoring_sandbox(tmp_path) as held:
        break_restore(held, NEW, 5000)
        done = threading.Event()
        sweeps_count = 0

        def sweep() -> None:
            nonlocal sweeps_count
            while not done.is_set():
                held.journal.sweep(held.roots)
                sweeps_count += 1

        thread = threading.Thread(target=sweep)
        thread.start()
        try:
            for _ in range(100):
                [(intent, _)] = held.journal.take_kept(RESTORE_ID, lambda _: True)
                held.journal.keep(intent)
            wait_until(lambda: sweeps_count > 0, "a sweep")
        finally:
            done.set()
            thread.join()


def test_claims() -> None:
    """An id is claimed at a place by one at a time, and free again afterwards."""
    kept = Kept(max_wait_seconds=0.0)
    for _ in range(2):
        with (
            kept.claimed(RESTORE_ID, "here"),
            kept.claimed(RESTORE_ID, "there"),
            pytest.raises(ConflictError) as caught,
        ):
            kept.claimed(RESTORE_ID, "here").__enter__()
        assert caught.value.reason == "busy"


def test_claim_that_is_given_back_is_taken() -> None:
    """An attempt waits for the one before it, and goes on when that has ended."""
    kept = Kept(max_wait_seconds=30.0)
    claimed, ended = threading.Event(), threading.Event()

    def attempt() -> None:
        with kept.claimed(RESTORE_ID, "here"):
            claimed.set()
            ended.wait()

    thread = threading.Thread(target=attempt)
    thread.start()
    claimed.wait()
    threading.Timer(0.05, ended.set).start()
    with kept.claimed(RESTORE_ID, "here"):
        assert ended.is_set()
    thread.join()


def test_what_is_over_while_a_sweep_runs_is_swept_next() -> None:
    """A sweep does not make forgotten what it came too early for."""
    kept = Kept(max_count=1)
    swept = threading.Semaphore(0)
    states = iter(range(1, 4))

    def sweep() -> None:
        state = next(states, None)
        if state is not None:  # while this sweep runs, one more makes another one surplus
            kept.is_waiting(b"%d" % state, 1)
        swept.release()

    with closing(KeptSweep(kept, sweep)):
        kept.is_waiting(b"a", 1)
        kept.is_waiting(b"b", 1)
        for _ in range(4):
            assert swept.acquire(timeout=30)
