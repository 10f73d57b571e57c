"""A real S3 server that fails, refuses, damages and forgets, through a proxy before it and by its own rules."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import obstore
import pytest
from obstore.store import LocalStore

from host_client.errors import ConfigurationError, ConflictError, OutpostError, SessionError, UnavailableError
from host_client.session.task import in_thread
from host_client.transports.objects import ObjectTransport, make_store
from host_client.transports.retry import RetryingTransport
from host_client.transports.url import open_transport
from support.object_store import OPEN, REGION
from support.store_proxy import StoreProxy, Trouble, store_proxy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.object_store import S3Server

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("s3_server")]

KEY = "a/b"


class Scene:
    """A place in the server, reached through a proxy and directly.

    Args:
        server: The server.
        proxy: The proxy before it.
    """

    def __init__(self, server: S3Server, proxy: StoreProxy) -> None:
        parts = urlsplit(server.place())
        self.url = server.url(f"{parts.netloc}{parts.path}", proxy.endpoint)
        self.proxy = proxy
        self.pauses_count = 0
        self.direct = open_transport(server.url(f"{parts.netloc}{parts.path}"))
        store = make_store("s3", parts.netloc, endpoint=proxy.endpoint, region=REGION, allow_http=True, path_style=True)
        self.once = ObjectTransport(store, name="the store", prefix=parts.path.strip("/"))
        self.transport = RetryingTransport(self.once, sleep=self._sleep, max_attempts_count=4)

    async def _sleep(self, _: float) -> None:
        self.pauses_count += 1

    async def trouble(self, trouble: Trouble) -> None:
        """Let something go wrong from now on, after the probe of a first write."""
        await self.once._probe()
        self.proxy.troubles.append(trouble)


@pytest.fixture
def scene(s3_server: S3Server) -> Iterator[Scene]:
    """One place."""
    with store_proxy(s3_server.endpoint) as proxy:
        yield Scene(s3_server, proxy)


@pytest.mark.parametrize("status", [500, 502, 503, 504, 429])
async def test_a_busy_store_is_asked_again(scene: Scene, status: int) -> None:
    """503 then 200 is a success, of every call."""
    for method in ("PUT", "GET", "HEAD", "DELETE"):
        await scene.trouble(Trouble(method, status=status, times=2))
    revision = await scene.transport.write(KEY, b"data", if_revision=None)
    found = await scene.transport.read(KEY)
    assert found is not None
    assert (found.data, found.revision) == (b"data", revision)
    assert await scene.transport.stat(KEY) is not None
    await scene.trouble(Trouble("GET", part="list-type", status=status))
    assert [info.key async for info in scene.transport.list()] == [KEY]
    await scene.transport.remove(KEY)
    assert await scene.direct.read(KEY) is None
    assert scene.pauses_count == 9


async def test_a_store_that_stays_busy_is_told(scene: Scene) -> None:
    """The failure says that it may be repeated, and names the place and the answer."""
    await scene.trouble(Trouble(status=503, times=None))
    for call in (scene.transport.read(KEY), scene.transport.write(KEY, b"", if_revision=None)):
        with pytest.raises(UnavailableError) as caught:
            await call
        assert (caught.value.reason, caught.value.retryable) == ("store_unreachable", True)
        assert caught.value.message == "the store cannot be reached, or fails (503)"
        assert "endpoint" in caught.value.hint


async def test_a_cut_body_is_no_short_read(scene: Scene) -> None:
    """A body that ends early is asked for again, wherever it ends; if it always does, that is a failure."""
    data = os.urandom(300_000)
    await scene.transport.write(KEY, data, if_revision=None)
    for count in (0, 10, 64, 100, 299_000):
        await scene.trouble(Trouble("GET", cut_after_bytes=count))
        found = await scene.transport.read(KEY)
        assert found is not None
        assert found.data == data
    await scene.trouble(Trouble("GET", cut_after_bytes=200_000, times=None))
    with pytest.raises(UnavailableError) as caught:
        await scene.transport.read(KEY)
    assert caught.value.reason == "store_unreachable"


async def test_damage_on_the_way_is_read_again(scene: Scene) -> None:
    """One flipped bit on the way costs a second read; a bit that is always flipped is damage."""
    await scene.transport.write(KEY, b"data", if_revision=None)
    await scene.trouble(Trouble("GET", is_flipped=True))
    found = await scene.once.read(KEY)
    assert found is not None
    assert found.data == b"data"
    await scene.trouble(Trouble("GET", is_flipped=True, times=None))
    with pytest.raises(SessionError) as caught:
        await scene.transport.read(KEY)
    assert caught.value.reason == "digest_mismatch"


async def test_a_lost_answer_after_success_is_one(scene: Scene) -> None:
    """A write whose answer was lost is known again: created, replaced, with the revision that the store has."""
    revision = None
    for data in (b"first", b"second", b"second"):
        await scene.trouble(Trouble("PUT", is_lost=True))
        revision = await scene.transport.write(KEY, data, if_revision=revision)
        found = await scene.direct.read(KEY)
        assert found is not None
        assert (found.data, found.revision) == (data, revision)
    await scene.trouble(Trouble("DELETE", is_lost=True))
    await scene.transport.remove(KEY)
    assert await scene.direct.read(KEY) is None


async def test_a_write_at_the_same_moment_is_a_conflict(scene: Scene) -> None:
    """A store that answers 409 because another write is under way is taken at its word: created, and replaced."""
    revision = await scene.direct.write("there", b"", if_revision=None)
    await scene.trouble(Trouble("PUT", status=409, times=2))
    for key, known in (("new", None), ("there", revision)):
        with pytest.raises(ConflictError) as caught:
            await scene.transport.write(key, b"data", if_revision=known)
        assert caught.value.reason == "stale_revision"


async def test_what_is_too_large_is_not_fetched(scene: Scene) -> None:
    """An object that is larger than its reader allows is refused by its size, not by taking it."""
    await scene.transport.write(KEY, os.urandom(8 << 20), if_revision=None)
    await scene.trouble(Trouble("GET", cut_after_bytes=0))
    with pytest.raises(OutpostError) as caught:
        await scene.once.read(KEY, max_bytes=1000)
    assert (caught.value.code, caught.value.reason) == ("limit", "max_bytes")


@pytest.mark.parametrize("method", ["GET", "PUT"])
async def test_a_slow_store_can_be_left(scene: Scene, method: str) -> None:
    """A cancel does not wait for the store, and nothing half is there."""
    await scene.transport.write(KEY, b"old", if_revision=None)
    found = await scene.transport.read(KEY)
    assert found is not None
    trouble = Trouble(method, hold=threading.Event())
    await scene.trouble(trouble)
    call = (
        scene.transport.read(KEY)
        if method == "GET"
        else scene.transport.write(KEY, b"new" * 100, if_revision=found.revision)
    )
    task = asyncio.ensure_future(call)
    assert await in_thread(trouble.reached.wait, 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    trouble.hold.set()
    found = await scene.direct.read(KEY)
    assert found is not None
    assert found.data in (b"old", b"new" * 100)


async def test_a_killed_writer_leaves_nothing_half(scene: Scene, s3_server: S3Server) -> None:
    """A process that is killed while its request is on the way leaves no object, or all of it; others go on."""
    await scene.transport.write("other", b"", if_revision=None)
    trouble = Trouble("PUT", part="/a/b", hold=threading.Event())
    await scene.trouble(trouble)
    program = (
        "import asyncio, sys; from host_client.transports.url import open_transport;"
        "asyncio.run(open_transport(sys.argv[1]).write('a/b', bytes(5_000_000), if_revision=None))"
    )
    environment = {"PATH": os.environ["PATH"], **s3_server.variables()}

    def run_and_kill() -> None:
        with subprocess.Popen([sys.executable, "-c", program, scene.url], env=environment) as process:
            try:
                assert trouble.reached.wait(60)
            finally:
                process.kill()

    await in_thread(run_and_kill)
    found = await scene.direct.read(KEY)
    assert found is None
    assert [info.key async for info in scene.direct.list()] == ["other"]
    trouble.hold.set()


@pytest.mark.parametrize("header", ["If-None-Match", "If-Match"])
async def test_a_proxy_that_forgets_conditions_is_found(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, header: str
) -> None:
    """Where conditions do not reach the store nothing is written, and what to do is told; reading goes on."""
    bucket = urlsplit(s3_server.bucket(OPEN)).netloc
    with store_proxy(s3_server.endpoint) as proxy:
        monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")  # signed conditions are not forgotten unnoticed
        transport = open_transport(s3_server.url(bucket, proxy.endpoint))
        proxy.troubles.append(Trouble(without=(header,), times=None))
        with pytest.raises(ConfigurationError) as caught:
            await transport.write(KEY, b"data", if_revision=None)
        assert caught.value.reason == "no_conditional_writes"
        assert "If-Match" in caught.value.hint
        assert await transport.read(KEY) is None
        proxy.troubles.clear()
        await transport.write(KEY, b"data", if_revision=None)
        await transport.remove(KEY)


async def test_a_store_without_conditions_is_refused(tmp_path: Path) -> None:
    """A directory as obstore has it cannot replace by revision: refused before anything of the caller's is there."""
    transport = ObjectTransport(LocalStore(tmp_path), name="a directory")
    with pytest.raises(ConfigurationError) as caught:
        await transport.write(KEY, b"data", if_revision=None)
    assert caught.value.reason == "no_conditional_writes"
    assert "file:///" in caught.value.hint
    assert [info.key async for info in transport.list()] == []


