"""Restores through executors: threads, processes and the workers of Dask, each with its own connections."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING

import pytest

from host_client import sync
from host_client.errors import ConfigurationError, LimitError
from host_client.fleet.executor import restore_through
from host_client.fleet.job import RestoreJob
from host_client.fleet.retry import Retry
from host_client.sandbox.sandbox import connect
from host_client.stores.context import ConversationContext
from sandbox_api.limits import Limits
from support.conversation import EXTRA, ID
from support.executor import dask_workers, performed_by_a_fork, spawned
from support.fleet_scene import LOOKED_UP, Fleet, deadly_store, faulty_store, noting_store, restored, store
from support.wait import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Executor
    from pathlib import Path

    from host_client.stores.delivery import DeliveryProgress

pytestmark = pytest.mark.anyio

ONCE = Retry(attempts_count=1)


@pytest.fixture(scope="module")
def looked_up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where workers note their look-ups; the variable is there before any worker is."""
    path = tmp_path_factory.mktemp("looked-up") / "noted"
    resource_tracker.ensure_running()  # it stays, by its nature, until the end of the tests
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(LOOKED_UP, str(path))
        yield path


@pytest.fixture(scope="module", params=["threads", "spawned", "dask"])
def executor(
    request: pytest.FixtureRequest, looked_up: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Executor]:
    """An executor of each kind, for all tests of it."""
    del looked_up
    kinds = {
        "threads": lambda: ThreadPoolExecutor(4),
        "spawned": spawned,
        "dask": lambda: dask_workers(tmp_path_factory.mktemp("dask")),
    }
    with kinds[request.param]() as made:
        yield made


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    """A kept conversation."""
    return Fleet.make(tmp_path)


def noted(path: Path) -> list[str]:
    """Return the processes that looked the conversation up, each as often as it did."""
    return path.read_text().split() if path.exists() else []


async def queued(threads: ThreadPoolExecutor, count: int) -> bool:
    """Tell whether so many jobs wait for a thread."""
    return threads._work_queue.qsize() == count


async def test_every_job_has_its_outcome(executor: Executor, fleet: Fleet, looked_up: Path) -> None:
    """Jobs are done by workers that connect by themselves; a dead target is an outcome with all that is told of it."""
    before_count = len(noted(looked_up))
    targets = [*fleet.targets(3), f"unix:{fleet.directory}/none", "nowhere"]
    told: list[DeliveryProgress] = []
    jobs = [fleet.job(target, noting_store) for target in targets]
    ended = await restore_through(executor, jobs, retry=ONCE, progress=told.append)
    assert [one.target for one in ended] == targets
    assert [one.error and (one.error.code, one.error.reason) for one in ended] == [
        None,
        None,
        None,
        ("unavailable", "unreachable"),
        ("configuration", "invalid_target"),
    ]
    assert all(restored(target) == EXTRA for target in targets[:3])
    assert ended[3].error
    assert ended[3].error.hint
    assert {str(one.ended.target) for one in told if one.ended} == set(targets)
    assert (told[-1].targets_count, told[-1].failed_count, told[-1].share) == (5, 2, 1.0)
    processes = noted(looked_up)[before_count:]
    assert processes
    assert len(processes) == len(set(processes)), "a process looked the conversation up more than once"


async def test_the_next_run_looks_again(fleet: Fleet, looked_up: Path) -> None:
    """What a process knows of a conversation is of one run: the next one restores what is kept by then."""
    before_count = len(noted(looked_up))
    with ThreadPoolExecutor(2) as threads:
        for target in fleet.targets(2):
            (ended,) = await restore_through(threads, [fleet.job(target, noting_store)])
            assert ended.outcome
    assert len(noted(looked_up)) == before_count + 2


async def test_a_failure_of_the_source_is_told_of_every_target(executor: Executor, fleet: Fleet) -> None:
    """Limits, facts and reasons come back whole from another process; nothing was tried at a target."""
    targets = fleet.targets(2)
    small = [replace(fleet.job(target).context, limits=Limits(max_files=1)) for target in targets]
    jobs = [replace(fleet.job(target), context=context) for target, context in zip(targets, small, strict=True)]
    ended = await restore_through(executor, jobs)
    for one in ended:
        assert isinstance(one.error, LimitError)
        assert (one.error.reason, one.attempts_count) == ("max_files", 0)
        assert one.error.facts


async def test_a_fault_in_a_worker_is_the_outcome_of_its_target(executor: Executor, fleet: Fleet) -> None:
    """An error that nobody foresaw is named by its type, without its text, and stops nobody else."""
    good, bad = fleet.targets(2)
    ended = await restore_through(executor, [fleet.job(bad, faulty_store), fleet.job(good)])
    assert ended[0].error
    assert (ended[0].error.code, ended[0].error.reason) == ("unavailable", "internal")
    assert "ZeroDivisionError" in str(ended[0].error)
    assert "secret" not in str(ended[0].error)
    assert ended[1].outcome


