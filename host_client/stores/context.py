"""What every operation of a store is told beside the conversation: where to work and under which rules."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from host_client.errors import ConfigurationError
from sandbox_api.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from host_client.sandbox.progress import Progress
    from host_client.sandbox.sandbox import Sandbox
    from host_client.session.redaction import Redaction


@dataclass(frozen=True, kw_only=True)
class ConversationContext:
    """Where a store works and under which rules.

    Attributes:
        sandbox: The connected sandbox; None where none is needed (locate).
        repository: Repository on the host whose `.outpost` keeps the copies.
        conversation_home: Directory that keeps the copies instead, and stands for the user's home where a conversation
            of the user's own is looked for. Wins over `repository`; one of both must be given.
        variables: The CLI's environment where it differs from the daemon's own.
        limits: Limits of one bundle; None: the default ones. The smaller of these and the daemon's hold.
        durability: Whether what is written must survive a power loss (`full`) or not (`none`), on host and sandbox.
        owner: User and group id of what is restored; None: the daemon's own.
        force: Restore even when a running process has the session open.
        skip_links: Leave symbolic links out of a capture, named in the record, instead of refusing them.
        follow_root_link: Accept a CLI home that is itself a symbolic link.
        allow_empty: Capture a transcript in which nothing was said yet, instead of refusing it.
        redaction: What must not be saved on the host of what a capture brings; None: everything may.
        retries: How often a capture starts again when the session changed while it was read.
        progress: Told at most ten times a second.
        restore_id: Names all attempts at one restore, so that an attempt goes on with what a broken connection left of
            the last one; 1 to 64 letters, digits, `_` or `-`. Empty: each restore begins anew, and a broken one leaves
            nothing.
    """

    sandbox: Sandbox | None = None
    repository: Path | None = None
    conversation_home: Path | None = None
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    limits: Limits | None = None
    durability: Literal["full", "none"] = "full"
    owner: tuple[int, int] | None = None
    force: bool = False
    skip_links: bool = False
    follow_root_link: bool = False
    allow_empty: bool = False
    redaction: Redaction | None = None
    retries: int = 0
    progress: Callable[[Progress], None] | None = None
    restore_id: str = ""

    @property
    def base(self) -> Path:
        """The directory whose `.outpost` keeps the copies.

        Raises:
            ConfigurationError: `invalid_argument`: the context names none.
        """
        base = self.conversation_home or self.repository
        if base is None:
            raise ConfigurationError(
                "invalid_argument",
                "the context says nowhere to keep conversations",
                hint="give repository= or conversation_home=",
            )
        return base

    @property
    def connected(self) -> Sandbox:
        """The sandbox of an operation that needs one.

        Raises:
            ConfigurationError: `invalid_argument`: the context has none.
        """
        if self.sandbox is None:
            raise ConfigurationError(
                "invalid_argument", "the context has no sandbox", hint="give sandbox=, from connect(target)"
            )
        return self.sandbox

    @property
    def is_durable(self) -> bool:
        """Whether what is written must survive a power loss."""
        return self.durability == "full"

    @property
    def effective_limits(self) -> Limits:
        """The caller's limits, or the default ones."""
        return self.limits or Limits()
