"""Analyse fifty runs again, and fifty-one: the time until the report is complete, start-up included.

Usage: python -m tests.benchmarks.bench_cache [RUNS]
"""

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.benchmarks.bench_ranks import Cost, measure

SAMPLE = Path(__file__).parents[2] / "traces" / "sample-memory"


def main(runs: int) -> None:
    """Print one row per analysis."""
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["PERFKIT_CACHE_DIR"] = f"{scratch}/cache"
        folder = Path(scratch, "runs")
        for number in range(runs):
            _copy(folder / f"run-{number:03}", number)
        print(f"{runs} runs of 2 ranks {'wall s':>20} {'CPU s':>7}")
        _row("first", measure("analyze", folder))
        time.sleep(2.1)  # what changed within the last two seconds is read again
        _row("again", _least([measure("analyze", folder) for _ in range(3)]))
        looks = []
        for more in range(3):
            _copy(folder / f"run-{runs + more:03}", runs + more)
            looks.append(measure("analyze", folder))
        _row("with one more", _least(looks))
        _row("for comparison: perfkit --help", measure("--help"))


def _copy(folder: Path, number: int) -> None:
    """Copy the sample run, with unique traces: none is in the cache by the content of another."""
    shutil.copytree(SAMPLE, folder)
    for trace in folder.glob("rank*.json.gz"):
        with trace.open("ab") as stream:
            stream.write(bytes(number + 1))  # padding


def _row(look: str, cost: Cost) -> None:
    print(f"{look:32} {cost.wall_s:7.2f} {cost.cpu_s:7.2f}", flush=True)


def _least(costs: list[Cost]) -> Cost:
    return Cost(*(min(figures) for figures in zip(*costs, strict=True)))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 50)
