"""Write bundle JSON v1 on the host as a capture arrives.

The one rule: the saved file is replaced in one step by a whole one, every content of which had its digest checked, or
not touched.
"""

from __future__ import annotations

import hashlib
import json
from json.encoder import encode_basestring
from typing import TYPE_CHECKING

import pybase64

from host_client.session.bundle_index import VERSION, check_selection
from host_client.session.bundle_layout import WrittenItems, extents_of
from host_client.session.bundle_memory import MEMORY, KnownBundle
from host_client.session.content import BLOCK_BYTES, Encoder
from host_client.session.failure import host_failures
from host_client.session.folder import Scratch
from host_client.session.output import Output
from sandbox_api.errors import SessionError, printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import PurePosixPath
    from types import TracebackType
    from typing import Self

    from host_client.session.bundle_reader import SavedBundle
    from host_client.session.folder import Folder
    from sandbox_api.manifest import Entry
    from sandbox_api.profile import Profile

_SMALL_BYTES = 64 << 10


class BundleWriter:
    """A `CaptureSink` that keeps the capture as `<folder>/<id>.json`, 0600, readable for the TypeScript Outpost too.

    What the daemon names as unchanged is copied as text from the previous file, as early as the order allows, while the
    daemon works. Nothing is written when nothing differs from that file. What was written is remembered for the next
    capture (`bundle_memory`). Use it as a context manager: leaving without `finish` removes the scratch file. Methods
    block.

    Args:
        folder: Where the file goes.
        profile: Its format's name goes into the file; its paths must be of the format.
        conversation_id: Goes into the file and names it.
        previous: The file as it is now, when there is one that can be used; stays the caller's.
        durable: Force file and folder to the disk before `finish` returns.
    """

    def __init__(
        self, folder: Folder, profile: Profile, conversation_id: str, *, previous: SavedBundle | None, durable: bool
    ) -> None:
        self._folder = folder
        self._profile = profile
        self._conversation_id = conversation_id
        self._previous = previous
        self._durable = durable
        self._held = {entry.path: number for number, entry in enumerate(previous.entries)} if previous else {}
        self._source = ""
        self._entries: Sequence[Entry] = ()
        self._sha256s: list[bytes] = []  # what is known of each entry's digest
        self._starts: list[int] = []  # where each entry that is in the scratch file begins
        self._written = 0  # entries before this one are in the scratch file
        self._held_from = 0  # from this entry on nothing is sent
        self._open: int | None = None  # the entry whose content is arriving
        self._content_bytes = 0
        self._digest = hashlib.sha256()
        self._encoder = Encoder()
        self._texts: list[bytes] = []
        self._scratch: Scratch | None = None
        self._output: Output | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()

    def abort(self) -> None:
        """Remove what was written and not finished."""
        if self._scratch is not None:
            self._scratch.discard()

    def begin(self, source: PurePosixPath, entries: Sequence[Entry]) -> None:
        """Take the manifest.

        Raises:
            SessionError: `protocol`: the daemon names as held what is not held here, or sends what is not of the
                format; `missing_required`.
        """
        check_selection([entry.path for entry in entries], self._profile, "protocol", self._held)
        self._source = str(source)
        self._entries = entries
        self._sha256s = [entry.sha256 for entry in entries]
        for entry in entries:
            if not entry.sha256 and not entry.from_offset:
                continue
            number = self._held.get(entry.path)
            held = self._previous.entries[number] if self._previous is not None and number is not None else None
            if entry.sha256 and (held is None or (held.size, held.sha256) != (entry.size, entry.sha256)):
                raise _broken(entry, "is named as held, and is not")
            if entry.from_offset and (held is None or held.size != entry.from_offset):
                raise _broken(entry, "is sent from an offset where nothing held ends")
        sent = [index for index, entry in enumerate(entries) if not entry.sha256]
        self._held_from = sent[-1] + 1 if sent else 0
        is_same = not sent and self._previous is not None and len(entries) == len(self._previous.entries)
        if not is_same and (not sent or sent[0]):
            self._copy_held(sent[0] if sent else len(entries))

    def whole(self, index: int, content: bytes | memoryview, sha256: bytes) -> None:
        """Take all that is sent of one entry and its digest: as `data` and `end` do.

        Raises:
            SessionError, LimitError: those of `data` and `end`.
        """
        output = self._output
        # The one tight loop of writing: a capture of thousands of small files spends its time here.
        if output is not None and self._open is None and index == self._written < self._held_from:
            path, size, held, from_offset = self._entries[index]
            if size == len(content) <= _SMALL_BYTES and not held and not from_offset:
                if hashlib.sha256(content).digest() != sha256:
                    raise _mismatch(path)
                self._starts.append(output.size_bytes + (1 if index else 0))
                output.add(head_text(path, is_first=not index), pybase64.b64encode(content), tail_text(sha256))
                self._sent(index, sha256)
                return
        self.data(index, content)
        self.end(index, sha256)

    def data(self, index: int, piece: bytes | memoryview) -> None:
        """Take the next part of one entry's content.

        Raises:
            SessionError: `protocol`: more than announced, or out of order; those of `SavedBundle.pieces` for a held
                beginning.
            LimitError: `disk_full`, `read_only`, `descriptors`.
        """
        if index != self._open:
            self._begin_content(index)
        piece_bytes = len(piece)
        self._content_bytes += piece_bytes
        size = self._entries[index].size
        if self._content_bytes > size:
            raise _broken(self._entries[index], "is longer than announced")
        self._digest.update(piece)
        if piece_bytes == size <= BLOCK_BYTES:
            self._texts.append(pybase64.b64encode(piece))
            return
        self._texts += self._encoder.add(piece)
        if self._content_bytes >= _SMALL_BYTES:
            self._started().add(*self._texts)
            self._texts.clear()

    def end(self, index: int, sha256: bytes) -> None:
        """Take the digest of one entry's whole content.

        Raises:
            SessionError: `digest_mismatch`, `protocol`, and those of `data`.
        """
        if index != self._open:
            self._begin_content(index)
        entry = self._entries[index]
        if self._content_bytes != entry.size:
            raise _broken(entry, "is shorter than announced")
        if self._digest.digest() != sha256:
            raise _mismatch(entry.path)
        self._started().add(*self._texts, self._encoder.finish(), tail_text(sha256))
        self._open = None
        self._sent(index, sha256)

    def finish(self, entries: Sequence[Entry], digest: bytes) -> bool:
        """Give the file its name; return False when the saved file has that content already and was left as it is.

        Args:
            entries: The manifest, every digest set.
            digest: Its bundle digest, as the caller has checked.

        Raises:
            SessionError: `incomplete`; `digest_mismatch`: what arrived is not what the caller says; `changed`: somebody
                wrote into the previous file while it was copied; `corrupt` for the previous file.
            LimitError: `disk_full`, `read_only`.
        """
        if self._open is not None or not all(self._sha256s):
            raise SessionError("incomplete", "the capture ended before all of its files")
        if [entry[:2] for entry in entries] != [entry[:2] for entry in self._entries] or self._sha256s != [
            entry.sha256 for entry in entries
        ]:
            raise SessionError("digest_mismatch", "the files that arrived are not those of the capture's digest")
        previous = self._previous
        if previous is not None:
            previous.verify()
            if (
                previous.digest == digest
                and self._folder.identity(f"{self._conversation_id}.json") == previous.identity[:2]
            ):
                self.abort()
                return False
        if self._written < len(entries):
            self._copy_held(len(entries))
        output = self._started()
        output.add(b'],"digest":"%b"}' % digest.hex().encode())
        output.flush()
        if previous is not None:
            previous.check_unchanged()
        if self._scratch is not None:
            with host_failures(self._folder.host_path):
                identity, placed_ns = self._scratch.place(durable=self._durable)
            self._remember(identity, tuple(entries), digest, placed_ns)
        return True

    def _remember(self, identity: tuple[int, ...], entries: tuple[Entry, ...], digest: bytes, placed_ns: int) -> None:
        if self._previous is not None:
            MEMORY.forget(self._previous.identity)
        extents = extents_of(self._starts, identity[2])
        items = WrittenItems(entries, extents)
        known = KnownBundle(self._profile, self._conversation_id, self._source, entries, items, extents, digest)
        MEMORY.note(identity, known, read_ns=placed_ns)

    def _sent(self, index: int, sha256: bytes) -> None:
        """Note that an entry has ended; after the last that is sent copy what is held behind it."""
        self._sha256s[index] = sha256
        self._written = index + 1
        if self._written == self._held_from < len(self._entries):
            self._copy_held(len(self._entries))

    def _started(self) -> Output:
        if self._output is None:
            with host_failures(self._folder.host_path):
                self._scratch = Scratch(self._folder, f"{self._conversation_id}.json")
            self._output = Output(self._scratch.fd, self._folder.host_path)
            head = {
                "version": VERSION,
                "format": self._profile.format,
                "id": self._conversation_id,
                "source": self._source,
            }
            self._output.add(json.dumps(head, separators=(",", ":")).encode()[:-1] + b',"files":[')
        return self._output

    def _begin_content(self, index: int) -> None:
        """Write everything before an entry, and what the host holds of its beginning."""
        if self._open is not None or not self._written <= index < len(self._entries):
            raise SessionError("protocol", f"content of entry {index} came out of order")
        entry = self._entries[index]
        if entry.sha256:
            raise _broken(entry, "is named as held, and is sent")
        if index > self._written or self._output is None:
            self._copy_held(index)
        self._open = index
        self._content_bytes = 0
        self._digest = hashlib.sha256()
        self._starts.append(self._started().size_bytes + (1 if index else 0))
        # A small content goes to the output in one call with what surrounds it.
        self._texts = [head_text(entry.path, is_first=index == 0)]
        if self._previous is not None and entry.from_offset:
            for piece in self._previous.pieces(self._held[entry.path], lambda: BLOCK_BYTES):
                self.data(index, piece)

    def _copy_held(self, stop: int) -> None:
        """Copy the entries up to `stop` that the previous file has; neighbours there are copied at once."""
        output, previous, index = self._started(), self._previous, self._written
        numbers = []
        for entry in self._entries[index:stop]:
            if previous is None or not entry.sha256:
                raise _broken(entry, "was not sent")
            numbers.append(self._held[entry.path])
        if previous is not None:
            for first, last in _runs(numbers, previous.extents):
                begin, end = previous.extents[first], previous.extents[last]
                start = output.size_bytes + (1 if index else 0)
                if begin is None or end is None:
                    self._starts.append(start)
                    _copy_spelled(output, previous, first, is_first=not index)
                else:
                    if index:
                        output.add(b",")
                    shift = start - begin[0]
                    self._starts += [extent[0] + shift for extent in previous.extents[first : last + 1] if extent]
                    output.copy(previous.fileno(), begin[0], end[1])
                index += last + 1 - first
        self._written = stop
        output.flush()


