"""Whether the steps that a report calls 'without the profiler' are as long as those of a run that never had one.

Usage: python -m tests.benchmarks.bench_profiler_cost [PAIRS]

Each pair is a run of gpt that records 12 of its 40 steps and one with --no-profile, in turn. The ratio is that of their
median warm steps without the profiler: 1 if the profiler leaves nothing behind where it does not record. Beside it is
what the report says recording costs.
"""

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import perfkit
from perfkit.records.run import ProfilerCost
from perfkit.storage.run_folder import read_manifest
from tests.support.processes.launching import PYTHON, environment

STEPS: Final = 40
_GPT: Final = ("gpt", "--samples", "4096", "--steps", str(STEPS), "--threads", "1", "--no-report")
_RECORD: Final = ("--schedule", "wait=7,warmup=1,active=12", "--record-shapes")


def main(pairs: int) -> None:
    """Print one row per pair, and the median of their ratios."""
    print(f"{'plain ms':>9} {'never ms':>9} {'ratio':>6}  cost that the report states")
    ratios = []
    for _ in range(pairs):
        with tempfile.TemporaryDirectory() as scratch:
            cost, never_ns = _pair(Path(scratch))
        plain_ns = cost.plain_step_ns or 0
        ratios.append(plain_ns / never_ns)
        stated = cost.reason or f"{(cost.added_ns or 0) / 1e6:+.2f} ms"
        print(f"{plain_ns / 1e6:9.2f} {never_ns / 1e6:9.2f} {ratios[-1]:6.3f}  {stated}", flush=True)
    print(f"median ratio {statistics.median(ratios):.3f}, from {min(ratios):.3f} to {max(ratios):.3f}")


def _pair(scratch: Path) -> tuple[ProfilerCost, float]:
    """Return what a recorded run says of the profiler, and the median warm step of a run without it (ns)."""
    _train(scratch, "recorded", *_RECORD)
    _train(scratch, "never", "--no-profile")
    (report,) = perfkit.analyze(scratch / "recorded").runs
    assert report.profiler_cost is not None
    return report.profiler_cost, statistics.median(read_manifest(scratch / "never").ranks[0].step_wall_ns[1:])


def _train(scratch: Path, name: str, *options: str) -> None:
    command = [*PYTHON, "run", *_GPT, *options, "--trace-dir", str(scratch), "--name", name]
    subprocess.run(command, check=True, env=environment(), capture_output=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
