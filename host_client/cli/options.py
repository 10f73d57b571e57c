"""Options that commands share, so that the same word means the same everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from host_client.agents.registry import builtin_format
from host_client.stores.transcript import TranscriptConversations
from host_client.stores.transcript_kept import TRANSCRIPT_LIMITS
from sandbox_api.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Callable

Function = TypeVar("Function", bound="Callable[..., object]")


class AbsolutePath(click.Path):
    """A path that exists, made absolute against this folder; links in it are kept."""

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Check as click does, then make absolute."""
        path = Path(str(super().convert(str(value), param, ctx)))
        try:
            return path.absolute()
        except FileNotFoundError:
            self.fail("the current folder is gone; give an absolute path", param, ctx)


DIRECTORY = AbsolutePath(exists=True, file_okay=False)
FILE = AbsolutePath(exists=True, dir_okay=False)


class Variables(click.ParamType[tuple[str, str]]):
    """`NAME=VALUE` of the environment that the CLI runs with."""

    name = "NAME=VALUE"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Split at the first `=`."""
        name, sign, text = str(value).partition("=")
        if not sign or not name:
            self.fail(f"{value!r} is not NAME=VALUE", param, ctx)
        return name, text


class Owner(click.ParamType[tuple[int, int]]):
    """`UID:GID` that restored files are given to."""

    name = "UID:GID"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        """Read two numbers."""
        uid, _, gid = str(value).partition(":")
        if not (uid.isdecimal() and gid.isdecimal()):
            self.fail(f"{value!r} is not UID:GID in numbers", param, ctx)
        return int(uid), int(gid)


def _all(*decorators: Callable[[Function], Function]) -> Callable[[Function], Function]:
    def decorate(function: Function) -> Function:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")

place_options = _all(
    click.option(
        "--variable",
        "variables",
        type=Variables(),
        multiple=True,
        help="Variable of the CLI's environment, such as COPILOT_HOME=/data/copilot. May be repeated.",
    ),
    click.option("--follow-root-link", is_flag=True, help="Accept a CLI home that is itself a symbolic link."),
)

host_options = _all(
    click.option(
        "--repository",
        type=DIRECTORY,
        default=".",
        show_default="this folder",
        help="Repository on this host that keeps the copies, in .outpost/.",
    ),
    click.option("--home", type=DIRECTORY, help="Folder that keeps the copies instead of the repository."),
)

limit_options = _all(
    click.option("--max-bytes", type=click.IntRange(1), help="Most bytes (default 64 MiB, of a transcript 64 GiB)."),
    click.option("--max-files", type=click.IntRange(1), help="Most files (default 4096, with a transcript 65536)."),
)

durability_option = click.option(
    "--durability",
    type=click.Choice(["full", "none"]),
    default="full",
    show_default=True,
    help="Whether what is written survives a power loss.",
)

capture_options = _all(
    click.option(
        "--skip-links", is_flag=True, help="Leave symbolic links out and name them, instead of refusing them."
    ),
    click.option(
        "--retries",
        type=click.IntRange(0, 100),
        default=2,
        show_default=True,
        help="How often to start again when the session changes while it is read.",
    ),
    click.option("--allow-empty", is_flag=True, help="Capture a transcript in which nothing was said yet."),
)

restore_options = _all(
    click.option("--force", is_flag=True, help="Replace the session even when a running process has it open."),
    click.option("--allow-empty", is_flag=True, help="Restore a transcript in which nothing was said yet."),
    click.option("--owner", type=Owner(), help="Give what is restored to that user, where the daemon may."),
)

restore_id_option = click.option(
    "--restore-id",
    default="",
    metavar="ID",
    help="Name all attempts at this restore: the next one goes on where a broken connection left it.",
)

shown_options = _all(
    click.option("--last", "last_count", type=click.IntRange(1), metavar="N", help="Only the last N messages."),
    click.option("--tools/--no-tools", "has_tools", default=True, help="Calls of tools and their results (shown)."),
    click.option("--reasoning", "has_reasoning", is_flag=True, help="What the model thought, as far as it is kept."),
    click.option(
        "--html", "page", default="", metavar="FILE", help="Write one self-contained page to FILE; - prints it."
    ),
)


def limits(max_bytes: int | None, max_files: int | None, format_name: str = "") -> Limits | None:
    """Return the limits that the options ask for, the other one as usual for the format; None for the defaults."""
    if max_bytes is None and max_files is None:
        return None
    is_transcript = bool(format_name) and isinstance(builtin_format(format_name), TranscriptConversations)
    default = TRANSCRIPT_LIMITS if is_transcript else Limits()
    return Limits(max_bytes or default.max_bytes, max_files or default.max_files)
