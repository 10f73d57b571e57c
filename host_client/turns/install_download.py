"""Download an archive of the catalogue to this host and verify it before anything of it is opened."""

from __future__ import annotations

import asyncio
import hashlib
import http.client
import tempfile
import urllib.error
import urllib.request
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING
from urllib.parse import urlsplit

from host_client.agents.tool import is_allowed_url
from host_client.errors import ProcessError
from host_client.sandbox.task import in_thread, opened_in_thread
from host_client.session.failure import host_failures

if TYPE_CHECKING:
    from collections.abc import Iterator

    from host_client.agents.tool import Download

DOWNLOAD_SECONDS = 900.0
"""Longest time that a download may take."""

STALL_SECONDS = 30.0
"""Longest silence of the server."""

_CHUNK_BYTES = 1 << 20
_MAX_REDIRECTS_COUNT = 5


async def download(source: Download, file: IO[bytes], *, stall_seconds: float = STALL_SECONDS) -> None:
    """Write what is at a URL to a file of this host; returns only when its SHA-512 is the one of the catalogue.

    Certificates are checked, and the proxies of this host's environment are used. A redirect leads to `https`, or
    from this machine to this machine. A cancel takes effect when the server next says something.

    Args:
        source: Where it is, and what it must be.
        file: Where it goes. On failure something else may stand there.
        stall_seconds: Longest silence of the server, in seconds.

    Raises:
        ProcessError: `install_failed`: it is not there, too large, cut off, late, or something else than it must be.
        LimitError: `disk_full` for the host's folder of temporary files.
    """
    sha512 = hashlib.sha512()
    size = 0

    def next_piece(response: http.client.HTTPResponse) -> int:
        with _failures(source.url):
            data = response.read1(_CHUNK_BYTES)
        if size + len(data) > source.max_bytes:
            raise failed(source.url, f"has more than {source.max_bytes} bytes")
        sha512.update(data)
        with host_failures(Path(tempfile.gettempdir())):
            file.write(data)
        return len(data)

    try:
        async with (
            asyncio.timeout(DOWNLOAD_SECONDS),
            opened_in_thread(_open, source, stall_seconds) as response,
        ):
            promised = response.length
            while piece := await in_thread(next_piece, response):
                size += piece
    except TimeoutError:
        raise failed(source.url, f"was not there within {DOWNLOAD_SECONDS:.0f} s") from None
    if promised is not None and size < promised:
        raise failed(source.url, f"was cut off after {size} of {promised} bytes")
    if sha512.hexdigest() != source.sha512:
        raise ProcessError(
            "install_failed",
            f"{place(source.url)} does not have the SHA-512 of the catalogue; nothing of it was used",
            hint="somebody changed it: compare it with what its maker publishes before you change the catalogue",
            facts={"url": place(source.url), "sha512": sha512.hexdigest()},
        )


def place(url: str) -> str:
    """Return a URL without what may be secret: its query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}{parts.path}"


def failed(url: str, problem: str) -> ProcessError:
    """Return the failure of an installation whose archive has a problem."""
    return ProcessError("install_failed", f"{place(url)} {problem}", facts={"url": place(url)})


@contextmanager
def _open(source: Download, stall_seconds: float) -> Iterator[http.client.HTTPResponse]:
    opener = urllib.request.OpenerDirector()
    handlers = [
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        _Redirects(),
    ]
    if urlsplit(source.url).scheme == "https":
        handlers.append(urllib.request.ProxyHandler())
    for handler in handlers:
        opener.add_handler(handler)
    # `identity`: what the catalogue has the digest of is what is at the URL, not a transport's form of it.
    request = urllib.request.Request(source.url, headers={"Accept-Encoding": "identity", "User-Agent": "outpost"})  # noqa: S310  checked by the entry
    with _failures(source.url):
        response: http.client.HTTPResponse = opener.open(request, timeout=stall_seconds)
    with closing(response):
        if response.length is not None and response.length > source.max_bytes:
            raise failed(source.url, f"has {response.length} bytes, more than {source.max_bytes}")
        yield response


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects to where a download may come from."""

    max_redirections = _MAX_REDIRECTS_COUNT

    def redirect_request(  # noqa: PLR0917  urllib calls it so
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        """Refuse one that leads to an unsafe place."""
        is_same = urlsplit(newurl).scheme == req.type
        if not is_allowed_url(newurl) or not (is_same or urlsplit(newurl).scheme == "https"):
            fp.close()
            raise failed(req.full_url, "redirects to a place that is not https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


@contextmanager
def _failures(url: str) -> Iterator[None]:
    """Tell what the network reports in words of our own."""
    try:
        yield
    except urllib.error.HTTPError as error:
        error.close()
        raise failed(url, f"answers with status {error.code}") from None
    except TimeoutError:
        raise failed(url, "does not answer") from None
    except urllib.error.URLError as error:
        is_late = isinstance(error.reason, TimeoutError)
        raise failed(url, "does not answer" if is_late else "cannot be reached from this host") from None
    except (OSError, http.client.HTTPException, ValueError):
        raise failed(url, "could not be read to its end") from None
