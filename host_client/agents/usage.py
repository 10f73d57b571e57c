"""Tokens that a turn used, and whether all of them are known."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """Counted tokens. None: the agent does not say.

    Attributes:
        input_tokens: Tokens of the requests that no cache had, neither read nor written.
        output_tokens: Tokens of the answers, those of reasoning included.
        cache_read_tokens: Tokens of the requests that came from a cache.
        cache_write_tokens: Tokens of the requests that were put into a cache.
        reasoning_tokens: Those of `output_tokens` that were reasoning.
        complete: Whether nothing that was used is known to be missing.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    complete: bool = True
