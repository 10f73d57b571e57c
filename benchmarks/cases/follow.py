"""Many conversations followed at once, beside what a follow may cost."""

from collections.abc import Iterator

from benchmarks.follow import following
from benchmarks.harness import Bench
from benchmarks.row import Row, at_most_share, compare, under_share

_CONVERSATIONS_COUNT = 50
_LINES_PER_SECOND = 1000
_SECONDS = 10.0
_WARM_SECONDS = 2.0
_LIMIT = "limit"
_MAX_LATENCY_SECONDS = 1.0
_MAX_CORES_PERCENT = 10.0
_LOAD = f"follow, {_CONVERSATIONS_COUNT} conversations, {_LINES_PER_SECOND} lines/s"
_LATENCY_CASE = f"latest line, {_LOAD}"
_CPU_CASES = {side: f"{side} processor, {_LOAD}" for side in ("daemon", "client")}


def rows(bench: Bench) -> Iterator[Row]:
    """Follow all for some seconds, once: every line of it is a sample."""
    wanted = [case for case in (_LATENCY_CASE, *_CPU_CASES.values()) if bench.wants(case, _LIMIT)]
    if not wanted:
        return
    with following(bench.directory, _CONVERSATIONS_COUNT) as followed:
        followed.run(_LINES_PER_SECOND, _WARM_SECONDS)
        load = followed.run(_LINES_PER_SECOND, _SECONDS)
    if _LATENCY_CASE in wanted:
        yield compare(
            _LATENCY_CASE,
            unit="s",
            ours=max(load.latencies_seconds),
            peer=_LIMIT,
            peer_value=_MAX_LATENCY_SECONDS,
            judge=at_most_share(1),
        )
    for side, cores in (("daemon", load.daemon_cores), ("client", load.client_cores)):
        if _CPU_CASES[side] in wanted:
            yield compare(
                _CPU_CASES[side],
                unit="%",
                ours=100 * cores,
                peer=_LIMIT,
                peer_value=_MAX_CORES_PERCENT,
                judge=under_share(1),
            )
