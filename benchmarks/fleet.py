"""The client process of the bench of many sandboxes: one kept session restored in one after the other, then in many.

Run as `python -m benchmarks.fleet REPOSITORY SOURCE ALONE TARGETS`, where ALONE and TARGETS are files with one target a
line. It captures the session of SOURCE, and prints one line of JSON: the median seconds of a restore that is alone, the
seconds of all TARGETS together, and the peak memory of this process when as many targets as run at a time had ended,
and at the end. All targets are connected for their restore, as an orchestrator's are.
"""

import asyncio
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

from benchmarks.client import STORE, capture
from benchmarks.daemon import own_peak_mib
from benchmarks.tree import MAX_BUNDLE_BYTES
from host_client import ConversationContext, ConversationRecord, Delivery, DeliveryProgress, Limits, Retry, restore_many

CONCURRENCY_COUNT = 16
_ONCE = Retry(attempts_count=1)


async def alone(record: ConversationRecord, targets: list[str], context: ConversationContext) -> float:
    """Restore in one target after the other; return the median of their seconds."""
    seconds = []
    for target in targets:
        began = time.perf_counter()
        _demand(await restore_many(record, [target], STORE, context, retry=_ONCE))
        seconds.append(time.perf_counter() - began)
    return median(seconds[1:])  # the first one warms the process


async def together(
    record: ConversationRecord, targets: list[str], context: ConversationContext
) -> tuple[float, float, float]:
    """Restore in all targets; return the seconds, and the peaks after the first ones and after all."""
    peaks_mib: list[float] = []

    def weigh(progress: DeliveryProgress) -> None:
        if progress.targets_count >= CONCURRENCY_COUNT and not peaks_mib:
            peaks_mib.append(own_peak_mib())

    began = time.perf_counter()
    ended = await restore_many(
        record, targets, STORE, context, concurrency_count=CONCURRENCY_COUNT, retry=_ONCE, progress=weigh
    )
    seconds = time.perf_counter() - began
    _demand(ended)
    return seconds, peaks_mib[0], own_peak_mib()


async def measure(context: ConversationContext, source: str, first: list[str], many: list[str]) -> dict[str, float]:
    """Capture once, and measure both."""
    _, record = await capture(source, replace(context, durability="none"))
    alone_seconds = await alone(record, first, context)
    seconds, first_mib, last_mib = await together(record, many, context)
    return {"alone_seconds": alone_seconds, "seconds": seconds, "first_mib": first_mib, "last_mib": last_mib}


def main() -> None:
    """Measure what the command line names."""
    repository, source, first, many = sys.argv[1:]
    context = ConversationContext(
        repository=Path(repository), durability="none", limits=Limits(max_bytes=MAX_BUNDLE_BYTES)
    )
    targets = [Path(name).read_text().split() for name in (first, many)]
    print(json.dumps(asyncio.run(measure(context, source, *targets))))


def _demand(ended: "list[Delivery] | tuple[Delivery, ...]") -> None:
    for one in ended:
        if one.error is not None:
            raise one.error


if __name__ == "__main__":
    main()
