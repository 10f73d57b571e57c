"""Outcomes of restores that never were."""

from __future__ import annotations

from pathlib import PurePosixPath

from host_client.stores.contract import RestoreOutcome


def outcome(bytes_count: int) -> RestoreOutcome:
    """Return the outcome of a restore."""
    return RestoreOutcome(
        format="mycli",
        conversation_id="S1",
        target=PurePosixPath("/s"),
        unchanged=False,
        recovery="",
        digest="00" * 32,
        files_count=1,
        bytes_count=bytes_count,
        sent_bytes=bytes_count,
        relocated=(),
        not_atomic=False,
        duration_seconds=0.0,
    )
