"""The arithmetic of the benchmark's rows, on made-up numbers: a wrong comparison must not pass unnoticed."""

import importlib.util
import json
import math
import sys
from pathlib import Path
from types import ModuleType

import pytest

_ROW_PATH = Path(__file__).parents[2] / "benchmarks" / "row.py"


def _load_row() -> ModuleType:
    """Load the module from its file: the bench is no part of the installed wheel the tests run against."""
    spec = importlib.util.spec_from_file_location("bench_row", _ROW_PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


row = _load_row()


@pytest.mark.parametrize(
    ("ours", "peer_value", "ratio", "holds"),
    [(0.2, 1.2, 6.0, True), (0.25, 1.25, 5.0, True), (0.25, 1.2, 4.8, False), (1.2, 0.2, 1 / 6, False)],
)
def test_times_better_divides_the_peer_by_ours(ours: float, peer_value: float, ratio: float, *, holds: bool) -> None:
    """`at least 5 times better` holds when the peer needs five times as much, never the other way round."""
    made = row.compare("c", unit="s", ours=ours, peer="p", peer_value=peer_value, judge=row.at_least_times_better(5))
    assert made.ratio == pytest.approx(ratio)
    assert made.holds is holds
    assert (made.ratio_is, made.target) == ("peer/ours", "peer/ours >= 5")


@pytest.mark.parametrize(
    ("ours", "peer_value", "ratio", "holds"),
    [(0.2, 0.2, 1.0, True), (0.4, 0.2, 2.0, True), (0.5, 0.2, 2.5, False), (0.2, 0.5, 0.4, True)],
)
def test_share_divides_ours_by_the_peer(ours: float, peer_value: float, ratio: float, *, holds: bool) -> None:
    """`at most 2 times the peer` holds up to and including twice what the peer needs."""
    made = row.compare("c", unit="s", ours=ours, peer="p", peer_value=peer_value, judge=row.at_most_share(2))
    assert made.ratio == pytest.approx(ratio)
    assert made.holds is holds
    assert (made.ratio_is, made.target) == ("ours/peer", "ours/peer <= 2")


@pytest.mark.parametrize(("ours", "holds"), [(0.49, True), (0.5, False), (0.51, False)])
def test_under_leaves_the_bound_out(ours: float, *, holds: bool) -> None:
    """`under half` does not hold at exactly half."""
    made = row.compare("c", unit="s", ours=ours, peer="p", peer_value=1.0, judge=row.under_share(0.5))
    assert made.holds is holds


def test_a_row_without_a_target_neither_holds_nor_misses() -> None:
    """A reported row has a ratio in the direction asked for, no target, and no verdict."""
    made = row.compare("c", unit="s", ours=1.0, peer="p", peer_value=4.0, judge=row.Ratio.TIMES_BETTER)
    assert (made.ratio, made.ratio_is, made.target, made.holds) == (4.0, "peer/ours", None, None)


@pytest.mark.parametrize(("ratio_is", "relation"), [("peer/ours", "<="), ("peer/ours", "<"), ("ours/peer", ">=")])
def test_a_target_that_rewards_the_worse_result_is_refused(ratio_is: str, relation: str) -> None:
    """A bound put on the wrong side of a ratio cannot be written down."""
    with pytest.raises(ValueError, match="reward the worse result"):
        row.Target(row.Ratio(ratio_is), row.Relation(relation), 2.0)


@pytest.mark.parametrize("bound", [0.0, -1.0, math.inf, math.nan])
def test_a_bound_that_everything_or_nothing_reaches_is_refused(bound: float) -> None:
    """A bound is a positive finite number."""
    with pytest.raises(ValueError, match="positive bound"):
        row.at_most_share(bound)


@pytest.mark.parametrize(("ours", "peer_value"), [(0.0, 1.0), (1.0, 0.0), (-1.0, 1.0), (math.nan, 1.0)])
def test_numbers_that_were_not_measured_are_refused(ours: float, peer_value: float) -> None:
    """A zero, negative or missing measurement is an error, not a target that holds."""
    with pytest.raises(ValueError, match="cannot be compared"):
        row.compare("c", unit="s", ours=ours, peer="p", peer_value=peer_value, judge=row.at_most_share(2))


def test_a_row_is_plain_json_with_the_agreed_names() -> None:
    """Whoever reads `build/bench.json` finds the agreed fields, and values JSON can hold."""
    made = row.compare("c", unit="s", ours=1.0, peer="p", peer_value=4.0, judge=row.at_most_share(2))
    read = json.loads(json.dumps(made.as_json()))
    assert {"case", "unit", "ours", "peer", "peer_value", "ratio", "target", "holds"} <= read.keys()
    assert (read["ratio"], read["holds"]) == (0.25, True)
