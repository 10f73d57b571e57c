"""The client process of the archives' bench: works of the public library on a store, timed inside, and their peer.

Run as `python -m benchmarks.archive WORK URL ARGUMENT...`. It does the work once and prints one line of JSON: the
seconds it took, the peak memory, and what else the work tells.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import obstore
from obstore.store import S3Store

from benchmarks.daemon import own_peak_mib
from benchmarks.transcript import CONVERSATION_ID, append_noise
from host_client import (
    ConversationArchive,
    ConversationContext,
    ObjectInfo,
    StoredObject,
    Transport,
    TransportConversations,
    builtin_format,
    connect,
    open_transport,
)
from host_client.transports.contract import MAX_OBJECT_BYTES


class Counting:
    """A transport that counts what is written through it, as an uplink would see it."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.written_bytes = 0

    @property
    def name(self) -> str:
        """Return the name of the store."""
        return self._inner.name

    async def read(self, key: str, *, max_bytes: int = MAX_OBJECT_BYTES) -> StoredObject | None:
        """Read an object."""
        return await self._inner.read(key, max_bytes=max_bytes)

    async def stat(self, key: str) -> ObjectInfo | None:
        """Look at an object."""
        return await self._inner.stat(key)

    async def write(self, key: str, data: bytes, *, if_revision: str | None) -> str:
        """Write an object, and count it."""
        self.written_bytes += len(data)
        return await self._inner.write(key, data, if_revision=if_revision)

    async def remove(self, key: str, *, if_revision: str | None = None) -> None:
        """Remove an object."""
        await self._inner.remove(key, if_revision=if_revision)

    def list(self, prefix: str = "") -> AsyncIterator[ObjectInfo]:
        """List objects."""
        return self._inner.list(prefix)


async def move(url: str, namespace: str, source: str, target: str, cache: str) -> dict[str, Any]:
    """Archive a conversation from one sandbox and restore it into another, by two hosts that hold nothing of it."""
    began = time.perf_counter()
    await _capture(_store(open_transport(url), namespace, f"{cache}/source"), source)
    return {"seconds": time.perf_counter() - began + await _restore(url, namespace, target, f"{cache}/target")}


async def capture(url: str, namespace: str, source: str, cache: str) -> dict[str, Any]:
    """Archive a conversation."""
    await _capture(_store(open_transport(url), namespace, cache), source)
    return {"seconds": 0.0}


async def restore(url: str, namespace: str, target: str, cache: str) -> dict[str, Any]:
    """Restore the newest snapshot on a host that holds nothing of it."""
    return {"seconds": await _restore(url, namespace, target, cache)}


async def grow(url: str, namespace: str, source: str, cache: str, transcript: str, *turns: str) -> dict[str, Any]:
    """Archive a transcript, let it grow, archive it again, so many times; tell what each time was stored and sent.

    What is stored is the sum of the sizes of all files of the store's directory.
    """
    directory = Path(urlsplit(url).path)
    transport = Counting(open_transport(url))
    store = _store(transport, namespace, cache)
    turns_count, appended_bytes = map(int, turns)
    await _capture(store, source)
    stored, sent, seconds = [_files_bytes(directory)], [transport.written_bytes], []
    for turn in range(turns_count):
        await asyncio.to_thread(append_noise, Path(transcript), appended_bytes, turn)
        began = time.perf_counter()
        await _capture(store, source)
        seconds.append(time.perf_counter() - began)
        stored.append(_files_bytes(directory))
        sent.append(transport.written_bytes)
    return {"seconds": sum(seconds), "stored": stored, "sent": sent}


async def copy(url: str, to_url: str) -> dict[str, Any]:
    """Copy all objects of a store into another one."""
    source, target = open_transport(url), open_transport(to_url)
    async for info in source.list():
        stored = await source.read(info.key)
        if stored is not None:
            await target.write(info.key, stored.data, if_revision=None)
    return {"seconds": 0.0}


async def verify(url: str, namespace: str) -> dict[str, Any]:
    """Verify a namespace; tell how much content was read and hashed."""
    began = time.perf_counter()
    report = await ConversationArchive(open_transport(url), namespace).verify()
    seconds = time.perf_counter() - began
    if not report.is_whole:
        sys.exit(f"the archive is damaged: {report.findings}")
    return {"seconds": seconds, "bytes": report.bytes_count}


async def plain(url: str, name: str, path: str) -> dict[str, Any]:
    """Put a file as one object, and get it."""
    parts = urlsplit(url)
    options = parse_qs(parts.query)
    store = S3Store(
        parts.netloc,
        endpoint=options["endpoint"][0],
        region=options["region"][0],
        client_options={"allow_http": True},
    )
    data = await asyncio.to_thread(Path(path).read_bytes)
    began = time.perf_counter()
    await obstore.put_async(store, name, data, use_multipart=False)
    got = await (await obstore.get_async(store, name)).bytes_async()
    seconds = time.perf_counter() - began
    if bytes(got) != data:
        sys.exit("the object is another one")
    return {"seconds": seconds}


def _store(transport: Transport, namespace: str, cache: str) -> TransportConversations:
    return TransportConversations(builtin_format("claude"), transport=transport, namespace=namespace, cache=Path(cache))


async def _capture(store: TransportConversations, source: str) -> None:
    async with connect(source) as sandbox:
        await store.capture(CONVERSATION_ID, ConversationContext(sandbox=sandbox, durability="none"))


async def _restore(url: str, namespace: str, target: str, cache: str) -> float:
    store = _store(open_transport(url), namespace, cache)
    async with connect(target) as sandbox:
        context = ConversationContext(sandbox=sandbox, durability="none")
        began = time.perf_counter()
        await store.restore(await store.locate(CONVERSATION_ID, context), context)
        return time.perf_counter() - began


def _files_bytes(directory: Path) -> int:
    return sum(
        os.stat(os.path.join(folder, name)).st_size  # noqa: PTH116, PTH118 - a path object per file is slow
        for folder, _, names in os.walk(directory)
        for name in names
    )


_WORKS: dict[str, Callable[..., Awaitable[dict[str, Any]]]] = {
    work.__name__: work for work in (move, capture, restore, grow, copy, verify, plain)
}

if __name__ == "__main__":
    _, work_name, *rest = sys.argv
    told = asyncio.run(_WORKS[work_name](*rest))  # type: ignore[arg-type]
    print(json.dumps({**told, "peak_mib": own_peak_mib()}))
