"""Ask a daemon only what the contract can say."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from host_client.errors import ConfigurationError, printable

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def expressible() -> Iterator[None]:
    """Refuse, while a request is made, a number that is out of its range and a text that is not UTF-8.

    Raises:
        ConfigurationError: `invalid_argument`.
    """
    try:
        yield
    except (ValueError, TypeError) as error:  # protobuf's words for both
        raise ConfigurationError(
            "invalid_argument",
            f"a daemon cannot be asked that: {printable(str(error))}",
            hint="ids and counts are numbers from 0 within 32 or 64 bits, variables are UTF-8 text",
        ) from None
