"""The contents of a capture as they arrive: each with its digest behind it, many in one chunk or one in many.

Nothing here is final: the caller checks the whole at its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandbox_api.errors import SessionError
from sandbox_api.manifest import DIGEST_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from host_client.sandbox.capture import CaptureSink
    from sandbox_api.manifest import Entry


class Arrival:
    """Splits what follows the manifest and hands it to a sink.

    Args:
        sink: Where content goes.
        entries: The manifest.
        sent: Which of its entries are sent.

    Attributes:
        sha256s: Digests of the entries that have ended, in the order of `sent`.
        bytes_count: Bytes of content so far.
    """

    def __init__(self, sink: CaptureSink, entries: Sequence[Entry], sent: Sequence[int]) -> None:
        self._sink = sink
        self._sent = sent
        self._sizes = [entries[index].sent_bytes for index in sent]
        self._taken_bytes = 0  # of the entry that has begun to arrive, digest included
        self._digest = b""
        self.sha256s: list[bytes] = []
        self.bytes_count = 0

    def feed(self, data: memoryview) -> None:
        """Take the next part of the payload.

        Raises:
            SessionError: `protocol`: bytes after the last digest; what the sink raises.
        """
        at = self._take(data) if self._taken_bytes else 0
        sizes, sent, sha256s, whole = self._sizes, self._sent, self.sha256s, self._sink.whole
        number, end, total = len(sha256s), len(data), len(sizes)
        # An entry that arrives in one piece, as thousands do, is one call.
        while at < end and number < total and (stop := at + sizes[number]) + DIGEST_BYTES <= end:
            sha256 = bytes(data[stop : stop + DIGEST_BYTES])
            whole(sent[number], data[at:stop], sha256)
            sha256s.append(sha256)
            self.bytes_count += stop - at
            number += 1
            at = stop + DIGEST_BYTES
        if at < end:
            if number == total:
                raise SessionError("protocol", f"{end - at} bytes follow the end of the payload")
            self._take(data[at:])

    def _take(self, data: memoryview) -> int:
        """Take a part of one entry; return how many bytes that was."""
        number = len(self.sha256s)
        index = self._sent[number]
        piece = data[: max(0, self._sizes[number] - self._taken_bytes)]
        if piece:
            self._sink.data(index, piece)
            self.bytes_count += len(piece)
        rest = data[len(piece) :][: DIGEST_BYTES - len(self._digest)]
        self._digest += rest
        self._taken_bytes += len(piece) + len(rest)
        if len(self._digest) == DIGEST_BYTES:
            self._sink.end(index, self._digest)
            self.sha256s.append(self._digest)
            self._digest, self._taken_bytes = b"", 0
        return len(piece) + len(rest)
