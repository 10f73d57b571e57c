"""Ask a running daemon whether it serves; what an image's HEALTHCHECK calls."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from sandbox_agent.listen import read_address

if TYPE_CHECKING:
    from sandbox_agent.config import HealthcheckConfig


def check_health(config: HealthcheckConfig) -> tuple[bool, str]:
    """Return whether the daemon serves, and one line that says so.

    Raises:
        ConfigurationError: `listen`: the address is none.
    """
    address = read_address(config.listen, os.environ)
    # A proxy named by the environment is for the network, not for this machine.
    with grpc.insecure_channel(address.grpc_target, options=(("grpc.enable_http_proxy", 0),)) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        try:
            answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=config.timeout_seconds)
        except grpc.RpcError as error:
            return False, f"not serving: {address.target} says {error.code().name}"
    if answer.status == health_pb2.HealthCheckResponse.SERVING:
        return True, f"serving on {address.target}"
    return False, f"not serving: {address.target} is ending"
