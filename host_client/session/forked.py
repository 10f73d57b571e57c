"""What does not survive a fork of its process: libraries with threads of their own, such as gRPC and obstore.

The one rule: in a child that was forked while they were in use, a call is refused; it would wait for ever.
"""

from __future__ import annotations

import os

from host_client.errors import ConfigurationError


def refuse_forked(user_id: int, what: str) -> None:
    """Refuse to use something in another process than the one that has it in use.

    Args:
        user_id: That process.
        what: What it uses.

    Raises:
        ConfigurationError: `invalid_argument`: this is another process.
    """
    if user_id != os.getpid():
        raise ConfigurationError(
            "invalid_argument",
            f"this process was forked from one with {what} in use, which does not survive that",
            hint="have workers spawned, or forked from a server: multiprocessing.get_context('spawn')",
        )
