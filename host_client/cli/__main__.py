"""The `outpost` command: parses, calls the library, prints. The one `asyncio.run` of the client is here."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING

import click

from host_client.cli.command import (
    capture,
    doctor,
    fan_out,
    follow,
    info,
    inspect,
    recovery,
    relay,
    relocate,
    restore,
    run,
    sessions,
    show,
    validate,
)
from host_client.cli.command.archive import archive
from host_client.cli.command.exec import execute
from host_client.cli.host_stream import reserve_streams
from host_client.cli.output import Output, OutputLost
from host_client.errors import OutpostError

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="outpost-sandbox", prog_name="outpost")
def outpost() -> None:
    """Carry coding-agent conversations between sandboxes.

    A TARGET names a daemon: unix:/path/to/agent.sock, HOST:PORT, or local:HOME[,WORKSPACE] for a private one
    on this machine. A FORMAT or AGENT is claude, codex, copilot or kimi. An ID is the conversation's own.

    Exit status: 0 success; 1 doctor found a problem, or an unforeseen error; 2 wrong command line; 10 session;
    11 process; 12 configuration; 13 conflict; 14 workspace; 15 limit; 16 timeout; 17 unavailable; 130 interrupted.
    """


for _command in (
    info.info,
    sessions.sessions,
    capture.capture,
    restore.restore,
    relay.relay,
    fan_out.fan_out,
    follow.follow,
    execute,
    run.run,
    recovery.recovery,
    archive,
    relocate.relocate,
    inspect.inspect,
    show.show,
    validate.validate,
    doctor.doctor,
):
    outpost.add_command(_command)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit status."""
    reserve_streams()
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return _status(words)
    except OutputLost as error:
        # Or else the interpreter tries once more to write what is left, and complains, when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error.__cause__, BrokenPipeError):
            click.echo(f"outpost: the result cannot be written: {error}", err=True)
        return 1


def _status(words: list[str]) -> int:
    ours = words[: words.index("--")] if "--" in words else words  # what follows is a command's
    output = Output(as_json="--json" in ours)
    try:
        action = outpost.main(words, prog_name="outpost", standalone_mode=False)
        return asyncio.run(_run(action)) if asyncio.iscoroutine(action) else int(action or 0)
    except (OutpostError, ExceptionGroup) as error:
        return _failed(output, error)
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        click.echo("outpost: interrupted; nothing was left half done", err=True)
        return 130
    except OutputLost:
        raise
    except Exception as error:  # noqa: BLE001 - the last resort: one line instead of a stack
        output.fault(error)
        return 1


def _failed(output: Output, error: OutpostError | ExceptionGroup) -> int:
    """Tell a failure, or all of several at once; return the exit status of the first."""
    errors = error.exceptions if isinstance(error, ExceptionGroup) else (error,)
    known = [one for one in errors if isinstance(one, OutpostError)]
    if len(known) < len(errors):
        output.fault(error)
        return 1
    output.error(*known)
    return known[0].exit_status


async def _run(action: Coroutine[object, object, int | None]) -> int:
    return await action or 0


if __name__ == "__main__":
    sys.exit(main())
