"""Send a stream: the next part is made in a thread while the current one is on its way."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import grpc

    from sandbox_agent.services.worker import Worker


async def send(context: grpc.aio.ServicerContext[Any, Any], worker: Worker, parts: Iterator[Sequence[object]]) -> None:
    """Send what a blocking generator makes, in order.

    At most two parts are in memory. The generator is closed with the worker.

    Args:
        context: The call.
        worker: Where the generator runs.
        parts: Yields some messages at a time. None at all is a sign of life: a cancel takes effect between two parts.
    """
    generator = await worker.enter(closing(parts))  # type: ignore[type-var]
    step = worker.start(next, generator, None)
    while (messages := await asyncio.wrap_future(step)) is not None:
        step = worker.start(next, generator, None)
        for message in messages:
            await context.write(message)
