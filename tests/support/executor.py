"""Executors of several worker processes on this machine."""

from __future__ import annotations

import logging
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING

import dask
from distributed import Client, LocalCluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Executor
    from pathlib import Path


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
