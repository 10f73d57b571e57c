"""Places of every kind that keep objects, for the suite of transports and for what must work over any of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import obstore
from obstore.store import MemoryStore

from host_client.transports.local import LocalTransport
from host_client.transports.objects import ObjectTransport, make_store
from host_client.transports.path import path_of
from support.blob_server import Blob, BlobServer
from support.faulty_transport import Fault, unreachable
from support.object_store import REGION

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import pytest

    from host_client.transports.contract import Transport
    from support.object_store import S3Server


class Every(Fault):
    """Strikes every second call: once before it takes effect, once after."""

    def strikes(self, number: int, operation: str, key: str) -> bool:
        """Tell whether it strikes."""
        del operation, key
        step = number % 4
        self.before = unreachable() if step == 0 else None
        self.after = unreachable() if step == 2 else None
        return step % 2 == 0


@dataclass(frozen=True)
class Place:
    """Where objects are kept.

    Attributes:
        open: Makes a transport for it.
        alter: Changes what is stored under a key, behind the transport.
        url: Its URL, for other processes; empty where they cannot come.
        writers_count: How many write to one key at once.
    """

    open: Callable[[], Transport]
    alter: Callable[[str, Callable[[bytes], bytes]], None]
    url: str = ""
    writers_count: int = 16


def _local(request: pytest.FixtureRequest) -> Place:
    directory: Path = request.getfixturevalue("tmp_path_factory").mktemp("store")

    def alter(key: str, change: Callable[[bytes], bytes]) -> None:
        path = directory.joinpath(*path_of(key))
        path.write_bytes(change(path.read_bytes()))

    return Place(lambda: LocalTransport(directory), alter, directory.as_uri())


def _memory(request: pytest.FixtureRequest) -> Place:
    del request
    store = MemoryStore()
    return Place(lambda: ObjectTransport(store, name="memory", prefix="p/q"), _altering(store, "p/q"))


def _s3(request: pytest.FixtureRequest) -> Place:
    server: S3Server = request.getfixturevalue("s3_server")
    url = server.place()
    bucket, prefix = urlsplit(url).netloc, urlsplit(url).path.strip("/")
    store = make_store("s3", bucket, endpoint=server.endpoint, region=REGION, allow_http=True, path_style=True)
    alter = _altering(server.store(bucket), prefix)
    # This server lets more than two writers of one key wait for one another, by whole seconds.
    return Place(lambda: ObjectTransport(store, name=url, prefix=prefix), alter, url, writers_count=2)


def _altering(store: obstore.store.ObjectStore, prefix: str) -> Callable[[str, Callable[[bytes], bytes]], None]:
    def alter(key: str, change: Callable[[bytes], bytes]) -> None:
        path = "/".join((prefix, *path_of(key)))
        obstore.put(store, path, change(bytes(obstore.get(store, path).bytes())))

    return alter


def _blobs(kind: str) -> Callable[[pytest.FixtureRequest], Place]:
    """Return what makes places in a server that speaks as Google's or Azure's stores do."""

    def make(request: pytest.FixtureRequest) -> Place:
        server: BlobServer = request.getfixturevalue(f"{kind}_server")
        bucket = f"bucket-{next(server.numbers)}"
        endpoint = {"endpoint": server.endpoint, "account": "me"} if kind == "az" else {}
        store = make_store(kind, bucket, allow_http=True, path_style=True, **endpoint)

        def alter(key: str, change: Callable[[bytes], bytes]) -> None:
            old = server.blobs[path := "/".join(("", bucket, "p", *path_of(key)))]
            server.blobs[path] = Blob(change(old.data), next(server.numbers), old.seconds)

        return Place(lambda: ObjectTransport(store, name=kind, prefix="p"), alter)

    return make


SERVERS = {"s3": "s3_server", "gs": "gs_server", "az": "az_server"}
"""The fixtures that kinds need."""

KINDS: Mapping[str, Callable[[pytest.FixtureRequest], Place]] = {
    "local": _local,
    "memory": _memory,
    "s3": _s3,
    "gs": _blobs("gs"),
    "az": _blobs("az"),
}
