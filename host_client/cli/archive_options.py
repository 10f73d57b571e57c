"""Options of the commands about archives: which store, namespace and key."""

from __future__ import annotations

import functools
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from host_client.agents.registry import builtin_format
from host_client.errors import ConfigurationError
from host_client.stores.archive import TransportConversations
from host_client.stores.archive_key import ArchiveKey
from host_client.stores.archive_maintenance import ConversationArchive
from host_client.transports.url import open_transport

if TYPE_CHECKING:
    from collections.abc import Callable

    from host_client.transports.contract import Transport

_KEY_VARIABLE = "OUTPOST_ARCHIVE_KEY"
_UNITS_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"([0-9]{1,9})([smhd]?)")


@dataclass(frozen=True, slots=True)
class ArchivePlace:
    """A namespace of a store.

    Attributes:
        url: Names the store.
        namespace: The namespace.
        key: Its key; None: it is not encrypted.
    """

    url: str
    namespace: str
    key: ArchiveKey | None

    def conversations(
        self, format_name: str, *, cache: Path | None = None, compress: bool = True, force: bool = False
    ) -> TransportConversations:
        """Return the archived conversations of a format.

        Raises:
            ConfigurationError: `unknown_format`, `invalid_store`, `invalid_key`.
        """
        return TransportConversations(
            builtin_format(format_name),
            transport=self._transport(),
            namespace=self.namespace,
            key=self.key,
            cache=cache,
            compress=compress,
            force=force,
        )

    def archive(self) -> ConversationArchive:
        """Return the namespace as a whole.

        Raises:
            ConfigurationError: `invalid_store`, `invalid_key`.
        """
        return ConversationArchive(self._transport(), self.namespace, self.key)

    def _transport(self) -> Transport:
        if self.url.lower().startswith("memory:"):
            raise ConfigurationError(
                "invalid_store",
                "a store in memory ends with this command, and what it holds with it",
                hint="name one that lasts, such as file:///DIRECTORY",
            )
        return open_transport(self.url)


class Duration(click.ParamType[float]):
    """A time in seconds, or with a unit: `90s`, `15m`, `24h`, `30d`."""

    name = "DURATION"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read a number and its unit."""
        if isinstance(value, int | float):
            return float(value)
        found = _DURATION.fullmatch(str(value))
        if found is None:
            self.fail(f"{value!r} is no time such as 90s, 15m, 24h or 30d", param, ctx)
        return float(int(found[1]) * _UNITS_SECONDS[found[2]])


def archive_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that name a namespace; it takes them as one `place`."""

    @click.option("--store", "url", envvar="OUTPOST_STORE", required=True, metavar="URL", help="Store of the archive.")
    @click.option("--namespace", envvar="OUTPOST_NAMESPACE", required=True, metavar="NAME", help="Part of the store.")
    @click.option(
        "--key-file",
        type=click.Path(path_type=Path),
        help=f"File with the key of an encrypted namespace; default: what {_KEY_VARIABLE} holds, or none.",
    )
    @functools.wraps(function)
    def command(*args: Any, url: str, namespace: str, key_file: Path | None, **options: Any) -> Any:
        return function(*args, place=ArchivePlace(url, namespace, _key(key_file)), **options)

    return command


cache_option = click.option(
    "--cache",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for plain copies of what is read and written; default: one in the user's folder for caches.",
)

snapshot_option = click.option(
    "--snapshot", default="", metavar="SNAPSHOT", help="Id of a snapshot, or how it begins; default: the newest."
)


def _key(key_file: Path | None) -> ArchiveKey | None:
    if key_file is not None:
        return ArchiveKey.from_file(key_file)
    return ArchiveKey.from_environment(_KEY_VARIABLE) if os.environ.get(_KEY_VARIABLE) else None
