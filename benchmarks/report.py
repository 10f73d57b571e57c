"""The rows as a table for people, and as JSON for the next run to be compared with."""

import json
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from benchmarks.row import Row

_VERDICTS = {True: "HOLDS", False: "MISSED", None: ""}


def table(rows: Sequence[Row]) -> str:
    """Return the rows as aligned columns."""
    head = ("case", "ours", "peer", "value", "ratio", "", "target", "")
    cells = [head, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(head))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in cells)
    return "\n".join(line.rstrip() for line in lines)


def peaks(rows: Sequence[Row]) -> str:
    """Return the peak memory of each process: ours once for each case, then those of its peers."""
    lines = ["peak memory in MiB"]
    for case, group in groupby(rows, key=lambda row: row.case):
        of_case = list(group)
        weighed = {"ours": of_case[0].peaks_mib} | {row.peer: row.peer_peaks_mib for row in of_case}
        if any(weighed.values()):
            lines.append(f"  {case}")
        for name, peaks_mib in weighed.items():
            if peaks_mib:
                lines.append(f"    {name}: " + ", ".join(f"{key} {mib:.0f}" for key, mib in peaks_mib.items()))
    return "\n".join(lines)


def save(rows: Sequence[Row], path: Path) -> None:
    """Write the rows as a JSON list; the folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([row.as_json() for row in rows], indent=1) + "\n")


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.case,
        f"{row.ours:.3f} {row.unit}",
        row.peer,
        f"{row.peer_value:.3f} {row.unit}",
        f"{row.ratio:.3f}",
        row.ratio_is,
        row.target or "",
        _VERDICTS[row.holds],
    )
