"""A capture into the host's file when the session changes meanwhile: tried again as often as was asked for."""

from __future__ import annotations

import hashlib
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from host_client.errors import OutpostError, SessionError
from host_client.sandbox.place import Captured
from host_client.sandbox.task import in_thread
from host_client.session import bundle_memory, bundle_reader
from host_client.session.bundle import SavedBundle
from host_client.stores.context import ConversationContext
from sandbox_api.manifest import Entry, bundle_digest
from support.conversation import ID, files_below, store

if TYPE_CHECKING:
    from pathlib import Path

    from host_client.sandbox.capture import CaptureSink

pytestmark = pytest.mark.anyio


class ScriptedBundles:
    """A sandbox's bundles that fail as they are told, then give one file."""

    def __init__(self, *failures: OutpostError) -> None:
        self.failures = list(failures)
        self.calls: list[dict[str, Any]] = []

    async def capture(self, _place: object, sink: CaptureSink, **asked: object) -> Captured:
        """Fail with the next failure, half-way; or capture."""
        self.calls.append(asked)
        return await in_thread(self._feed, sink)

    def _feed(self, sink: CaptureSink) -> Captured:
        content = b'{"id": "S1"}'
        sink.begin(PurePosixPath("/s"), [Entry(b"session.json", len(content))])
        sink.data(0, memoryview(content)[:5])
        if self.failures:
            raise self.failures.pop(0)
        sink.data(0, memoryview(content)[5:])
        sha256 = hashlib.sha256(content).digest()
        sink.end(0, sha256)
        entries = (Entry(b"session.json", len(content), sha256),)
        return Captured(PurePosixPath("/s"), entries, bundle_digest(entries), 100, (), 0, 0)


def _context(tmp_path: Path, bundles: ScriptedBundles, **rules: Any) -> ConversationContext:
    sandbox = cast("Any", SimpleNamespace(bundles=bundles))
    return ConversationContext(sandbox=sandbox, repository=tmp_path, **rules)


def _changed() -> SessionError:
    return SessionError("changed", "it changed")


async def test_a_session_that_changes_is_captured_again(tmp_path: Path) -> None:
    """With retries a capture that met a change starts again from nothing and ends well."""
    bundles = ScriptedBundles(_changed(), _changed())
    record = await store().capture(ID, _context(tmp_path, bundles, retries=2))
    assert len(bundles.calls) == 3
    assert list(record.path.parent.iterdir()) == [record.path]


@pytest.mark.parametrize(("retries", "calls_count"), [(0, 1), (1, 2)])
async def test_retries_are_counted(tmp_path: Path, retries: int, calls_count: int) -> None:
    """After the last allowed attempt the change is told, and nothing was saved."""
    bundles = ScriptedBundles(*(_changed() for _ in range(5)))
    with pytest.raises(SessionError) as caught:
        await store().capture(ID, _context(tmp_path, bundles, retries=retries))
    assert caught.value.reason == "changed"
    assert len(bundles.calls) == calls_count
    assert not files_below(tmp_path)


async def test_another_failure_is_not_retried(tmp_path: Path) -> None:
    """Only a change is worth another attempt."""
    bundles = ScriptedBundles(SessionError("invalid", "no"))
    with pytest.raises(SessionError):
        await store().capture(ID, _context(tmp_path, bundles, retries=5))
    assert len(bundles.calls) == 1


async def test_the_rules_of_the_context_reach_the_daemon(tmp_path: Path) -> None:
    """Limits, link policy and what is held are asked for as the context says."""
    bundles = ScriptedBundles()
    first = await store().capture(ID, _context(tmp_path, bundles, skip_links=True))
    await store().capture(ID, _context(tmp_path, bundles))
    assert [call["skip_links"] for call in bundles.calls] == [True, False]
    assert [len(call["held"]) for call in bundles.calls] == [0, 1]
    assert bundles.calls[1]["held"][0].size == first.bytes_count


async def test_a_second_capture_does_not_read_what_the_first_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process knows the file it wrote: the next capture neither scans nor verifies it; another process would."""
    bundles = ScriptedBundles()
    await store().capture(ID, _context(tmp_path, bundles))

    def read(*_arguments: object) -> None:
        raise AssertionError("the saved file was read")

    monkeypatch.setattr(bundle_reader, "BundleIndexer", read)
    monkeypatch.setattr(SavedBundle, "_checked_blocks", read)
    await store().capture(ID, _context(tmp_path, bundles))
    assert len(bundles.calls[1]["held"]) == 1
    monkeypatch.setattr(bundle_memory.MEMORY, "_known", {})
    with pytest.raises(AssertionError):
        await store().capture(ID, _context(tmp_path, bundles))


async def test_damage_that_changed_no_time_goes_with_the_capture_after_it_was_found(tmp_path: Path) -> None:
    """`locate` checks every byte, believed or not; the capture it advises then takes nothing from the damaged file."""
    context = _context(tmp_path, ScriptedBundles())
    record = await store().capture(ID, context)
    known = bundle_memory.MEMORY.get(_identity(record.path))
    assert known is not None
    whole = record.path.read_bytes()
    record.path.write_bytes(whole.replace(b'"eyJ', b'"eyK'))
    bundle_memory.MEMORY.note(_identity(record.path), known, read_ns=1 << 63)
    with pytest.raises(SessionError) as caught:
        await store().locate(ID, context)
    assert caught.value.reason == "digest_mismatch"
    await store().capture(ID, context)
    assert record.path.read_bytes() == whole


def _identity(path: Path) -> tuple[int, ...]:
    with path.open("rb") as file:
        return bundle_memory.file_identity(file.fileno())
