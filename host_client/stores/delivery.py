"""What came of one target among many."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from host_client.errors import OutpostError
    from host_client.sandbox.sandbox import Sandbox
    from host_client.stores.contract import RestoreOutcome


@dataclass(frozen=True, slots=True)
class Delivery:
    """What came of one target: an outcome or an error, never both.

    Attributes:
        target: The target as it was given.
        outcome: The committed restore; None when it failed.
        error: Why it failed; None when it did not.
        attempts_count: How often it was tried; 0 when it never was.
    """

    target: Sandbox | str
    outcome: RestoreOutcome | None = None
    error: OutpostError | None = None
    attempts_count: int = 1
