"""`outpost archive`: conversations in a store, every version once."""

from __future__ import annotations

import click

from host_client.cli.command.archive.fork import fork
from host_client.cli.command.archive.history import log
from host_client.cli.command.archive.keygen import keygen
from host_client.cli.command.archive.listing import list_conversations, stats
from host_client.cli.command.archive.prune import prune
from host_client.cli.command.archive.pull import pull
from host_client.cli.command.archive.push import push
from host_client.cli.command.archive.show import show
from host_client.cli.command.archive.verify import verify


@click.group()
def archive() -> None:
    """Keep conversations in a store that hosts share: every version once, verified, restored anywhere.

    A store is named by a URL, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or file:///DIRECTORY, and
    parted into namespaces. OUTPOST_STORE and OUTPOST_NAMESPACE save naming them.
    """


for _command in (push, pull, log, show, fork, list_conversations, stats, verify, prune, keygen):
    archive.add_command(_command)
