"""The session bundle store with real daemons: what is kept, what is adopted, and what survives failures."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from host_client.errors import ConfigurationError, LimitError, OutpostError, SessionError, UnavailableError
from host_client.sandbox.sandbox import connect
from host_client.stores.context import ConversationContext
from host_client.stores.relay import relay
from sandbox_api.limits import Limits
from support.conversation import EXTRA, ID, files_below, make_session, store
from support.daemon import running_daemon
from support.midway import act_in_capture

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.anyio

BIG = random.Random(5).randbytes(30 << 20)  # noqa: S311 - any bytes


@pytest.fixture
def user_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a home of this host's user that is no one's."""
    home = tmp_path / "user"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("MYCLI_HOME", raising=False)
    return home


def keep_in(directory: Path) -> ConversationContext:
    """Return a context that keeps in a fresh repository, without waiting for the disk."""
    directory.mkdir(exist_ok=True)
    return ConversationContext(repository=directory, durability="none")


async def test_a_second_capture_moves_only_what_changed(tmp_path: Path) -> None:
    """An unchanged session moves no content and leaves the file untouched; one changed file moves that file."""
    tested = store()
    with running_daemon(tmp_path) as daemon:
        session = make_session(daemon.home / ".mycli", {"files/big": BIG[: 1 << 20], **EXTRA})
        async with connect(daemon.target) as sandbox:
            context = replace(keep_in(tmp_path / "repository"), sandbox=sandbox)
            first = await tested.capture(ID, context)
            before = first.path.stat()
            second = await tested.capture(ID, context)
            after = first.path.stat()
            (session / "files/a.bin").write_bytes(b"other")
            third = await tested.capture(ID, context)
            fourth = await tested.capture(ID, replace(context, repository=tmp_path))
    assert not first.unchanged
    assert second.unchanged
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    assert second.digest == first.digest
    assert first.received_bytes > 1 << 20
    assert third.received_bytes < 4096
    assert (third.digest, third.bytes_count) == (fourth.digest, fourth.bytes_count)
    assert third.path.read_bytes() == fourth.path.read_bytes()


@pytest.mark.parametrize("damage", ["no JSON at all", "one byte of base64"])
async def test_a_damaged_file_is_replaced_by_a_whole_capture(tmp_path: Path, damage: str) -> None:
    """Nothing of a damaged file is taken over: the capture brings everything anew and saves it whole."""
    tested = store()
    with running_daemon(tmp_path) as daemon:
        make_session(daemon.home / ".mycli")
        async with connect(daemon.target) as sandbox:
            context = replace(keep_in(tmp_path / "repository"), sandbox=sandbox)
            whole = await tested.capture(ID, context)
            good = whole.path.read_text()
            whole.path.write_text("{" if damage == "no JSON at all" else good.replace("AAECAw", "AAECBw"))
            with pytest.raises(SessionError):
                await tested.locate(ID, context)
            again = await tested.capture(ID, context)
    assert again.path.read_text() == good
    assert not again.unchanged
    assert list(again.path.parent.iterdir()) == [again.path]


async def test_the_hook_judges_a_saved_file(tmp_path: Path) -> None:
    """Locating runs the format's `validate` on the host's file; what it refuses is told and stays as it is."""
    tested = store()
    with running_daemon(tmp_path) as daemon:
        make_session(daemon.home / ".mycli")
        async with connect(daemon.target) as sandbox:
            context = replace(keep_in(tmp_path / "repository"), sandbox=sandbox)
            record = await tested.capture(ID, context)
            text = record.path.read_text().replace('"id":"S1"', '"id":"S2"')
            other = record.path.with_name("S2.json")
            other.write_text(text)
            with pytest.raises(SessionError) as caught:
                await tested.locate("S2", context)
    assert caught.value.reason == "invalid"
    assert "another session" in str(caught.value)
    assert other.read_text() == text


