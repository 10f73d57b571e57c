"""TranscriptService of a real daemon, called by raw stubs: who has a conversation open."""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING

import grpc
import pytest

from sandbox_api.v1 import transcript_pb2, transcript_pb2_grpc
from support.daemon import running_daemon
from support.status import fails

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.daemon import RunningDaemon

SECONDS = 60.0


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDaemon]:
    """One daemon for all tests here; each has a home of its own in its workspace."""
    with running_daemon(tmp_path_factory.mktemp("daemon")) as running:
        yield running


@pytest.fixture
def transcripts(daemon: RunningDaemon) -> Iterator[transcript_pb2_grpc.TranscriptServiceStub]:
    """The service."""
    with grpc.insecure_channel(daemon.target) as channel:
        yield transcript_pb2_grpc.TranscriptServiceStub(channel)


@pytest.fixture
def home(daemon: RunningDaemon, request: pytest.FixtureRequest) -> Path:
    """An empty CLI home below a root."""
    path = daemon.workspace / str(abs(hash(request.node.name)))
    path.mkdir()
    return path


def test_find_holders(transcripts: transcript_pb2_grpc.TranscriptServiceStub, home: Path) -> None:
    """Processes are told by a number that a name has and by a lock; without either nobody holds anything."""
    signs = [
        transcript_pb2.LockSign(directory=b"sessions", pattern=r"^(?P<pid>\d+)\.json$", contains=b"id-1"),
        transcript_pb2.LockSign(directory=b"locks", pattern=r"^id-1\.lock$"),
    ]
    request = transcript_pb2.FindHoldersRequest(home=os.fsencode(home), locks=signs)
    assert list(transcripts.FindHolders(request, timeout=SECONDS).holders) == []
    for path, content in ((home / "sessions" / f"{os.getpid()}.json", "id-1"), (home / "locks" / "id-1.lock", "")):
        path.parent.mkdir()
        path.write_text(content)
    with (home / "locks" / "id-1.lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        holders = transcripts.FindHolders(request, timeout=SECONDS).holders
    expected = [home / "sessions" / f"{os.getpid()}.json", home / "locks" / "id-1.lock"]
    assert [(holder.path, holder.pid) for holder in holders] == [(os.fsencode(path), os.getpid()) for path in expected]
    assert len(transcripts.FindHolders(request, timeout=SECONDS).holders) == 1


def test_find_holders_refuses(transcripts: transcript_pb2_grpc.TranscriptServiceStub, home: Path) -> None:
    """Signs that can be none, a home outside the roots, and a link on the way."""
    sign = transcript_pb2.LockSign(directory=b"../x", pattern=".")
    request = transcript_pb2.FindHoldersRequest(home=os.fsencode(home), locks=[sign])
    with fails("configuration", "invalid_argument"):
        transcripts.FindHolders(request, timeout=SECONDS)
    request = transcript_pb2.FindHoldersRequest(home=b"/etc")
    with fails("workspace", "outside_roots"):
        transcripts.FindHolders(request, timeout=SECONDS)
    (home / "link").symlink_to(home)
    request = transcript_pb2.FindHoldersRequest(home=os.fsencode(home / "link"))
    with fails("workspace", "unsafe_path"):
        transcripts.FindHolders(request, timeout=SECONDS)
