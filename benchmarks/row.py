"""One line of the result: our number, a peer's number, their ratio, and whether a target holds.

The rule of this module: a ratio says in its own name which way it divides, and a target that would
reward being slower or bigger cannot be written down.
"""

import math
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any


class Ratio(StrEnum):
    """How two numbers of which the smaller is the better one are divided."""

    TIMES_BETTER = "peer/ours"
    SHARE_OF_PEER = "ours/peer"


class Relation(StrEnum):
    """How a ratio must stand to its bound."""

    AT_LEAST = ">="
    AT_MOST = "<="
    UNDER = "<"


@dataclass(frozen=True)
class Target:
    """A bound on a ratio.

    Raises:
        ValueError: the bound is no positive number, or the relation would reward being worse.
    """

    ratio_is: Ratio
    relation: Relation
    bound: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.bound) and self.bound > 0):
            raise ValueError(f"a target needs a positive bound, not {self.bound}")
        if (self.ratio_is is Ratio.TIMES_BETTER) != (self.relation is Relation.AT_LEAST):
            raise ValueError(f"{self} would reward the worse result")

    def __str__(self) -> str:
        """Return the target as a reader writes it: `peer/ours >= 5`."""
        return f"{self.ratio_is} {self.relation} {self.bound:g}"

    def holds(self, ratio: float) -> bool:
        """Return whether the ratio reaches the target; the bound itself counts unless it is UNDER."""
        match self.relation:
            case Relation.AT_LEAST:
                return ratio >= self.bound
            case Relation.AT_MOST:
                return ratio <= self.bound
            case Relation.UNDER:
                return ratio < self.bound


@dataclass(frozen=True, kw_only=True)
class Row:
    """One comparison, as it stands in `build/bench.json`. `holds` is None where there is no target."""

    case: str
    unit: str
    ours: float
    peer: str
    peer_value: float
    ratio_is: str
    ratio: float
    target: str | None
    holds: bool | None
    peaks_mib: dict[str, float] = field(default_factory=dict)
    peer_peaks_mib: dict[str, float] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the row as plain values."""
        return asdict(self)


def at_least_times_better(bound: float) -> Target:
    """Return the target that the peer needs at least `bound` times what we need."""
    return Target(Ratio.TIMES_BETTER, Relation.AT_LEAST, bound)


def at_most_share(bound: float) -> Target:
    """Return the target that we need at most `bound` times what the peer needs."""
    return Target(Ratio.SHARE_OF_PEER, Relation.AT_MOST, bound)


def under_share(bound: float) -> Target:
    """Return the target that we need less than `bound` times what the peer needs."""
    return Target(Ratio.SHARE_OF_PEER, Relation.UNDER, bound)


def compare(
    case: str,
    *,
    unit: str,
    ours: float,
    peer: str,
    peer_value: float,
    judge: Target | Ratio,
    peaks_mib: dict[str, float] | None = None,
    peer_peaks_mib: dict[str, float] | None = None,
) -> Row:
    """Divide the two numbers the way `judge` says and hold the ratio against it if it is a target.

    Raises:
        ValueError: a number is not positive and finite, so the ratio would mean nothing.
    """
    for name, value in (("ours", ours), (peer, peer_value)):
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"{case}: {name} is {value}, which cannot be compared")
    target = judge if isinstance(judge, Target) else None
    ratio_is = judge.ratio_is if isinstance(judge, Target) else judge
    ratio = peer_value / ours if ratio_is is Ratio.TIMES_BETTER else ours / peer_value
    return Row(
        case=case,
        unit=unit,
        ours=ours,
        peer=peer,
        peer_value=peer_value,
        ratio_is=str(ratio_is),
        ratio=ratio,
        target=None if target is None else str(target),
        holds=None if target is None else target.holds(ratio),
        peaks_mib=peaks_mib or {},
        peer_peaks_mib=peer_peaks_mib or {},
    )
