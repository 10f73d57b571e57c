"""Executors of several worker processes on this machine."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import warnings
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING

import dask
from distributed import Client, LocalCluster

from host_client.fleet.retry import Retry
from host_client.fleet.worker import Run, perform

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Executor
    from multiprocessing.connection import Connection
    from pathlib import Path

    from host_client.fleet.job import RestoreJob
    from host_client.stores.delivery import Delivery


@contextmanager
def spawned() -> Iterator[Executor]:
    """Run two processes, spawned."""
    resource_tracker.ensure_running()  # it stays, by its nature, until the end of the tests
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as executor:
        list(executor.map(abs, range(8)))
        yield executor


@contextmanager
def dask_cluster(directory: Path) -> Iterator[LocalCluster]:
    """Run a cluster of two worker processes on loopback."""
    settings = {"distributed.scheduler.allowed-failures": 0, "temporary-directory": str(directory)}
    with (
        dask.config.set(settings),
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            scheduler_kwargs={"dashboard": False},
            silence_logs=logging.CRITICAL,
        ) as cluster,
    ):
        yield cluster


@contextmanager
def dask_workers(directory: Path) -> Iterator[Executor]:
    """Run such a cluster, and return its workers as an executor."""
    with dask_cluster(directory) as cluster, Client(cluster, set_as_default=False) as client:
        yield client.get_executor()


def _perform_and_tell(job: RestoreJob, told: Connection) -> None:
    told.send(perform(job, Run("run", Retry(attempts_count=1), None)))


async def performed_by_a_fork(job: RestoreJob) -> Delivery:
    """Have a process that is forked from this one do a job, and return what came of it."""
    forking = multiprocessing.get_context("fork")
    hear, tell = forking.Pipe(duplex=False)
    worker = forking.Process(target=_perform_and_tell, args=(job, tell))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork with threads, which is what is tested
        worker.start()
    ended: Delivery = await asyncio.to_thread(hear.recv)
    await asyncio.to_thread(worker.join)
    for one in (worker, hear, tell):
        one.close()
    return ended
