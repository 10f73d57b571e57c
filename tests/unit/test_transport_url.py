"""Stores by their URLs: what is understood, what is refused and how, and that no secret is told."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from host_client.errors import ConfigurationError
from host_client.transports.url import open_transport

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio

NAMES = {
    "s3://bucket": "s3://bucket",
    "s3://bucket/": "s3://bucket",
    "s3://bucket/a/b/": "s3://bucket/a/b",
    "s3://bucket/p?endpoint=http://127.0.0.1:1&region=us-east-1": "s3://bucket/p?endpoint=http://127.0.0.1:1&region=us-east-1",
    "s3://b-1.x?endpoint=http%3A%2F%2F%5B%3A%3A1%5D%3A1": "s3://b-1.x?endpoint=http://[::1]:1",
    "s3://bucket?endpoint=http://localhost:1&path_style=true": "s3://bucket?endpoint=http://localhost:1&path_style=true",
    "s3://bucket?endpoint=https://s3.example.com&path_style=false": "s3://bucket?endpoint=https://s3.example.com&path_style=false",
    "s3://bucket?endpoint=http://10.0.0.1&allow_http=true": "s3://bucket?endpoint=http://10.0.0.1&allow_http=true",
    "gs://bucket/prefix": "gs://bucket/prefix",
    "az://container/prefix?account=me": "az://container/prefix?account=me",
    "memory://name": "memory://name",
    "file:///some/where": "file:///some/where",
    "file://localhost/some/wh%20ere/": "file:///some/wh ere",
}

REFUSED = {
    "": "no kind of store",
    "bucket": "no kind of store",
    "/some/where": "no kind of store",
    "http://host/bucket": "'http'",
    "s3://": "no name of a bucket",
    "s3:///prefix": "no name of a bucket",
    "s3://a b": "no name of a bucket",
    "s3://user:SECRET@bucket": "name or a password",
    "s3://bucket/../x": "cannot be a prefix",
    "s3://bucket/a//b": "cannot be a prefix",
    "s3://bucket/.a": "cannot be a prefix",
    "s3://bucket#SECRET": "fragment",
    "s3://bucket?endpont=x": "'endpont' is no option of s3; there are endpoint, region",
    "s3://bucket?secret_access_key=SECRET": "'secret_access_key' is no option",
    "s3://bucket?region=SECRET&region=SECRET": "'region' is there twice",
    "s3://bucket?region=": "'region' is there twice or has no value",
    "s3://bucket?region=a b": "'region' is no plain name",
    "s3://bucket?endpoint=ftp://SECRET": "endpoint is no plain http",
    "s3://bucket?endpoint=http://": "endpoint is no plain http",
    "s3://bucket?endpoint=http://u:SECRET@127.0.0.1": "endpoint is no plain http",
    "s3://bucket?endpoint=http://127.0.0.1?SECRET": "endpoint is no plain http",
    "s3://bucket?endpoint=http://127.0.0.1:99999": "endpoint is no plain http",
    "s3://bucket?endpoint=http://10.0.0.1": "allow_http=true",
    "s3://bucket?endpoint=http://localhost.example.com": "allow_http=true",
    "s3://bucket?endpoint=http://10.0.0.1&allow_http=false": "allow_http=true",
    "s3://bucket?endpoint=http://10.0.0.1&allow_http=yes": "neither true nor false",
    "s3://bucket?path_style=1": "neither true nor false",
    "s3://[": "cannot be read",
    "gs://bucket?region=x": "'region' is no option of gs",
    "az://container?region=x": "'region' is no option of az; there are account, endpoint",
    "file://host/dir": "no directory of this host",
    "file:relative": "no directory of this host",
    "file:///a%00b": "no directory of this host",
    "file:///dir?create=true": "'create' is no option of file",
    "memory://": "no name of a bucket",
}


@pytest.mark.parametrize("url", NAMES)
def test_stores_are_named(url: str) -> None:
    """A URL that is understood gives a transport whose name is a URL for the same place; nothing is asked of it."""
    transport = open_transport(url)
    assert transport.name == NAMES[url]
    assert open_transport(transport.name).name == NAMES[url]


@pytest.mark.parametrize("url", REFUSED)
def test_what_is_no_store_is_refused(url: str) -> None:
    """The problem is named, what is possible is told, and nothing that may be a secret is repeated."""
    with pytest.raises(ConfigurationError) as caught:
        open_transport(url)
    assert caught.value.reason == "invalid_store"
    assert REFUSED[url] in caught.value.message
    assert "s3://BUCKET/PREFIX" in caught.value.hint
    assert "SECRET" not in f"{caught.value} {caught.value.facts}"


async def test_memory_is_shared_by_name() -> None:
    """Within a process, one name is one store."""
    await open_transport("memory://shared-by-name").write("a", b"x", if_revision=None)
    assert await open_transport("memory://shared-by-name").read("a") is not None
    assert await open_transport("memory://another-name").read("a") is None


async def test_a_directory_is_a_store(tmp_path: Path) -> None:
    """Spaces and other characters of a directory are written as in any URL."""
    (tmp_path / "a b%").mkdir()
    transport = open_transport((tmp_path / "a b%").as_uri())
    await transport.write("a/b", b"x", if_revision=None)
    assert (tmp_path / "a b%/a/b!").is_file()


def test_object_stores_are_loaded_when_needed() -> None:
    """Who uses no object store does not pay for the library: neither the package nor a directory loads it."""
    program = (
        "import sys, host_client; host_client.open_transport('file:///tmp'); print('obstore' in sys.modules);"
        "host_client.open_transport('memory://a'); print('obstore' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["False", "True"]
