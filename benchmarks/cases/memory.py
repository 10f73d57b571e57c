"""Memory of the daemon that does not depend on the traffic, and memory that must not depend on size."""

from collections.abc import Iterator

from benchmarks.harness import Bench
from benchmarks.ours import Restore
from benchmarks.place import Place
from benchmarks.row import Ratio, Row, at_most_share, compare
from benchmarks.tree import ONE_BIG_FILE, ONE_FILE, Tree

_LIMIT = "limit"
_MAX_IDLE_MIB = 45.0
_IDLE_CASE = "daemon idle after its start"
_MAX_GROWTH = 1.15


def rows(bench: Bench) -> Iterator[Row]:
    """Weigh an idle daemon, then fresh daemons that move one file, small and four times as large."""
    if bench.wants(_IDLE_CASE, _LIMIT):
        yield _idle(bench)
    cases = {process: f"{process} peak, {ONE_BIG_FILE.name}" for process in ("daemon", "client")}
    if any(bench.wants(case, ONE_FILE.name) for case in cases.values()):
        small, large = _peaks(bench, ONE_FILE), _peaks(bench, ONE_BIG_FILE)
        for process, case in cases.items():
            if bench.wants(case, ONE_FILE.name):
                yield compare(
                    case,
                    unit="MiB",
                    ours=large[process],
                    peer=ONE_FILE.name,
                    peer_value=small[process],
                    judge=at_most_share(_MAX_GROWTH) if process == "daemon" else Ratio.SHARE_OF_PEER,
                )


def _idle(bench: Bench) -> Row:
    place = Place.build(Tree(1, 1), bench.directory)
    with place.source_daemon() as daemon:
        resident_mib, peak_mib = daemon.resident_mib, daemon.peak_mib
    return compare(
        _IDLE_CASE,
        unit="MiB",
        ours=resident_mib,
        peer=_LIMIT,
        peer_value=_MAX_IDLE_MIB,
        judge=at_most_share(1),
        peaks_mib={"daemon": peak_mib},
    )


def _peaks(bench: Bench, tree: Tree) -> dict[str, float]:
    """Capture and restore the tree once with fresh daemons; return the highest peak of each kind."""
    place = Place.build(tree, bench.directory)
    with place.source_daemon() as source, place.target_daemon() as target:
        restore = Restore(place, source, target, "none")
        restore.prepare()
        client_mib = restore.run().peaks_mib["client"]
        restore.check(thorough=True)
        daemon_mib = max(source.peak_mib, target.peak_mib)
    return {"daemon": daemon_mib, "client": client_mib}
