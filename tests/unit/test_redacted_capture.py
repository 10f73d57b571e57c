"""The sink between a daemon's capture and the host's writer."""

from __future__ import annotations

import hashlib
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import pytest

from host_client.errors import SessionError
from host_client.session.bundle import BundleWriter, Folder
from host_client.session.redacted_capture import RedactedCapture
from host_client.session.redaction import LiteralRule, Redaction
from sandbox_api.limits import Limits
from sandbox_api.manifest import Entry, bundle_digest
from support.saved import ID, PROFILE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CONTENT = b'{"k": "hunter2"}'
REDACTED = b'{"k": "[redacted:key]"}'


@pytest.fixture
def sink(tmp_path: Path) -> Iterator[RedactedCapture]:
    """A capture of one file that has begun."""
    with Folder.open(tmp_path, (), create=False) as folder:
        writer = BundleWriter(folder, PROFILE, ID, previous=None, durable=False)
        sink = RedactedCapture(writer, Redaction([LiteralRule("key", "hunter2")]), None, Limits())
        sink.begin(PurePosixPath("/s"), [Entry(b"session.json", len(CONTENT))])
        yield sink
        sink.abort()


def test_the_daemons_digest_is_of_what_it_sent(sink: RedactedCapture, tmp_path: Path) -> None:
    """A digest of other bytes is refused, also that of the redacted ones; nothing is left."""
    sink.data(0, memoryview(CONTENT))
    with pytest.raises(SessionError) as caught:
        sink.end(0, hashlib.sha256(REDACTED).digest())
    assert caught.value.reason == "digest_mismatch"
    sink.abort()
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_written_before_all_has_come(sink: RedactedCapture, tmp_path: Path) -> None:
    """The writer's scratch file is begun by `finish`; manifest, digest and hits are of what is saved."""
    sink.data(0, memoryview(CONTENT[:9]))
    sink.data(0, memoryview(CONTENT[9:]))
    sink.end(0, hashlib.sha256(CONTENT).digest())
    assert list(tmp_path.iterdir()) == []
    bundle = sink.finish()
    assert bundle.entries == [Entry(b"session.json", len(REDACTED), hashlib.sha256(REDACTED).digest())]
    assert bundle.digest == bundle_digest(bundle.entries)
    assert (bundle.redactions, bundle.is_new) == ({"key": 1}, True)
    assert [path.name for path in tmp_path.iterdir()] == [f"{ID}.json"]
