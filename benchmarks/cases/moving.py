"""Capture and restore of three trees, ours beside `cp -r`, `tar | tar` and the Node script."""

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.daemon import Daemon
from benchmarks.harness import Bench, Measure, Subject, interleave
from benchmarks.ours import Capture, Restore
from benchmarks.peers.cp import Copy
from benchmarks.peers.script import NodeCapture, NodeRestore
from benchmarks.peers.tar import Stream
from benchmarks.place import Place
from benchmarks.row import Ratio, Row, Target, at_least_times_better, at_most_share, compare
from benchmarks.tree import FEW_FILES, MANY_FILES, ONE_FILE, Tree

_TREES = (MANY_FILES, FEW_FILES, ONE_FILE)
_LIMIT = "limit"
_MAX_DAEMON_MIB = 96.0


@dataclass(frozen=True)
class Pair:
    """Our subject and a peer's, by name, and how MANY_FILES is judged; other trees have no target."""

    ours: str
    peer: str
    judge: Target | Ratio


_PAIRS = (
    Pair("capture, durability none", "node script + cp, capture", at_least_times_better(5)),
    Pair("capture, durability none", "cp -r", at_most_share(2)),
    Pair("capture, durability none", "tar | tar", Ratio.SHARE_OF_PEER),
    Pair("capture, durability full", "cp -r && sync -f", Ratio.SHARE_OF_PEER),
    Pair("restore, durability full", "node script + cp, restore", at_least_times_better(2.5)),
    Pair("restore, durability full", "cp -r && sync -f", Ratio.SHARE_OF_PEER),
    Pair("restore, durability none", "node script + cp, restore", at_least_times_better(4)),
    Pair("restore, durability none", "cp -r", Ratio.SHARE_OF_PEER),
)


def rows(bench: Bench) -> Iterator[Row]:
    """Measure every tree in its own place with its own two daemons."""
    for tree in _TREES:
        pairs = [pair for pair in _PAIRS if bench.wants(_case(pair, tree), pair.peer)]
        memory_case = f"daemon peak while moving, {tree.name}"
        weighed = bench.wants(memory_case, _LIMIT)
        if not pairs and not weighed:
            continue
        place = Place.build(tree, bench.directory)
        with place.source_daemon() as source, place.target_daemon() as target:
            ours = _ours(place, source, target)
            wanted = {name for pair in pairs for name in (pair.ours, pair.peer)}
            subjects = [subject for subject in ours if weighed or subject.name in wanted]
            subjects += [subject for subject in _peers(place) if subject.name in wanted]
            # Half the rounds do where nothing is judged by the time.
            rounds = bench.rounds if tree is MANY_FILES else (bench.rounds + 1) // 2
            measures = interleave(subjects, rounds)
            peaks_mib = {"source daemon": source.peak_mib, "target daemon": target.peak_mib}
        yield from (_compare(pair, tree, measures, peaks_mib) for pair in pairs)
        if weighed:
            yield compare(
                memory_case,
                unit="MiB",
                ours=max(peaks_mib.values()),
                peer=_LIMIT,
                peer_value=_MAX_DAEMON_MIB,
                judge=at_most_share(1),
                peaks_mib=peaks_mib,
            )


def _case(pair: Pair, tree: Tree) -> str:
    return f"{pair.ours}, {tree.name}"


def _ours(place: Place, source: Daemon, target: Daemon) -> list[Subject]:
    return [
        Capture(place, source, "none"),
        Capture(place, source, "full"),
        Restore(place, source, target, "none"),
        Restore(place, source, target, "full"),
    ]


def _peers(place: Place) -> list[Subject]:
    return [
        Copy(place, durable=False),
        NodeCapture(place),
        NodeRestore(place),
        Copy(place, durable=True),
        Stream(place),
    ]


def _compare(pair: Pair, tree: Tree, measures: dict[str, Measure], daemon_mib: dict[str, float]) -> Row:
    ours, peer = measures[pair.ours], measures[pair.peer]
    judge = pair.judge
    if tree is not MANY_FILES and isinstance(judge, Target):
        judge = judge.ratio_is
    return compare(
        _case(pair, tree),
        unit="s",
        ours=ours.seconds,
        peer=pair.peer,
        peer_value=peer.seconds,
        judge=judge,
        peaks_mib={**ours.peaks_mib, **daemon_mib},
        peer_peaks_mib=peer.peaks_mib,
    )
