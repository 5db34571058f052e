"""Simulate clusters in which ranks are late for known reasons, and count how often the reason is told.

Usage: python -m tests.benchmarks.bench_late_causes [--cases 90] [--seed 0] [--list]

A row per fault: how often the right sentence is on the first screen, another of them, or none; and how often one is
said of the same run without the fault. `loader`: one that the host's lead hides costs nothing, so nothing is right.
"""

import argparse
import re
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Final

import perfkit
from tests.support.clusters.cluster import Cluster, simulate
from tests.support.clusters.device_faults import ANY, Case, cases, told

_COLUMNS: Final = ("right", "wrong", "none", "healthy")


def analyzed(cluster: Cluster) -> str:
    """Return what is told of a cluster."""
    with tempfile.TemporaryDirectory() as folder:
        simulate(cluster, Path(folder))
        (run,) = perfkit.analyze(folder).runs
    return told(run)


def judge(case: Case, said: str) -> str:
    """Return whether the right sentence is told, a wrong one, or none."""
    if case.said and re.search(case.said, said):
        return "right"
    if re.search(ANY, said):
        return "wrong"
    return "none" if case.said else "right"


def main() -> None:
    """Simulate, analyze and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=90)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--list", action="store_true", help="print what is told where it is not right")
    given = parser.parse_args()
    counts = defaultdict[str, defaultdict[str, int]](lambda: defaultdict(int))
    for case in cases(given.cases, given.seed):
        fault, said, healthy = case.name.split()[2], analyzed(case.cluster), analyzed(case.twin)
        found = judge(case, said)
        counts[fault][found] += 1
        counts[fault]["healthy"] += bool(re.search(ANY, healthy))
        if given.list and found != "right":
            print(f"{case.name:<48}{said}", flush=True)
    print(f"{'fault':<12}{''.join(f'{name:>9}' for name in _COLUMNS)}")
    for fault, row in counts.items():
        print(f"{fault:<12}{''.join(f'{row[name]:>9}' for name in _COLUMNS)}")


if __name__ == "__main__":
    main()
