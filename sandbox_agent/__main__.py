"""The command `sandbox-agent`: serve, healthcheck or version."""

from __future__ import annotations

import os
import sys

from sandbox_agent import VERSION, log
from sandbox_agent.allocator import keep_memory_of_chunks
from sandbox_agent.config import HealthcheckConfig, read_arguments
from sandbox_api.errors import OutpostError


def main() -> int:
    """Run the command line; return the exit status: 0, 1 for an unhealthy daemon, or that of the error's family."""
    try:
        config = read_arguments(sys.argv[1:], os.environ)
        if config == "version":
            sys.stdout.write(f"{VERSION}\n")
            return 0
        if isinstance(config, HealthcheckConfig):
            return _healthcheck(config)
        keep_memory_of_chunks()
        log.set_up(as_json=config.log_format == "json", debug=config.debug)
        # gRPC's core writes to stderr by itself; what it would say of closing connections does not belong into our log.
        os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
        # Not at the top: gRPC takes longer to load than the other commands to run.
        from sandbox_agent.server import serve  # noqa: PLC0415

        serve(config)
    except OutpostError as error:
        sys.stderr.write(f"sandbox-agent: {error}\n")
        return error.exit_status
    return 0


def _healthcheck(config: HealthcheckConfig) -> int:
    from sandbox_agent.healthcheck import check_health  # noqa: PLC0415  as above

    is_serving, line = check_health(config)
    sys.stdout.write(f"{line}\n")
    return 0 if is_serving else 1


if __name__ == "__main__":
    sys.exit(main())
