"""The oldest versions that the distribution accepts are those that the generated code accepts."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
GENERATED = ROOT / "proto/sandbox_api/v1"


def _floors() -> dict[str, str]:
    """Return the oldest version of each dependency of the daemon."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return dict(dependency.split(">=") for dependency in project["dependencies"])


def _numbers(pattern: str, names: str) -> set[str]:
    """Return the versions that generated modules name."""
    return {found[1] for path in GENERATED.glob(names) for found in re.finditer(pattern, path.read_text())}


def test_grpc_is_as_new_as_the_generated_code() -> None:
    """Older ones raise an error at the import; health and reflection are made of one piece with them."""
    [version] = _numbers(r"GRPC_GENERATED_VERSION = '(.+)'", "*_pb2_grpc.py")
    floors = _floors()
    assert {floors[name] for name in ("grpcio", "grpcio-health-checking", "grpcio-reflection")} == {version}


def test_protobuf_is_as_new_as_the_generated_code() -> None:
    """An older runtime refuses the generated code at the import."""
    [version] = _numbers(r"Protobuf Python Version: (.+)", "*_pb2.py")
    assert _floors()["protobuf"] == version
