"""Options that say what must not be saved on this host.

The one rule: a secret comes from the environment or a file, never from the command line, which every process can read.
"""

from __future__ import annotations

import functools
import os
import re
from typing import TYPE_CHECKING, Literal

import click

from host_client.cli.options import FILE
from host_client.session.redaction import LiteralRule, PatternRule, Redaction
from sandbox_api.errors import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from host_client.session.redaction import Rule


class _Pattern(click.ParamType[PatternRule]):
    """`NAME=REGEX`."""

    name = "NAME=REGEX"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> PatternRule:
        """Split at the first `=` and compile."""
        name, sign, text = str(value).partition("=")
        if not sign or not name:
            self.fail(f"{value!r} is not NAME=REGEX", param, ctx)
        try:
            return PatternRule(name, re.compile(text))
        except re.error as error:
            self.fail(f"{text!r} is no regular expression of Python: {error}", param, ctx)


def redaction_options(function: Callable[..., object]) -> Callable[..., object]:
    """Give a command the options, and its function one argument `redaction` for them; None without any rule."""

    @functools.wraps(function)
    def command(
        *arguments: object,
        redact_env: Sequence[str],
        redact_file: Path | None,
        redact_pattern: Sequence[PatternRule],
        redact_binary: Literal["refuse", "pass"],
        **options: object,
    ) -> object:
        rules = [*_env_rules(redact_env), *_file_rules(redact_file), *redact_pattern]
        redaction = Redaction(rules, redact_binary) if rules else None
        return function(*arguments, redaction=redaction, **options)

    for decorate in reversed(_OPTIONS):
        decorate(command)
    return command


_OPTIONS = (
    click.option(
        "--redact-env", metavar="NAME", multiple=True, help="Hide the value of this variable. May be repeated."
    ),
    click.option("--redact-file", type=FILE, help="Hide each line of this file."),
    click.option(
        "--redact-pattern", type=_Pattern(), multiple=True, help="Hide what this pattern finds. May be repeated."
    ),
    click.option(
        "--redact-binary",
        type=click.Choice(["refuse", "pass"]),
        default="refuse",
        show_default=True,
        help="What becomes of files that are not text when something is to be hidden.",
    ),
)


def _env_rules(names: Sequence[str]) -> Iterator[Rule]:
    for name in names:
        # A newline at the end comes from how the variable was set.
        secret = os.environ.get(name, "").rstrip("\r\n")
        if not secret:
            raise click.BadParameter(f"the variable {name!r} is not set, or empty", param_hint="--redact-env")
        yield LiteralRule(name, secret)


def _file_rules(host_path: Path | None) -> Iterator[Rule]:
    if host_path is None:
        return
    try:
        lines = host_path.read_text("utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError):
        name = printable(str(host_path))
        raise click.BadParameter(f"{name} cannot be read as UTF-8 text", param_hint="--redact-file") from None
    for number, line in enumerate(lines, 1):
        if secret := line.removesuffix("\r"):
            yield LiteralRule(f"file:{number}", secret)
