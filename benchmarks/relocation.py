"""Relocation of a transcript from one file to another, in a process of its own, timed inside.

Run as `python -m benchmarks.relocation ours|json SOURCE TARGET ORIGIN DESTINATION`. It prints one line of JSON. `json`
is how scripts do it: parse each line, change every `cwd` in it, write the line anew; lines that are not JSON pass.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from benchmarks.daemon import own_peak_mib
from host_client.session.relocate import Relocator

_READ_BYTES = 128 << 10


def ours(source: BinaryIO, target: BinaryIO, _: str, destination: str) -> None:
    """Relocate with the library."""
    relocator = Relocator(destination)
    while data := source.read(_READ_BYTES):
        target.writelines(relocator.feed(data))
    target.writelines(relocator.finish())


def by_json(source: BinaryIO, target: BinaryIO, origin: str, destination: str) -> None:
    """Relocate with the standard library."""

    def change(value: object) -> None:
        if isinstance(value, dict):
            if value.get("cwd") == origin:
                value["cwd"] = destination
            for held in value.values():
                change(held)
        elif isinstance(value, list):
            for held in value:
                change(held)

    for line in source:
        try:
            record = json.loads(line)
        except ValueError:
            target.write(line)
            continue
        change(record)
        target.write(json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")


WAYS: dict[str, Callable[[BinaryIO, BinaryIO, str, str], None]] = {"ours": ours, "json": by_json}


def main() -> None:
    """Relocate once, the way the command line names."""
    way, source_path, target_path, origin, destination = sys.argv[1:]
    with Path(source_path).open("rb") as source, Path(target_path).open("wb") as target:
        began = time.perf_counter()
        WAYS[way](source, target, origin, destination)
        target.flush()
        seconds = time.perf_counter() - began
    print(json.dumps({"seconds": seconds, "peak_mib": own_peak_mib()}))


if __name__ == "__main__":
    main()
