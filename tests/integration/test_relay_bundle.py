"""A relay of session directories streams: each target gets what has arrived, and commits only at the end."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from host_client.errors import OutpostError
from host_client.sandbox.bundle import Bundles
from host_client.sandbox.sandbox import connect
from host_client.session.redaction import PatternRule, Redaction
from host_client.stores.bundle import SessionBundleConversations
from host_client.stores.context import ConversationContext
from host_client.stores.relay import relay
from support.conversation import ID, files_below, has_files, make_session, store
from support.daemon import running_daemon
from support.gated_proxy import gated_proxy
from support.wait import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.daemon import RunningDaemon

pytestmark = pytest.mark.anyio

MIB = 1 << 20
EXTRA = {"files/a.bin": bytes(range(256)), "files/empty": b"", "files/large": b"secret" * (2 * MIB)}


@pytest.fixture
def daemons(tmp_path: Path) -> Iterator[list[RunningDaemon]]:
    """Serve a sandbox with a session and two without."""
    started = []
    with ExitStack() as stack:
        for name in ("source", "b", "c"):
            (tmp_path / name).mkdir()
            started.append(stack.enter_context(running_daemon(tmp_path / name)))
        make_session(started[0].home / ".mycli", EXTRA)
        yield started


def session(daemon: RunningDaemon) -> dict[str, bytes]:
    """Return the files of the session that a daemon's sandbox has."""
    return files_below(daemon.home / ".mycli/sessions" / ID)


def moved(daemon: RunningDaemon) -> dict[str, bytes]:
    """Return the files that it should have."""
    identity = json.dumps({"id": ID, "cwd": str(daemon.workspace)}).encode()
    return {"session.json": identity, **EXTRA}


def forbid(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Have a method of the store fail."""

    async def refuse(*_: object) -> None:
        raise AssertionError(name)

    monkeypatch.setattr(SessionBundleConversations, name, refuse)


async def test_targets_receive_before_the_source_has_sent_all(
    daemons: list[RunningDaemon], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the source is held all targets have much of the session, and none of it in place; then they have all."""
    forbid(monkeypatch, "restore")
    source, *targets = daemons
    async with gated_proxy(source.target, "from", 8 * MIB) as (address, gate), connect(address) as sandbox:

        async def received() -> bool:
            staged = [sum(map(len, files_below(target.home).values())) for target in targets]
            return all(size > 4 * MIB for size in staged)

        async with asyncio.TaskGroup() as group:
            running = group.create_task(relay(sandbox, ID, [target.target for target in targets], store()))
            await gate.held.wait()
            await until(received, "the first bytes")
            assert [session(target) for target in targets] == [{}, {}]
            gate.opened.set()
    result = running.result()
    assert [delivery.error for delivery in result.outcomes] == [None, None]
    assert [session(target) for target in targets] == [moved(target) for target in targets]


async def test_a_source_that_breaks_leaves_every_target_as_it_was(daemons: list[RunningDaemon]) -> None:
    """The connection to the source ends near the end: the call fails, and the old sessions are in place."""
    source, *targets = daemons
    for target in targets:
        make_session(target.home / ".mycli", {"old": b"1"})
    before = [files_below(target.home) for target in targets]
    async with gated_proxy(source.target, "from", 11 * MIB) as (address, gate), connect(address) as sandbox:

        async def break_off() -> None:
            await gate.held.wait()
            gate.cut()

        async with asyncio.TaskGroup() as group:
            group.create_task(break_off())
            with pytest.raises(OutpostError) as caught:
                await relay(sandbox, ID, [target.target for target in targets], store())
    assert caught.value.code == "unavailable"

    async def are_as_before() -> bool:
        return all(has_files(target.home, files) for target, files in zip(targets, before, strict=True))

    await until(are_as_before, "the daemons to remove what was staged")


async def test_old_daemons_get_the_copy_and_a_second_relay_changes_nothing(
    daemons: list[RunningDaemon], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A target that cannot take digests behind contents is restored at the end, beside the others."""
    source, *targets = daemons
    old = targets[0].target
    monkeypatch.setattr(Bundles, "can_stream", property(lambda bundles: bundles._connection.target != old))
    async with connect(source.target) as sandbox:
        results = [await relay(sandbox, ID, [target.target for target in targets], store()) for _ in range(2)]
    assert [[delivery.error for delivery in result.outcomes] for result in results] == [[None, None]] * 2
    unchanged = [[one.outcome and one.outcome.unchanged for one in result.outcomes] for result in results]
    assert unchanged == [[False, False], [True, True]]
    assert [session(target) for target in targets] == [moved(target) for target in targets]


@pytest.mark.parametrize("context", ["redaction", "retries"])
async def test_what_cannot_be_streamed_is_copied_first(daemons: list[RunningDaemon], context: str) -> None:
    """With rules of redaction, whose result is known at the end, and with retries, targets get what they should."""
    source, target, _ = daemons
    make_session(source.home / ".mycli", {"files/large": b"a secret"})
    rules = ConversationContext(retries=1)
    if context == "redaction":
        rules = ConversationContext(redaction=Redaction([PatternRule("s", re.compile("secret"))], binary="pass"))
    async with connect(source.target) as sandbox:
        result = await relay(sandbox, ID, [target.target], store(), rules)
    assert [delivery.error for delivery in result.outcomes] == [None]
    assert (b"secret" in session(target)["files/large"]) == (context == "retries")
