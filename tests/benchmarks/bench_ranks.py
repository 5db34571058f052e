"""Analyse runs of more and more ranks; print time and the parent's memory per rank, cold and from the cache.

Usage: python -m tests.benchmarks.bench_ranks [RANKS ...] (default: 256 512 1024)
"""

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tests.support.traces.many_ranks import make_ranks

_PARENT = """
import resource, sys
from perfkit.cli import main
code = main(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
sys.exit(code)
"""


class Cost(NamedTuple):
    """Cost of an analysis."""

    wall_s: float
    cpu_s: float
    """CPU time of all its processes: more reliable on a busy machine."""
    peak_bytes: int
    """Peak memory of the reporting process."""


def measure(*arguments: str | Path) -> Cost:
    """Run `perfkit` with these arguments in a separate process."""
    begun_s, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-c", _PARENT, *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=True)
    wall_s, after = time.perf_counter() - begun_s, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(wall_s, cpu_s, int(done.stderr.split()[-1]) * 1024)


def main(counts: list[int]) -> None:
    """Print one row per number of ranks."""
    print(
        f"{'ranks':>6} {'wall s':>7} {'cpu ms/rank':>12} {'KB/rank':>8} | again: {'report':>9} {'s':>6} {'KB/rank':>8}"
    )
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["PERFKIT_CACHE_DIR"] = f"{scratch}/cache"
        pair = make_ranks(Path(scratch, "pair"), 2)
        base = measure("analyze", pair, "-f", "json", "--executor", "processes").peak_bytes
        for count in counts:
            folder = make_ranks(Path(scratch, "ranks"), count)
            os.environ["PERFKIT_CACHE_DIR"] = f"{scratch}/cache-{count}"
            cold = measure("analyze", folder, "-f", "json", "--executor", "processes")
            print(
                f"{count:>6} {cold.wall_s:>7.1f} {1000 * cold.cpu_s / count:>12.1f} "
                f"{(cold.peak_bytes - base) / count / 1000:>8.1f}",
                flush=True,
            )
            for form in ("json", "markdown", "rich"):
                warm = measure("analyze", folder, "-f", form)
                per_rank = (warm.peak_bytes - base) / count / 1000
                print(f"{'':>45} {form:>9} {warm.wall_s:>6.2f} {per_rank:>8.1f}", flush=True)
            shutil.rmtree(folder)


if __name__ == "__main__":
    main([int(count) for count in sys.argv[1:]] or [256, 512, 1024])
