"""What a store needs done with files of this host: by a private daemon, since the daemon is the one implementation."""

from __future__ import annotations

import os
import tempfile
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from host_client.errors import SessionError, printable
from host_client.sandbox.sandbox import connect
from host_client.sandbox.target import LocalTarget
from host_client.sandbox.task import in_thread, opened_in_thread

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from host_client.session.bundle import SavedBundle
    from host_client.stores.context import ConversationContext
    from sandbox_api.limits import Limits
    from sandbox_api.profile import Profile


@asynccontextmanager
async def user_home(profile: Profile, context: ConversationContext) -> AsyncIterator[ConversationContext]:
    """Yield the context with the user's own CLI home on this host as its sandbox.

    With a conversation home that directory stands for the user's home, and the user's environment does not lead
    elsewhere.

    Raises:
        SessionError: `not_found`: there is no such home, hence no session in it.
    """
    variables = dict(context.variables)
    name = profile.root_variable
    home = context.conversation_home or Path.home()
    if not await in_thread(home.is_dir):
        raise SessionError("not_found", f"the home {printable(str(home))} is no directory")
    if context.conversation_home and name:
        variables.setdefault(name, str(home.absolute() / profile.root_directory))
    moved = Path(variables.get(name, os.environ.get(name, ""))) if name else Path()
    # A CLI home that the variable moves out of the home must lie in a root of the daemon; its workspace is one.
    workspace = moved if moved.is_absolute() and await in_thread(moved.is_dir) else home
    async with connect(LocalTarget(home, workspace), limits=context.limits) as sandbox:
        yield replace(context, sandbox=sandbox, variables=variables)


async def validate(profile: Profile, saved: SavedBundle, limits: Limits) -> None:
    """Run the format's `validate` hook on a saved bundle, in a daemon that has no other files.

    Raises:
        SessionError: `invalid`, `hook_*`, and those of a wrong file.
        UnavailableError: `unreachable`: the daemon did not start.
    """
    async with (
        opened_in_thread(tempfile.TemporaryDirectory, prefix="outpost-") as directory,
        connect(LocalTarget(Path(directory), Path(directory)), limits=limits) as sandbox,
    ):
        await sandbox.bundles.validate(profile, saved.conversation_id, saved, limits=limits)
