"""Stores by their URLs: `open_transport`.

The one rule: no secret is part of a URL, which ends up in logs; credentials come from the environment.
"""

from __future__ import annotations

import importlib
import ipaddress
import re
from typing import TYPE_CHECKING, Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from host_client.errors import ConfigurationError, printable
from host_client.transports.contract import check_key
from host_client.transports.local import LocalTransport
from host_client.transports.retry import RetryingTransport

if TYPE_CHECKING:
    from collections.abc import Mapping

    from host_client.transports.contract import Transport

_OPTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "s3": ("endpoint", "region", "path_style", "allow_http"),
    "gs": (),
    "az": ("account", "endpoint", "allow_http"),
    "memory": (),
    "file": (),
}
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,253}[A-Za-z0-9])?")
_HINT: Final = (
    "s3://BUCKET/PREFIX?endpoint=URL&region=NAME, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX?account=NAME, "
    "memory://NAME or file:///DIRECTORY"
)


def open_transport(url: str) -> Transport:
    """Return the transport of a store; nothing is asked of it yet.

    `s3://bucket/prefix?endpoint=…&region=…&path_style=…&allow_http=…`, `gs://bucket/prefix`,
    `az://container/prefix?account=…&endpoint=…&allow_http=…`, `memory://name` (within this process) or
    `file:///directory`. What may be repeated after a failure is. Credentials are what obstore finds in the environment:
    `docs/archives.md` names the variables.

    An endpoint without TLS must be on this machine, unless `allow_http=true`.

    Raises:
        ConfigurationError: `invalid_store`: it is no such URL, or has an option that is not known.
    """
    parts = _split(url)
    options = _options(parts)
    if parts.scheme == "file":
        return RetryingTransport(LocalTransport(_directory(parts)))
    bucket, prefix = parts.netloc, unquote(parts.path).strip("/")
    if not _NAME.fullmatch(bucket):
        raise _invalid(f"{printable(bucket)!r} is no name of a bucket")
    if prefix:
        try:
            check_key(prefix, "prefix")
        except ConfigurationError as error:
            raise _invalid(error.message) from None
    query = "".join(f"{mark}{key}={value}" for mark, (key, value) in zip("?&&&", options.items(), strict=False))
    name = f"{parts.scheme}://{bucket}{'/' if prefix else ''}{prefix}{query}"
    allow_http = _flag(options, "allow_http")
    if "endpoint" in options:
        allow_http = _check_endpoint(options["endpoint"], allow_http=allow_http)
    objects = importlib.import_module("host_client.transports.objects")
    store = objects.make_store(
        parts.scheme,
        bucket,
        allow_http=allow_http,
        path_style=_flag(options, "path_style", otherwise=True),
        **{key: options[key] for key in ("endpoint", "region", "account") if key in options},
    )
    return RetryingTransport(objects.ObjectTransport(store, name=name, prefix=prefix))


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
    except ValueError:
        raise _invalid("it cannot be read as a URL") from None
    if parts.scheme not in _OPTIONS:
        raise _invalid(
            f"{printable(parts.scheme)!r} is no kind of store" if parts.scheme else "it names no kind of store"
        )
    if "@" in parts.netloc:
        raise _invalid("it has a name or a password: credentials come from the environment")
    if parts.fragment or "#" in url:
        raise _invalid("it has a fragment")
    return parts


def _options(parts: SplitResult) -> dict[str, str]:
    known = _OPTIONS[parts.scheme]
    options: dict[str, str] = {}
    for key, value in parse_qsl(parts.query, keep_blank_values=True):
        if key not in known:
            others = f"; there are {', '.join(known)}" if known else ""
            raise _invalid(f"{printable(key)!r} is no option of {parts.scheme}{others}")
        if key in options or not value:
            raise _invalid(f"the option {key!r} is there twice or has no value")
        options[key] = value
    for key in ("region", "account"):
        if key in options and not _NAME.fullmatch(options[key]):
            raise _invalid(f"the option {key!r} is no plain name")
    return options


def _flag(options: Mapping[str, str], key: str, *, otherwise: bool = False) -> bool:
    value = options.get(key, str(otherwise).lower())
    if value not in ("true", "false"):
        raise _invalid(f"the option {key!r} is neither true nor false")
    return value == "true"


def _check_endpoint(endpoint: str, *, allow_http: bool) -> bool:
    """Return whether an endpoint is to be spoken to without TLS."""
    try:
        parts = urlsplit(endpoint)
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_usable = False
    if not is_usable or "@" in parts.netloc or parts.query or parts.fragment:
        raise _invalid("its endpoint is no plain http or https URL")
    if parts.scheme == "https" or allow_http or _is_loopback(parts.hostname or ""):
        return parts.scheme == "http"
    raise _invalid("its endpoint has no TLS and is another machine's; `allow_http=true` allows that")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _directory(parts: SplitResult) -> str:
    directory = unquote(parts.path)
    if parts.netloc not in ("", "localhost") or not directory.startswith("/") or "\0" in directory:
        raise _invalid("it names no directory of this host: file:///DIRECTORY")
    return directory


def _invalid(problem: str) -> ConfigurationError:
    return ConfigurationError("invalid_store", f"the URL names no store: {problem}", hint=_HINT)
