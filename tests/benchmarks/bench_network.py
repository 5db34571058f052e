"""Simulate clusters with a slow network and healthy ones, and compare what is named, and its price, with the truth.

Usage: python -m tests.benchmarks.bench_network [--cases 46] [--seed 0] [--list]

A row per kind of fault (`tests/support/clusters/networks.py`): how many are named, with a ratio and a gain within 20 %
of those of the simulation without the fault, of gains of at least 5 % of the step; and how many of the same clusters
without a fault are said to have one. Named is what the transfers of exactly those ranks are that the fault makes slow.
"""

import argparse
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any, Final, NamedTuple

from perfkit.pipeline.summarize import Options
from perfkit.pipeline.whatif import _load
from perfkit.records.cross_rank import CrossRankSummary, SlowTransfers
from tests.support.clusters.cluster import Cluster, members, simulate
from tests.support.clusters.networks import Network, networks

LEAST: Final = 0.05
_CLOSE: Final = 0.2


class Result(NamedTuple):
    """What was found about a cluster."""

    named: bool
    ratio_error: float
    true: float
    """What the step would gain, as a share of it."""
    gain_error: float
    false: int
    """Causes that were named without a fault."""
    text: str


def result(network: Network) -> Result:
    """Simulate a cluster with and without its fault, and compare."""
    step_us, found = _compared(network.cluster)
    healthy_us, none = _compared(network.healthy)
    faults, true = network.cluster.faults, 1 - healthy_us / step_us
    wanted: dict[Any, float] = {**faults.hosts, **faults.pairs, **faults.cards, **faults.links, **faults.congested}
    named = len(found.slow_transfers) == 1 and _is_right(network.cluster, found.slow_transfers[0])
    ratio = found.slow_transfers[0].ratio if found.slow_transfers else 1.0
    gain = (found.slow_transfers_gain_ns or 0) / 1000 / step_us
    return Result(
        named=named,
        ratio_error=abs(ratio / max(wanted.values()) - 1),
        true=true,
        gain_error=abs(gain - true) / max(true, 1e-9),
        false=len(none.slow_transfers),
        text=f"{_text(found.slow_transfers)} gain {gain:.1%} of {true:.1%}; healthy {_text(none.slow_transfers)}",
    )


def _text(causes: list[SlowTransfers]) -> str:
    return ", ".join(f"{one.ratio:.2f}x {one.ranks or one.hosts or one.steps}" for one in causes) or "nothing"


def _compared(cluster: Cluster) -> tuple[float, CrossRankSummary]:
    with tempfile.TemporaryDirectory() as folder:
        step_us = simulate(cluster, Path(folder))
        report, _, _ = _load(folder, Options(), None)
    assert report.cross_rank is not None
    return step_us, report.cross_rank


def _is_right(cluster: Cluster, found: SlowTransfers) -> bool:
    """Return whether what was found is about exactly the ranks, or the steps, that the fault makes slow."""
    faults = cluster.faults
    if faults.congested:
        return found.steps == sorted(faults.congested)
    slow = {one for one in members(cluster) if cluster.slowdown(one) > 1}
    return not found.steps and slow == {one for one in members(cluster) if _has(cluster, found, one)}


def _has(cluster: Cluster, found: SlowTransfers, ranks: tuple[int, ...]) -> bool:
    hosts = {f"node{rank // cluster.per_host}" for rank in ranks}
    if found.hosts:
        return len(hosts) > 1 and hosts.issuperset(found.hosts)
    return list(ranks) == found.ranks if len(found.ranks) > 1 else len(hosts) > 1 and found.ranks[0] in ranks


def main() -> None:
    """Simulate, analyze and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=46)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--list", action="store_true", help="print each case")
    given = parser.parse_args()
    by_kind = defaultdict[str, list[Result]](list)
    for network in networks(given.cases, given.seed):
        by_kind[network.name.split()[0]].append(found := result(network))
        if given.list:
            faults = {name: value for name, value in network.cluster.faults._asdict().items() if value}
            print(f"{network.name:<26}{'' if found.named else 'WRONG '}{faults} {found.text}", flush=True)
    print(f"{'fault':<12}{'named':>10}{'ratio':>10}{'gain':>10}{'false':>10}")
    for kind, rows in (*by_kind.items(), ("all", [one for several in by_kind.values() for one in several])):
        large = [one for one in rows if one.true >= LEAST]
        cells = (
            _share([one.named for one in rows]),
            _share([one.ratio_error <= _CLOSE for one in rows if one.named]),
            _share([one.gain_error <= _CLOSE for one in large]),
            _share([one.false > 0 for one in rows]),
        )
        print(f"{kind:<12}" + "".join(f"{cell:>10}" for cell in cells))


def _share(which: list[bool]) -> str:
    return f"{sum(which)}/{len(which)}"


if __name__ == "__main__":
    main()
