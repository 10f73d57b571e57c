"""What one side has of a file, or of several, beside what the other has. Blocks, and holds one piece of each side.

The one rule: only what begins with all of the other's bytes has gone on from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from host_client.stores.contract import Comparison


def compare_contents(ours: Iterable[bytes], theirs: Iterable[bytes]) -> Comparison:
    """Tell what a sandbox's content, `theirs`, is beside this host's, `ours`; never `absent`."""
    our_pieces, their_pieces = filter(None, ours), filter(None, theirs)
    our_rest = their_rest = b""
    while True:
        our_rest = our_rest or next(our_pieces, b"")
        their_rest = their_rest or next(their_pieces, b"")
        size = min(len(our_rest), len(their_rest))
        if not size:
            break
        if our_rest[:size] != their_rest[:size]:
            return "diverged"
        our_rest, their_rest = our_rest[size:], their_rest[size:]
    if their_rest:
        return "ahead"
    return "behind" if our_rest else "same"


def combined(comparisons: Iterable[Comparison]) -> Comparison:
    """Tell what a sandbox has of several files: those that are the same say nothing, others must agree."""
    different = set(comparisons) - {"same"}
    if not different:
        return "same"
    return different.pop() if len(different) == 1 else "diverged"
