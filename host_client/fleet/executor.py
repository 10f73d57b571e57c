"""Restores through any executor: threads, processes, or the workers of many hosts.

The one rule: a worker that is lost is the outcome of its targets, and never a hang.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from uuid import uuid4

from host_client.errors import UnavailableError
from host_client.fleet.retry import Retry
from host_client.fleet.worker import Run, perform
from host_client.sandbox.task import in_thread, task_group
from host_client.stores.delivery import Delivery, DeliveryTally, check_bounds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Executor, Future

    from host_client.fleet.job import RestoreJob
    from host_client.stores.delivery import DeliveryProgress


async def restore_through(
    executor: Executor,
    jobs: Sequence[RestoreJob],
    *,
    target_seconds: float | None = None,
    retry: Retry | None = None,
    progress: Callable[[DeliveryProgress], None] | None = None,
) -> Sequence[Delivery]:
    """Do many restores by the workers of an executor, each with connections of its own.

    How many run at a time is the executor's. A process that works for several jobs of one conversation looks it up
    once. Processes must be spawned, or forked from a server: gRPC does not survive a fork of its process.

    On cancel what no worker has begun is given up, and this returns; what a worker has begun goes on to its end there,
    and is whole or not at all.

    Args:
        executor: Any `concurrent.futures.Executor`; it stays open.
        jobs: What is to be done.
        target_seconds: Longest time for one target, from the moment that a worker has found the conversation,
            connecting and all attempts included; then its outcome is `timeout`/`deadline`.
        retry: Which failures are tried again, by the same worker; None: as `Retry()` says.
        progress: Told of every target that has ended. What it raises ends the call.

    Returns:
        What came of each job, in the order given. The outcome of a job whose worker was lost, such as one that was
        killed, is `unavailable`/`unreachable`; its sandbox has the old session or the new one.

    Raises:
        ConfigurationError: `invalid_argument`: seconds that are not above 0.
    """
    check_bounds(1, target_seconds)
    run = Run(uuid4().hex, retry or Retry(), target_seconds)
    tally = DeliveryTally(len(jobs), progress)
    futures: list[Future[Delivery] | Exception] = []

    async def deliver(number: int) -> Delivery:
        delivery = await _delivered(jobs[number].target, futures[number])
        tally.end(number, delivery)
        return delivery

    try:
        await in_thread(_submit, executor, jobs, run, futures)
        async with task_group() as group:
            tasks = [group.create_task(deliver(number)) for number in range(len(jobs))]
    finally:
        for future in futures:
            if not isinstance(future, Exception):
                future.cancel()
    return tuple(task.result() for task in tasks)


def _submit(
    executor: Executor, jobs: Sequence[RestoreJob], run: Run, futures: list[Future[Delivery] | Exception]
) -> None:
    """Hand all jobs to the executor, which may start processes for that."""
    for job in jobs:
        try:
            futures.append(executor.submit(perform, job, run))
        except Exception as error:  # noqa: BLE001 - a broken or closed executor, each in its own words
            futures.append(error)


async def _delivered(target: str, future: Future[Delivery] | Exception) -> Delivery:
    if isinstance(future, Exception):
        return _lost(target, future)
    waiting = asyncio.wrap_future(future)
    await asyncio.wait([waiting])
    if waiting.cancelled():
        given_up = UnavailableError("cancelled", f"the executor gave the restore in {target} up before it began")
        return Delivery(target, error=given_up, attempts_count=0)
    error = waiting.exception()
    return waiting.result() if error is None else _lost(target, error)


def _lost(target: str, error: BaseException) -> Delivery:
    lost = UnavailableError(
        "unreachable",
        f"the worker for {target} was lost: {type(error).__name__}",
        hint="see why it ended; restoring again is safe",
        facts={"type": type(error).__name__},
    )
    return Delivery(target, error=lost, attempts_count=0)
