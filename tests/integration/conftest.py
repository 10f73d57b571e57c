"""One daemon for the tests of a module that call it by raw stubs; each finds an empty CLI home."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import grpc
import pytest

from sandbox_api.v1 import bundle_pb2_grpc
from support.daemon import running_daemon
from support.process_scene import scene_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.daemon import RunningDaemon
    from support.process_scene import Scene


@pytest.fixture(scope="module")
def shared_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """A daemon for a whole module."""
    with running_daemon(tmp_path_factory.mktemp("daemon")) as running:
        yield running


@pytest.fixture
def daemon(shared_daemon: RunningDaemon) -> Iterator[RunningDaemon]:
    """The module's daemon, with a home that has nothing but the daemon's own folder."""
    yield shared_daemon
    for name in (".demo", ".plain"):
        shutil.rmtree(shared_daemon.home / name, ignore_errors=True)


@pytest.fixture
def bundles(daemon: RunningDaemon) -> Iterator[bundle_pb2_grpc.BundleServiceStub]:
    """Its bundle service."""
    with grpc.insecure_channel(daemon.target) as channel:
        yield bundle_pb2_grpc.BundleServiceStub(channel)


@pytest.fixture
def scene(daemon: RunningDaemon) -> Iterator[Scene]:
    """Its processes."""
    with scene_of(daemon.target) as scene:
        yield scene
