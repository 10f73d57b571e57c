"""Which failures something that keeps a conversation up to date bears beside those of a sandbox that is away."""

from __future__ import annotations

from typing import TYPE_CHECKING

from host_client.errors import SessionError, WorkspaceError
from host_client.sandbox import patience

if TYPE_CHECKING:
    from host_client.errors import OutpostError

_PASSING = (
    (SessionError, ("changed", "empty", "not_found")),
    (WorkspaceError, ("changed", "not_found")),
)
"""What a conversation is while its CLI writes it anew, or its sandbox is brought back."""


class Patience(patience.Patience):
    """The failures since the last success; see `host_client.sandbox.patience.Patience`."""

    def passes(self, error: OutpostError) -> bool:
        """Tell whether a failure may pass: also what a conversation is for a while."""
        return super().passes(error) or any(
            isinstance(error, family) and error.reason in reasons for family, reasons in _PASSING
        )
