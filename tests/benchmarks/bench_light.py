"""Find stragglers in light traces: judge recorded runs as they are, and with all ranks but the first made light.

Usage: python -m tests.benchmarks.bench_light [--runs 24] [--ranks 2 4] [--seed 1] [--folder FOLDER]

The traces of both are of the same run, so that its noise counts for neither. Target: no worse by more than 2 points.
"""

import argparse
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

from tests.benchmarks.bench_stragglers import record, score
from tests.support.processes.delayed_jobs import make_jobs
from tests.support.traces.light import lighten

_HEAD: Final = f"{'traces':>7} {'ranks':>5} {'right':>16} {'size of those':>16} {'blamed':>16} {'MB':>8}"


def main() -> None:
    """Print two rows per number of ranks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=24, help="half of them have a delay")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="where to keep the traces")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        os.environ.setdefault("PERFKIT_CACHE_DIR", f"{scratch}/cache")
        print(_HEAD)
        for ranks in options.ranks:
            compare(options.folder or Path(scratch), ranks, options.runs, options.seed + ranks)


def compare(folder: Path, ranks: int, runs: int, seed: int) -> None:
    """Record the jobs of one number of ranks, and judge them twice."""
    full, light = folder / f"full-{ranks}", folder / f"light-{ranks}"
    full.mkdir(parents=True)
    jobs = make_jobs(ranks, runs, seed)
    record(full, jobs, ranks, ())
    shutil.copytree(full, light)
    for trace in light.rglob("rank*.json"):
        if not trace.name.startswith("rank0."):
            lighten(trace)
    for name, traces in (("full", full), ("light", light)):
        found = str(score(traces, jobs, ranks))
        size = sum(trace.stat().st_size for trace in traces.rglob("rank*.json")) / 1e6
        print(f"{name:>7} {ranks:>5} {found[: 3 * 16 + 2]} {size:>8.2f}", flush=True)


if __name__ == "__main__":
    main()
