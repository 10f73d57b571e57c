"""Objects in an object store, through obstore: `ObjectTransport`.

The one rule: who replaces an object says which write of it, and the store refuses when it has another; a store that
does not refuse is not written to.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Final

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store

from host_client.errors import ConfigurationError, OutpostError, SessionError
from host_client.session.forked import refuse_forked
from host_client.session.task import in_thread
from host_client.transports.contract import MAX_OBJECT_BYTES, ObjectInfo, StoredObject, check_key, stale_revision
from host_client.transports.frame import check_size, make_header, open_frame
from host_client.transports.object_failure import store_failure
from host_client.transports.path import folders_of, key_of, path_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from obstore import GetResult, ObjectMeta, PutMode, PutResult, UpdateVersion
    from obstore.store import AzureConfig, ClientConfig, ObjectStore, RetryConfig, S3Config

_PROBE: Final = ".probe!"
"""An object of each store, never removed and of no key, at which it shows what it refuses."""

_IN_MEMORY: Final[dict[str, MemoryStore]] = {}
_PROCESS_ID: Final = os.getpid()

_LISTED_COUNT: Final = 1000
_FAILURES: Final = (BaseError, OSError, ValueError, NotImplementedError)
"""What obstore raises: its own classes, and built-in ones beside them."""

_PIECE_BYTES: Final = 1 << 20
"""What a body is taken in."""

_IN_LOOP_MAX_BYTES: Final = 128 << 10
"""What takes longer to hash than a thread to start is hashed in one."""


class ObjectTransport:
    """Keep objects in a store of obstore: S3 and what speaks like it, Google's, Azure's, or memory.

    The store must have conditional writes (`If-Match` and `If-None-Match`, or generations); that is looked at before
    the first write: three small requests. Turn off the store's own retries (`retry_config={"max_retries": 0}`): they
    know nothing of writes that took effect. `RetryingTransport` does.

    Args:
        store: Any store of obstore.
        name: The place, for people; without credentials.
        prefix: Below which keys lie in the store.
    """

    def __init__(self, store: ObjectStore, *, name: str, prefix: str = "") -> None:
        self._store = store
        self._name = name
        self._prefix = check_key(prefix, "prefix").split("/") if prefix else []
        # Google's store compares generations, all others compare tags.
        self._by_version = isinstance(store, GCSStore)
        self._probing: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None
        self._is_probed = False
        self._is_there = isinstance(store, MemoryStore)

    @property
    def name(self) -> str:
        """Return the place as it was given."""
        return self._name

    async def read(self, key: str, *, max_bytes: int = MAX_OBJECT_BYTES) -> StoredObject | None:
        """Read an object; see `Transport.read`. What seems damaged is read twice: it may have been so on the way."""
        try:
            return await self._read(check_key(key), max_bytes)
        except SessionError:
            return await self._read(key, max_bytes)

    async def stat(self, key: str) -> ObjectInfo | None:
        """Look at an object; see `Transport.stat`."""
        meta = await self._head(check_key(key))
        return None if meta is None else ObjectInfo(key, meta["size"], meta["last_modified"])

    async def write(self, key: str, data: bytes, *, if_revision: str | None) -> str:
        """Write an object; see `Transport.write`. It is never sent in parts, so that it is there at once or not."""
        path = self._path(check_key(key))
        stored = await _with_header(data)
        await self._probe()
        if if_revision is not None and not self._may_be(if_revision):
            raise stale_revision(key)
        try:
            result = await self._put(path, stored, "create" if if_revision is None else self._version(if_revision))
        except (AlreadyExistsError, PreconditionError):
            raise stale_revision(key) from None
        except FileNotFoundError:
            # What is to be replaced is gone, or the whole bucket is not there.
            await self._check_there()
            raise stale_revision(key) from None
        except _FAILURES as error:
            raise store_failure(error, self._name) from None
        return self._revision(result)

    async def remove(self, key: str, *, if_revision: str | None = None) -> None:
        """Remove an object; see `Transport.remove`. The revision is compared before, not at the same moment."""
        path = self._path(check_key(key))
        if if_revision is not None:
            meta = await self._head(key)
            if meta is None:
                return
            if self._revision(meta) != if_revision:
                raise stale_revision(key)
        try:
            await obstore.delete_async(self._store, path)
        except FileNotFoundError:
            await self._check_there()
        except _FAILURES as error:
            raise store_failure(error, self._name) from None

    async def list(self, prefix: str = "") -> AsyncIterator[ObjectInfo]:
        """Yield what is below a prefix; see `Transport.list`."""
        folders = [*self._prefix, *folders_of(check_key(prefix, "prefix") if prefix else "")]
        try:
            stream = obstore.list(self._store, "/".join(folders) or None, chunk_size=_LISTED_COUNT)
            async for chunk in stream:
                for meta in chunk:
                    path = tuple(meta["path"].split("/"))
                    key = key_of(path[len(self._prefix) :])
                    if key and [*path[: len(folders)]] == folders:
                        yield ObjectInfo(key, meta["size"], meta["last_modified"])
        except _FAILURES as error:
            raise store_failure(error, self._name, listing=True) from None

    async def _read(self, key: str, max_bytes: int) -> StoredObject | None:
        try:
            result = await obstore.get_async(self._store, self._path(key))
            size = result.meta["size"]
            # Before the body is taken: what is too large is never in memory.
            check_size(key, size, max_bytes)
            stored = await _body(result, size)
        except FileNotFoundError:
            await self._check_there()
            return None
        except _FAILURES as error:
            raise store_failure(error, self._name) from None
        if size > _IN_LOOP_MAX_BYTES:
            data = await in_thread(open_frame, key, stored)
        else:
            data = open_frame(key, stored)
        return StoredObject(data, self._revision(result.meta))

    async def _head(self, key: str) -> ObjectMeta | None:
        try:
            return await obstore.head_async(self._store, self._path(key))
        except FileNotFoundError:
            await self._check_there()
            return None
        except _FAILURES as error:
            raise store_failure(error, self._name) from None

    async def _put(self, path: str, stored: bytes, mode: PutMode) -> PutResult:
        return await obstore.put_async(self._store, path, stored, mode=mode, use_multipart=False)

    async def _check_there(self) -> None:
        """Tell a bucket that is not there from an object that is not, once: stores say the same of both."""
        if self._is_there:
            return
        try:
            async for _ in obstore.list(self._store, "/".join((*self._prefix, _PROBE)), chunk_size=1):
                break
        except _FAILURES as error:
            failure = store_failure(error, self._name, listing=True)
            if failure.reason != "store_access":  # who may not list may still read
                raise failure from None
        self._is_there = True

    async def _probe(self) -> None:
        """Refuse a store that puts one object over another when it should not.

        Raises:
            ConfigurationError: `no_conditional_writes`.
        """
        loop = asyncio.get_running_loop()
        if self._probing is None or self._probing[0] is not loop:
            self._probing = (loop, asyncio.Lock())  # a lock is of one loop; a transport may be used in several
        async with self._probing[1]:
            if self._is_probed:
                return
            # Some servers make a bucket of any name that is written to, or tell a missing one from nothing.
            await self._check_there()
            path = "/".join((*self._prefix, _PROBE))
            stored = make_header(b"")
            if not await self._is_refused(path, stored, "create") and not await self._is_refused(
                path, stored, "create"
            ):
                raise self._unsafe("it creates an object twice")
            if not await self._is_refused(path, stored, self._version("1" if self._by_version else f'"{0:032}"')):
                raise self._unsafe("it replaces an object whatever its revision is")
            self._is_probed = True

    async def _is_refused(self, path: str, stored: bytes, mode: PutMode) -> bool:
        try:
            await self._put(path, stored, mode)
        except (AlreadyExistsError, PreconditionError):
            return True
        except NotImplementedError:
            raise self._unsafe("it cannot be asked to") from None
        except _FAILURES as error:
            raise store_failure(error, self._name, listing=True) from None
        return False

    def _unsafe(self, what: str) -> OutpostError:
        return ConfigurationError(
            "no_conditional_writes",
            f"{self._name} does not keep two writers apart: {what}",
            hint="use a store, and a proxy before it, that honours If-Match and If-None-Match of a PUT, "
            "as S3 and SeaweedFS do; a directory of one host is a store as well: file:///DIRECTORY",
        )

    def _may_be(self, revision: str) -> bool:
        """Tell whether a store could have named a revision so; some take others for a malformed request, or for any."""
        if self._by_version:
            return revision.isascii() and revision.isdecimal()
        return revision not in {"", "*"} and revision.isascii() and revision.isprintable()

    def _version(self, revision: str) -> UpdateVersion:
        return {"version": revision} if self._by_version else {"e_tag": revision}

    def _revision(self, found: Mapping[str, object] | ObjectMeta | PutResult) -> str:
        revision = found["version" if self._by_version else "e_tag"]
        if not isinstance(revision, str):
            raise self._unsafe("it does not name revisions")
        return revision

    def _path(self, key: str) -> str:
        return "/".join((*self._prefix, *path_of(key)))


async def _body(result: GetResult, size: int) -> bytearray:
    """Read a body, and of one that is longer than it said no more than tells so."""
    body = bytearray()
    async for piece in result.stream(_PIECE_BYTES):
        body += memoryview(piece)
        if len(body) > size:
            break
    return body


async def _with_header(data: bytes) -> bytes:
    def join() -> bytes:
        return make_header(data) + data

    return await in_thread(join) if len(data) > _IN_LOOP_MAX_BYTES else join()


def make_store(
    kind: str,
    bucket: str,
    *,
    allow_http: bool,
    path_style: bool,
    endpoint: str = "",
    region: str = "",
    account: str = "",
) -> ObjectStore:
    """Return a store of obstore that repeats nothing by itself; credentials are those of the environment.

    Args:
        kind: `s3`, `gs`, `az` or `memory`; stores in memory are kept by name for as long as the process lives.
        bucket: Bucket, container or name.
        allow_http: An endpoint without TLS may be spoken to.
        path_style: The bucket's name is part of the path, not of the endpoint's host.
        endpoint: Where the service is; empty: what the environment says, or the vendor's.
        region: Empty: what the environment says.
        account: Of Azure; empty: what the environment says.

    Raises:
        ConfigurationError: `invalid_argument`: the process was forked from one that used object stores.
    """
    refuse_forked(_PROCESS_ID, "object stores")
    client: ClientConfig = {"connect_timeout": "10s", "read_timeout": "60s", "timeout": "10m"}
    if allow_http:
        client["allow_http"] = True
    retries: RetryConfig = {"max_retries": 0}
    if kind == "memory":
        return _IN_MEMORY.setdefault(bucket, MemoryStore())
    if kind == "gs":
        return GCSStore(bucket, client_options=client, retry_config=retries)
    if kind == "az":
        azure: AzureConfig = {}
        if endpoint:
            azure["endpoint"] = endpoint
        if account:
            azure["account_name"] = account
        return AzureStore(bucket, config=azure, client_options=client, retry_config=retries)
    config: S3Config = {"virtual_hosted_style_request": not path_style, "disable_bulk_delete": True}
    if endpoint:
        config["endpoint"] = endpoint
    if region:
        config["region"] = region
    return S3Store(bucket, config=config, client_options=client, retry_config=retries)