def _runs(numbers: Sequence[int], extents: Sequence[tuple[int, int] | None]) -> Iterator[tuple[int, int]]:
    """Yield first and last of numbers that follow each other and whose texts do, with a byte for the comma between."""
    first = last = -1
    end = -1  # where the next text must begin
    for number in numbers:
        extent = extents[number]
        if first >= 0 and (number != last + 1 or extent is None or extent[0] != end):
            yield first, last
            first = -1
        if first < 0:
            first = number
        last, end = number, extent[1] + 1 if extent else -1
    if first >= 0:
        yield first, last


def head_text(path: bytes, *, is_first: bool) -> bytes:
    """Return the JSON of one file up to its base64 text."""
    name = encode_basestring(path.decode()).encode()
    return (b'{"path":' if is_first else b',{"path":') + name + b',"data":"'


def tail_text(sha256: bytes) -> bytes:
    """Return the JSON of one file after its base64 text."""
    return b'","sha256":"%b"}' % sha256.hex().encode()


def _copy_spelled(output: Output, previous: SavedBundle, number: int, *, is_first: bool) -> None:
    """Copy an entry that the previous file spells in another way than we do."""
    item = previous.items[number]
    output.add(head_text(item.path, is_first=is_first))
    if item.span.escaped:
        encoder = Encoder()
        for piece in previous.pieces(number, lambda: BLOCK_BYTES):
            output.add(*encoder.add(piece))
        output.add(encoder.finish())
    else:
        output.copy(previous.fileno(), item.span.start, item.span.end)
    output.add(tail_text(previous.entries[number].sha256))


def _mismatch(path: bytes) -> SessionError:
    return SessionError("digest_mismatch", f"the content of {printable(path)!r} is not that of its digest")


def _broken(entry: Entry, problem: str) -> SessionError:
    return SessionError("protocol", f"the file {printable(entry.path)!r} {problem}")