async def test_the_probe_is_made_once(scene: Scene) -> None:
    """The first write of a place costs four small requests more, the first of each process three, all others none."""
    await scene.once.write("1", b"", if_revision=None)
    await scene.once.write("2", b"", if_revision=None)
    assert [method for method, _ in scene.proxy.requests] == ["GET", *["PUT"] * 5]
    scene.proxy.requests.clear()
    await ObjectTransport(scene.once._store, name="again", prefix="/".join(scene.once._prefix)).write(
        "3", b"", if_revision=None
    )
    assert [method for method, _ in scene.proxy.requests] == ["GET", *["PUT"] * 3]
    assert sorted([info.key async for info in scene.direct.list()]) == ["1", "2", "3"]


async def test_no_parts_are_sent(scene: Scene) -> None:
    """However large an object is, it is one request: it is there at once or not, with an ETag that is a digest."""
    await scene.trouble(Trouble(times=0))
    scene.proxy.requests.clear()
    await scene.once.write(KEY, bytes(20 << 20), if_revision=None)
    assert [method for method, _ in scene.proxy.requests] == ["PUT"]


async def test_odd_tags_are_none_of_our_business(scene: Scene, s3_server: S3Server) -> None:
    """An object copied there in parts has a tag that is no digest: it is read, verified, and replaced by that tag."""
    await scene.transport.write(KEY, b"data" * 3_000_000, if_revision=None)
    parts = urlsplit(scene.url)
    store, path = s3_server.store(parts.netloc), f"{parts.path.strip('/')}/a/b!"
    stored = bytes((await obstore.get_async(store, path)).bytes())
    await obstore.put_async(store, path, stored, use_multipart=True)
    found = await scene.transport.read(KEY)
    assert found is not None
    assert "-" in found.revision
    assert found.data == b"data" * 3_000_000
    await scene.transport.write(KEY, b"other", if_revision=found.revision)


