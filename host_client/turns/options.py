"""Rules that all turns of a runner have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from host_client.stores.context import ConversationContext

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from host_client.sandbox.sandbox import Sandbox
    from host_client.session.redaction import Redaction
    from sandbox_api.limits import Limits

DEFAULT_MAX_OUTPUT_BYTES = 1 << 30


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnOptions:
    """What `TurnRunner` was given; its arguments are described there."""

    repository: Path | None = None
    conversation_home: Path | None = None
    deadline_seconds: float = 0.0
    idle_seconds: float = 0.0
    grace_seconds: float = 5.0
    patience_seconds: float = 60.0
    max_output_bytes: int = DEFAULT_MAX_OUTPUT_BYTES
    redaction: Redaction | None = None
    limits: Limits | None = None
    durability: Literal["full", "none"] = "full"
    force: bool = False
    retries: int = 2

    def context(
        self, sandbox: Sandbox | None = None, variables: Mapping[str, str] | None = None
    ) -> ConversationContext:
        """Return what stores are told, for a sandbox and the environment that the agent has in it."""
        return ConversationContext(
            sandbox=sandbox,
            repository=self.repository,
            conversation_home=self.conversation_home,
            variables=variables or {},
            limits=self.limits,
            durability=self.durability,
            force=self.force,
            redaction=self.redaction,
            retries=self.retries,
        )
