"""Numbers in first lines of transcripts that say how many bytes of another transcript belong to them.

The one rule: both directions believe the same references, and change a number only where the place it names has moved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from host_client.errors import ConfigurationError, SessionError, printable
from host_client.session.transcript_stream import Digits

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import PurePosixPath

    from host_client.stores.layout import Reference, TranscriptLayout

NOWHERE = "\0"
"""An origin that no directory has: nothing is relocated."""


def read_reference(
    layout: TranscriptLayout, first_line: bytes, path: PurePosixPath, transcripts: Sequence[PurePosixPath]
) -> Reference | None:
    """Ask the layout what the first line of a transcript refers to; None: nothing.

    Raises:
        ConfigurationError: `invalid_argument`: the layout names what is not one of the transcripts.
    """
    reference = layout.reference(first_line, path, transcripts)
    if reference is not None and reference.path not in transcripts:
        raise ConfigurationError(
            "invalid_argument",
            f"the layout refers to {printable(str(reference.path))}, which is no transcript of the conversation",
            hint="see TranscriptLayout.reference",
        )
    return reference


def new_digits(reference: Reference, position: int) -> Digits | None:
    """Return what becomes of the number when the place that it names lies there now; None: it is right."""
    return None if reference.offset == position else Digits(*reference.span, b"%d" % position)


def circular(path: PurePosixPath) -> SessionError:
    """Return the failure about a transcript that belongs to its own beginning."""
    return SessionError("corrupt", f"{printable(str(path))} refers to itself by way of other transcripts")
