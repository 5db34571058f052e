"""Simulate clusters of devices with known faults, and compare what `perfkit whatif` promises with simulated changes.

Usage: python -m tests.benchmarks.bench_savings [--cases 150] [--seed 0] [--list]

A row per kind of change: of the savings that are, or are promised to be, at least 2 % of the step, the median of
|promised / true - 1| and how many are within 20 %. Simulation (`tests/support/clusters`) and replay have no code in
common; what the replay cannot know, how much the kernels of a healthy rank vary, is 2 % of each.
"""

import argparse
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from perfkit.engine.whatif.predict import make_changes, replay_unchanged
from perfkit.pipeline.summarize import Options
from perfkit.pipeline.whatif import _load
from tests.support.clusters.cases import Case, cases
from tests.support.clusters.cluster import simulate

LEAST: Final = 0.02
"""Share of the step from which a saving counts."""
_CLOSE: Final = 0.2


class Saving(NamedTuple):
    """What a change saves of a case's step, as shares of it."""

    case: str
    change: str
    true: float
    promised: float

    @property
    def error(self) -> float:
        """How far the promise is off, as a share of the truth."""
        return abs(self.promised - self.true) / max(self.true, 1e-9)

    @property
    def counts(self) -> bool:
        """Whether there is anything to save, or is promised to be."""
        return max(self.true, self.promised) >= LEAST


def savings(case: Case) -> Iterator[Saving]:
    """Yield the true and promised savings of a case's changes."""
    with tempfile.TemporaryDirectory() as folder:
        step_us = simulate(case.cluster, Path(folder))
        report, graphs, _ = _load(folder, Options(), None)
    before = replay_unchanged(graphs)
    for change, changed in case.changes.items():
        true = 1 - simulate(changed) / step_us
        promised_us = make_changes(graphs, report, [change]).saving_ns(before) / 1000
        yield Saving(case.name, change, true, promised_us / step_us)


def main() -> None:
    """Simulate, predict and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--list", action="store_true", help="print each saving that is off by more than 20 %%")
    given = parser.parse_args()
    by_kind = defaultdict[str, list[Saving]](list)
    for case in cases(given.cases, given.seed):
        for one in savings(case):
            if one.counts:
                by_kind["rankN=healthy" if one.change.startswith("rank") else one.change].append(one)
                if given.list and one.error > _CLOSE:
                    shares = f"true {one.true:7.1%}  promised {one.promised:7.1%}"
                    print(f"{one.case:<36}{one.change:<22}{shares}", flush=True)
    print(f"{'change':<22}{'savings':>8}{'median error':>14}{'within 20 %':>14}")
    for kind, rows in sorted(by_kind.items()):
        print(_row(kind, rows))
    print(_row("all", [one for rows in by_kind.values() for one in rows]))


def _row(kind: str, rows: list[Saving]) -> str:
    close = sum(one.error <= _CLOSE for one in rows)
    median = statistics.median(one.error for one in rows)
    return f"{kind:<22}{len(rows):>8}{median:>13.1%} {close:>6} of {len(rows)}"


if __name__ == "__main__":
    main()