REFUSED = {"unknown key": ("nobody", "SECRET"), "wrong secret": ("writer", "SECRET")}


@pytest.mark.parametrize("who", REFUSED)
async def test_wrong_credentials_are_told(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, who: str) -> None:
    """Every call says that the access is refused, where, and nothing of the credentials."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", REFUSED[who][0])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", REFUSED[who][1])
    transport = open_transport(s3_server.place())
    for call in (
        transport.read(KEY),
        transport.stat(KEY),
        transport.write(KEY, b"", if_revision=None),
        transport.remove(KEY),
        _keys(transport),
    ):
        with pytest.raises(ConfigurationError) as caught:
            await call
        assert caught.value.reason == "store_access"
        assert transport.name in caught.value.message
        assert "SECRET" not in f"{caught.value} {caught.value.facts}"


async def test_missing_credentials_are_told(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any in the environment the failure names that, not a machine's own service that does not answer."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(ConfigurationError) as caught:
        await open_transport(s3_server.place()).read(KEY)
    assert caught.value.reason == "store_access"
    assert "no credentials" in caught.value.message


async def test_who_may_only_read_reads(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """With credentials for reading everything is read and listed, and every change is refused."""
    url = s3_server.place()
    revision = await open_transport(url).write(KEY, b"data", if_revision=None)
    for name, value in s3_server.variables("reader").items():
        monkeypatch.setenv(name, value)
    transport = open_transport(url)
    found = await transport.read(KEY)
    assert found is not None
    assert found.data == b"data"
    assert await _keys(transport) == [KEY]
    for call in (
        transport.write(KEY, b"other", if_revision=revision),
        transport.write("new", b"other", if_revision=None),
        transport.remove(KEY),
        transport.remove(KEY, if_revision=revision),
    ):
        with pytest.raises(ConfigurationError) as caught:
            await call
        assert caught.value.reason == "store_access"


@pytest.mark.parametrize("identity", ["writer", "admin"])
async def test_a_missing_bucket_is_told(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, identity: str) -> None:
    """What is not there is told from an empty one, by each call for itself; none makes the bucket, even if it could."""
    for name, value in s3_server.variables(identity).items():
        monkeypatch.setenv(name, value)
    url = s3_server.url("missing-bucket/prefix")
    for call in (
        open_transport(url).write(KEY, b"", if_revision=None),
        open_transport(url).write(KEY, b"", if_revision="a"),
        open_transport(url).read(KEY),
        open_transport(url).stat(KEY),
        _keys(open_transport(url)),
    ):
        with pytest.raises(ConfigurationError) as caught:
            await call
        assert caught.value.reason == "no_such_store"
        assert "create the bucket" in caught.value.hint


async def test_a_store_that_is_away_is_told(s3_server: S3Server) -> None:
    """Where nothing listens the failure may be repeated."""
    bucket = urlsplit(s3_server.place()).netloc
    store = make_store("s3", bucket, endpoint="http://127.0.0.1:1", region=REGION, allow_http=True, path_style=True)
    with pytest.raises(UnavailableError) as caught:
        await ObjectTransport(store, name="away").read(KEY)
    assert (caught.value.reason, caught.value.message) == ("store_unreachable", "away cannot be reached, or fails")


async def test_another_region_is_told(scene: Scene) -> None:
    """A store that sends elsewhere without saying where means that the region is wrong; nothing is repeated."""
    await scene.trouble(Trouble(status=301, times=None))
    for call in (scene.transport.read(KEY), scene.transport.write(KEY, b"", if_revision=None)):
        with pytest.raises(ConfigurationError) as caught:
            await call
        assert caught.value.reason == "invalid_store"
        assert "region=" in caught.value.hint
    assert scene.pauses_count == 0


async def test_an_endpoint_of_the_environment_needs_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    """An endpoint without TLS that stands in the environment is not spoken to, and that is told at once."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(ConfigurationError) as caught:
        await open_transport("s3://bucket").read(KEY)
    assert caught.value.reason == "invalid_store"
    assert "AWS_ALLOW_HTTP" in caught.value.hint


async def _keys(transport: object) -> list[str]:
    return [info.key async for info in transport.list()]  # type: ignore[attr-defined]
