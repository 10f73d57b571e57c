"""Data objects that are read to be verified, small ones several at a time, since each step in a thread has its price.

The one rule: what is wrong with one object says nothing of the others of its batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from host_client.errors import OutpostError
from host_client.sandbox.task import in_thread
from host_client.stores.archive_codec import MAX_OVERHEAD_BYTES
from host_client.stores.archive_schedule import advance

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from host_client.stores.archive_schedule import Step, Wanted
    from host_client.stores.archive_survey import Survey

S = TypeVar("S")

_BATCH_BYTES: Final = 1 << 20


@dataclass(slots=True, eq=False)
class VerifiedObject(Generic[S]):
    """A data object.

    Attributes:
        wanted: What manifests say of it.
        steps: What it has of files.
        key: Its key.
        stored: What the store has of it; None: it is not there, or cannot be read.
        content: What it holds, as its name says; None: not that.
        error: What is wrong with it.
    """

    wanted: Wanted
    steps: list[Step[S]]
    key: str
    stored: bytes | None = None
    content: bytes | None = None
    error: OutpostError | None = None


def batches(order: Iterable[tuple[Wanted, list[Step[S]]]], survey: Survey) -> Iterator[list[VerifiedObject[S]]]:
    """Yield objects in their order, as many small ones at a time as make a large one."""
    batch: list[VerifiedObject[S]] = []
    batch_bytes = 0
    for wanted, steps in order:
        if batch and batch_bytes + wanted.size_bytes > _BATCH_BYTES:
            yield batch
            batch, batch_bytes = [], 0
        batch.append(VerifiedObject(wanted, steps, survey.layout.data_key(wanted.name)))
        batch_bytes += wanted.size_bytes
    if batch:
        yield batch


async def read_batch(batch: list[VerifiedObject[S]], survey: Survey) -> list[VerifiedObject[S]]:
    """Read and decode a batch, and return it."""
    for item in batch:
        try:
            found = await survey.transport.read(item.key, max_bytes=item.wanted.size_bytes + MAX_OVERHEAD_BYTES)
        except OutpostError as error:
            item.error = error
        else:
            item.stored = None if found is None else found.data
    await in_thread(_decode, batch, survey)
    return batch


def _decode(batch: Sequence[VerifiedObject[S]], survey: Survey) -> None:
    for item in batch:
        if item.stored is None:
            continue
        name, size_bytes = item.wanted
        try:
            item.content = survey.codec.decode_chunk(item.stored, about=item.key, name=name, size=size_bytes)
        except OutpostError as error:
            item.error = error


def other_files(batch: Sequence[VerifiedObject[S]]) -> list[tuple[str, list[S]]]:
    """Hash what a batch has of files; return the SHA-256 that files should have and have not, and whose they are."""
    return [found for item in batch for found in advance(item.steps, item.content)]
