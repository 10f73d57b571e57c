"""Probes of an idle connection: those of our client do not end it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from host_client.sandbox import channel
from sandbox_agent import server

if TYPE_CHECKING:
    from pathlib import Path

_PROBE_MS = 1000  # gRPC sends no more than one probe in a second
_WATCHED_SECONDS = 4.5  # the third early probe is the one that ends a connection


@pytest.mark.anyio
async def test_idle_stream_survives_probes(tmp_path: Path) -> None:
    """With the intervals of both sides shortened alike, a stream on which nothing is sent outlives many probes."""
    factor = _PROBE_MS / (channel.KEEPALIVE_SECONDS * 1000)
    shortened = {"grpc.keepalive_time_ms", "grpc.http2.min_ping_interval_without_data_ms"}

    def shorten(options: tuple[tuple[str, int], ...]) -> list[tuple[str, int]]:
        return [(name, int(value * factor) if name in shortened else value) for name, value in options]

    daemon = grpc.aio.server(options=shorten(server.OPTIONS))
    health_pb2_grpc.add_HealthServicer_to_server(health.aio.HealthServicer(), daemon)
    target = f"unix:{tmp_path}/agent.sock"
    daemon.add_insecure_port(target)
    await daemon.start()
    async with grpc.aio.insecure_channel(target, options=shorten(channel._OPTIONS)) as connection:
        call = health_pb2_grpc.HealthStub(connection).Watch(health_pb2.HealthCheckRequest())
        assert (await call.read()).status == health_pb2.HealthCheckResponse.SERVING
        # Not a wait for something to happen: that nothing does is what is seen.
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(call.read(), _WATCHED_SECONDS)
        call.cancel()
    await daemon.stop(None)
