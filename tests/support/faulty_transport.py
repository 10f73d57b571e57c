"""A transport in front of another that fails, waits, loses answers and damages data as a test says, and counts."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from host_client.errors import UnavailableError
from host_client.transports.contract import MAX_OBJECT_BYTES, StoredObject

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from host_client.transports.contract import ObjectInfo, Transport


class Operation(NamedTuple):
    """One call.

    Attributes:
        operation: `read`, `stat`, `write`, `remove` or `list`.
        key: Its key, or the prefix.
        bytes: Of the data that was read or written; 0 where none was.
    """

    operation: str
    key: str
    bytes: int


@dataclass
class Fault:
    """What goes wrong, and with which calls: the first that match, `times` of them.

    Attributes:
        before: Raised instead of the call, which has no effect.
        after: Raised once the call has taken effect: its answer is lost.
        hold: The call begins once this is set.
        alter: Makes other data of what a read gives.
        number: Calls before this one, counted from 0 for the first that the transport got, are spared.
        operation: Only calls of this name.
        key: Only keys that begin with this.
        times: How many calls it strikes; None: all from the first on, as when the process or the store is gone.
        reached: Set when it strikes.
    """

    before: BaseException | None = None
    after: BaseException | None = None
    hold: asyncio.Event | None = None
    alter: Callable[[bytes], bytes] | None = None
    number: int = 0
    operation: str = ""
    key: str = ""
    times: int | None = 1
    reached: asyncio.Event = field(default_factory=asyncio.Event)

    def strikes(self, number: int, operation: str, key: str) -> bool:
        """Tell whether it strikes a call, and count it."""
        if number < self.number or self.times == 0 or not key.startswith(self.key):
            return False
        if self.operation not in ("", operation):
            return False
        self.times = None if self.times is None else self.times - 1
        self.reached.set()
        return True


class FaultyTransport:
    """The transport.

    Args:
        inner: What it stands in front of.
        faults: What goes wrong; more may be added to `faults` at any time.

    Attributes:
        faults: All of them; each call is struck by every one that matches.
        operations: Every call, in the order in which they were made; failed ones as well.
    """

    def __init__(self, inner: Transport, *faults: Fault) -> None:
        self.inner = inner
        self.faults = list(faults)
        self.operations: list[Operation] = []

    @property
    def name(self) -> str:
        """Return the name of the transport behind."""
        return self.inner.name

    @property
    def uploaded_bytes(self) -> int:
        """Return how many bytes of data were given to writes."""
        return sum(call.bytes for call in self.operations if call.operation == "write")

    @property
    def downloaded_bytes(self) -> int:
        """Return how many bytes of data were given by reads."""
        return sum(call.bytes for call in self.operations if call.operation == "read")

    def calls(self, operation: str = "", key: str = "") -> list[Operation]:
        """Return the calls of one name, or of all, whose keys begin with something."""
        return [call for call in self.operations if operation in ("", call.operation) and call.key.startswith(key)]

    async def read(self, key: str, *, max_bytes: int = MAX_OBJECT_BYTES) -> StoredObject | None:
        """Read an object, altered where a fault says so."""
        number, faults = await self._begin("read", key)
        found = await self.inner.read(key, max_bytes=max_bytes)
        if found is not None:
            self.operations[number] = Operation("read", key, len(found.data))
            for fault in faults:
                if fault.alter is not None:
                    found = StoredObject(fault.alter(found.data), found.revision)
        _end(faults)
        return found

    async def stat(self, key: str) -> ObjectInfo | None:
        """Look at an object."""
        _, faults = await self._begin("stat", key)
        found = await self.inner.stat(key)
        _end(faults)
        return found

    async def write(self, key: str, data: bytes, *, if_revision: str | None) -> str:
        """Write an object."""
        _, faults = await self._begin("write", key, len(data))
        revision = await self.inner.write(key, data, if_revision=if_revision)
        _end(faults)
        return revision

    async def remove(self, key: str, *, if_revision: str | None = None) -> None:
        """Remove an object."""
        _, faults = await self._begin("remove", key)
        await self.inner.remove(key, if_revision=if_revision)
        _end(faults)

    async def list(self, prefix: str = "") -> AsyncIterator[ObjectInfo]:
        """List objects; an answer that is lost is lost at its end."""
        _, faults = await self._begin("list", prefix)
        async for found in self.inner.list(prefix):
            yield found
        _end(faults)

    async def _begin(self, operation: str, key: str, data_bytes: int = 0) -> tuple[int, list[Fault]]:
        number = len(self.operations)
        self.operations.append(Operation(operation, key, data_bytes))
        faults = [fault for fault in self.faults if fault.strikes(number, operation, key)]
        for fault in faults:
            if fault.hold is not None:
                await fault.hold.wait()
            if fault.before is not None:
                raise fault.before
        return number, faults


def _end(faults: list[Fault]) -> None:
    for fault in faults:
        if fault.after is not None:
            raise fault.after


def unreachable() -> UnavailableError:
    """Return the failure of a store that cannot be reached, such as one that answers 503."""
    return UnavailableError("store_unreachable", "the store answers no more")


def flipped(at: int = 0) -> Callable[[bytes], bytes]:
    """Return what flips one bit of the byte at a position, from the end when it is negative."""

    def flip(data: bytes) -> bytes:
        changed = bytearray(data)
        changed[at] ^= 1
        return bytes(changed)

    return flip


def cut(left_bytes: int) -> Callable[[bytes], bytes]:
    """Return what leaves only the beginning of data."""
    return lambda data: data[:left_bytes]


async def damage(transport: Transport, key: str, alter: Callable[[bytes], bytes]) -> None:
    """Replace an object by other data, as a store does that damages what it keeps and does not know it."""
    found = await transport.read(key)
    assert found is not None, key
    await transport.write(key, alter(found.data), if_revision=found.revision)