async def test_a_worker_that_dies_is_an_outcome_and_no_hang(fleet: Fleet) -> None:
    """Of a pool of processes one that is killed breaks all: every job that was not done says so."""
    targets = fleet.targets(3)
    resource_tracker.ensure_running()
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        jobs = [fleet.job(targets[0]), fleet.job(targets[1], deadly_store), fleet.job(targets[2])]
        ended = await restore_through(pool, jobs)
        again = await restore_through(pool, jobs[:1])
    assert ended[0].outcome
    for one in (*ended[1:], *again):
        assert one.error
        assert (one.error.code, one.error.reason) == ("unavailable", "unreachable")
        assert one.error.retryable
    assert restored(targets[2]) == {}


async def test_a_killed_worker_of_dask_costs_its_job_alone(fleet: Fleet, looked_up: Path) -> None:
    """Dask starts another one, and the other jobs are done."""
    good, bad = fleet.targets(2)
    with dask_workers(looked_up.parent) as workers:
        ended = await restore_through(workers, [fleet.job(bad, deadly_store), fleet.job(good)])
    assert ended[0].error
    assert (ended[0].error.reason, ended[0].error.facts["type"]) == ("unreachable", "KilledWorker")
    assert ended[1].outcome
    assert restored(good) == EXTRA


async def test_a_closed_executor_is_an_outcome(fleet: Fleet) -> None:
    """Nothing is begun, and every job says so."""
    threads = ThreadPoolExecutor(1)
    threads.shutdown()
    (ended,) = await restore_through(threads, [fleet.job("nowhere")])
    assert ended.error
    assert (ended.error.reason, ended.attempts_count) == ("unreachable", 0)


async def test_an_executor_that_gives_up_is_an_outcome(fleet: Fleet) -> None:
    """Jobs that it cancels are told as cancelled."""
    with ThreadPoolExecutor(1) as threads:
        let_go = threading.Event()
        threads.submit(let_go.wait)
        running = asyncio.ensure_future(restore_through(threads, [fleet.job("nowhere")]))
        await until(lambda: queued(threads, 1), "the job")
        threads.shutdown(wait=False, cancel_futures=True)
        (ended,) = await running
        let_go.set()
    assert ended.error
    assert (ended.error.code, ended.error.reason) == ("unavailable", "cancelled")


async def test_a_cancel_gives_up_what_no_worker_has_begun(fleet: Fleet) -> None:
    """The call returns at once; jobs in the queue are never done."""
    targets = fleet.targets(2)
    with ThreadPoolExecutor(1) as threads:
        let_go = threading.Event()
        threads.submit(let_go.wait)
        running = asyncio.ensure_future(restore_through(threads, [fleet.job(target) for target in targets]))
        await until(lambda: queued(threads, 2), "the jobs")
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        let_go.set()
    assert [restored(target) for target in targets] == [{}, {}]


async def test_a_forked_worker_of_a_process_with_connections_is_refused(fleet: Fleet) -> None:
    """GRPC would wait for ever there: the worker says what to do instead."""
    (target,) = fleet.targets(1)
    async with connect(f"local:{fleet.directory / 'source'}"):
        ended = await performed_by_a_fork(fleet.job(target))
    assert ended.error
    assert (ended.error.code, ended.error.reason) == ("configuration", "invalid_argument")
    assert "spawn" in ended.error.hint


def test_the_blocking_form_does_the_same(fleet: Fleet) -> None:
    """`sync.restore_through` for programs without an event loop."""
    targets = fleet.targets(2)
    with ThreadPoolExecutor(2) as threads:
        ended = sync.restore_through(threads, [fleet.job(target) for target in targets])
    assert all(one.outcome for one in ended)
    assert [restored(target) for target in targets] == [EXTRA, EXTRA]


def test_a_job_is_plain_data(fleet: Fleet) -> None:
    """What cannot be sent to a worker, and what is of one process alone, is refused before anything is begun."""
    context = ConversationContext(conversation_home=fleet.kept)
    refused = [
        {"target": "nowhere", "format": lambda: store},
        {"target": object(), "format": "kimi"},
        {"target": "nowhere", "format": "kimi", "context": replace(context, progress=print)},
        {"target": "nowhere", "format": "kimi", "snapshot": "00"},
    ]
    for given in refused:
        with pytest.raises(ConfigurationError) as caught:
            RestoreJob(conversation_id=ID, **given)  # type: ignore[arg-type]
        assert caught.value.reason == "invalid_argument"