@pytest.mark.usefixtures("user_home")
async def test_the_users_own_session_is_adopted(tmp_path: Path, user_home: Path) -> None:
    """What the user began outside is captured from the CLI home on the host, saved, and found there the next time."""
    tested = store()
    session = make_session(user_home / ".mycli")
    before = files_below(user_home / ".mycli")
    context = keep_in(tmp_path / "repository")
    adopted = await tested.locate(ID, context)
    (session / "files/a.bin").unlink()
    located = await tested.locate(ID, context)
    assert adopted.path == tested.destination(ID, context)
    assert adopted.source == session
    assert located.digest == adopted.digest
    (session / "files/a.bin").write_bytes(EXTRA["files/a.bin"])
    assert files_below(user_home / ".mycli") == before


async def test_the_variable_leads_to_the_users_session(
    tmp_path: Path, user_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variable of the user's environment wins, also out of the home; the decoy in the home is not read."""
    make_session(user_home / ".mycli", {"files/decoy": b""})
    moved = make_session(tmp_path / "moved")
    monkeypatch.setenv("MYCLI_HOME", str(tmp_path / "moved"))
    adopted = await store().locate(ID, keep_in(tmp_path / "repository"))
    assert adopted.source == moved
    assert adopted.files_count == 1 + len(EXTRA)


async def test_a_conversation_home_stands_for_the_users_home(
    tmp_path: Path, user_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a conversation home nothing of the user's own home or environment is looked at."""
    make_session(user_home / ".mycli", conversation_id="S2")
    make_session(tmp_path / "moved", conversation_id="S2")
    monkeypatch.setenv("MYCLI_HOME", str(tmp_path / "moved"))
    private = tmp_path / "private"
    session = make_session(private / ".mycli")
    context = ConversationContext(conversation_home=private, durability="none")
    assert (await store().locate(ID, context)).source == session
    with pytest.raises(SessionError) as caught:
        await store().locate("S2", context)
    assert caught.value.reason == "not_found"


@pytest.mark.usefixtures("user_home")
async def test_raised_limits_reach_the_private_daemons(tmp_path: Path, user_home: Path) -> None:
    """A session beyond the default limits is adopted and located when the context raises them, and only then."""
    make_session(user_home / ".mycli", {"files/big": bytes(65 << 20)})
    context = replace(keep_in(tmp_path / "repository"), limits=Limits(70 << 20, 10))
    adopted = await store().locate(ID, context)
    assert (await store().locate(ID, context)).digest == adopted.digest
    with pytest.raises(LimitError) as caught:
        await store().locate(ID, replace(context, limits=None))
    assert caught.value.reason == "max_bytes"


async def test_a_daemon_that_dies_leaves_the_old_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon killed in the middle of a capture: `unavailable`, the host's file as before, nothing beside it."""
    tested = store()
    with running_daemon(tmp_path) as daemon:
        session = make_session(daemon.home / ".mycli")
        async with connect(daemon.target) as sandbox:
            context = replace(keep_in(tmp_path / "repository"), sandbox=sandbox)
            record = await tested.capture(ID, context)
            before = record.path.read_bytes()
            (session / "files/big").write_bytes(BIG)
            act_in_capture(monkeypatch, daemon.process.kill)
            with pytest.raises(UnavailableError):
                await tested.capture(ID, context)
        daemon.process.wait(30)
    assert record.path.read_bytes() == before
    assert list(record.path.parent.iterdir()) == [record.path]


async def test_a_cancelled_capture_leaves_the_old_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A capture that is cancelled leaves the host's file as before and nothing beside it."""
    tested = store()
    with running_daemon(tmp_path) as daemon:
        session = make_session(daemon.home / ".mycli")
        async with connect(daemon.target) as sandbox:
            context = replace(keep_in(tmp_path / "repository"), sandbox=sandbox)
            record = await tested.capture(ID, context)
            before = record.path.read_bytes()
            (session / "files/big").write_bytes(BIG)
            loop = asyncio.get_running_loop()
            act_in_capture(monkeypatch, lambda: loop.call_soon_threadsafe(task.cancel))
            task = loop.create_task(tested.capture(ID, context))
            with pytest.raises(asyncio.CancelledError):
                await task
    assert record.path.read_bytes() == before
    assert list(record.path.parent.iterdir()) == [record.path]


async def test_captures_of_two_sandboxes_at_once_never_mix(tmp_path: Path) -> None:
    """Two captures of one id on one host at the same time end as exactly one of them."""
    tested = store()
    with running_daemon(_made(tmp_path / "a")) as first, running_daemon(_made(tmp_path / "b")) as second:
        make_session(first.home / ".mycli", {"files/a": b"a" * 100_000})
        make_session(second.home / ".mycli", {"files/b": b"b" * 100_000})
        async with connect(first.target) as one, connect(second.target) as other:
            context = keep_in(tmp_path / "repository")
            records = await asyncio.gather(
                tested.capture(ID, replace(context, sandbox=one)),
                tested.capture(ID, replace(context, sandbox=other)),
            )
            located = await tested.locate(ID, context)
    assert located.digest in {record.digest for record in records}
    assert list(located.path.parent.iterdir()) == [located.path]


async def test_a_record_that_is_no_longer_true_is_not_restored(tmp_path: Path) -> None:
    """When the file is not the one the record is about, or is gone, nothing reaches the sandbox."""
    tested = store()
    with running_daemon(_made(tmp_path / "a")) as source, running_daemon(_made(tmp_path / "b")) as target:
        session = make_session(source.home / ".mycli")
        async with connect(source.target) as sandbox, connect(target.target) as other:
            context = replace(keep_in(tmp_path / "repository"), sandbox=sandbox)
            record = await tested.capture(ID, context)
            (session / "files/a.bin").write_bytes(b"newer")
            await tested.capture(ID, context)
            with pytest.raises(SessionError) as stale:
                await tested.restore(record, replace(context, sandbox=other))
            record.path.unlink()
            with pytest.raises(SessionError) as gone:
                await tested.restore(record, replace(context, sandbox=other))
            with pytest.raises(ConfigurationError) as unconnected:
                await tested.restore(record, replace(context, sandbox=None))
    assert (stale.value.reason, gone.value.reason) == ("digest_mismatch", "not_found")
    assert unconnected.value.reason == "invalid_argument"
    assert not (target.home / ".mycli").exists()


async def test_a_link_below_the_repository_is_refused(tmp_path: Path) -> None:
    """Neither capture nor locate goes through a link below the directory that the caller named."""
    tested = store()
    outside = _made(tmp_path / "outside")
    with running_daemon(tmp_path) as daemon:
        make_session(daemon.home / ".mycli")
        async with connect(daemon.target) as sandbox:
            context = replace(keep_in(tmp_path / "repository"), sandbox=sandbox)
            (tmp_path / "repository/.outpost").symlink_to(outside)
            for operation in (tested.capture, tested.locate):
                with pytest.raises(OutpostError) as caught:
                    await operation(ID, context)
                assert (caught.value.code, caught.value.reason) == ("workspace", "unsafe_path")
    assert not list(outside.iterdir())


async def test_a_relay_reaches_all_it_can(tmp_path: Path) -> None:
    """One capture goes to every target; the dead and the refusing are told with their errors, the others restored."""
    with running_daemon(_made(tmp_path / "a")) as source, running_daemon(_made(tmp_path / "b")) as target:
        make_session(source.home / ".mycli")
        blocked = _made(tmp_path / "blocked")
        (blocked / ".mycli").write_text("in the way")
        targets = [f"unix:{tmp_path}/nobody", f"local:{blocked}", target.target, f"local:{_made(tmp_path / 'c')}"]
        async with connect(source.target) as sandbox:
            result = await relay(sandbox, ID, targets, store())
    dead, refused, *good = result.outcomes
    assert [delivery.target for delivery in result.outcomes] == targets
    assert dead.error is not None
    assert (dead.error.code, dead.error.reason) == ("unavailable", "unreachable")
    assert refused.error is not None
    assert refused.outcome is None
    for delivery, home in zip(good, (target.home, tmp_path / "c"), strict=True):
        assert delivery.error is None
        assert delivery.outcome is not None
        assert EXTRA.items() <= files_below(home / ".mycli/sessions" / ID).items()
    assert not result.record.path.exists()


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory
