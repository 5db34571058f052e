"""How memory grows over the steps of long runs, at the default batch of the workloads.

Usage: python -m tests.benchmarks.bench_soak [--workloads gpt transformer] [--ranks 1 2] [--forms loop script]
    [--profiler cycles none] [--steps 2000] [--skip-products]

Each row is a run. `loop` is a loop in `perfkit.profile` or, without the profiler, in `perfkit.monitor`. `script` is
an unchanged script under `perfkit run`, recorded in cycles or, with `--no-profile`, in `--monitor`. The growth is the
slope of the bytes that malloc has given out (Theil and Sen's: the median over all pairs) over the last 60 % of the
steps, of the rank where it is largest; that of the resident memory contains what allocators keep. torch's record of
collectives is limited to 200 entries, which the first steps fill: until it is full it grows by 1.3 kB per collective.
`transformer` takes an hour with two ranks on two cores; `--skip-products` a third of that
(`tests/support/processes/soaked_training.py`).
"""

import argparse
import subprocess
import sys
import tempfile
import time
from itertools import combinations, product
from pathlib import Path
from statistics import median
from typing import Final

from tests.support.processes.launching import PYTHON, ROOT, environment

EVERY: Final = 20
WARM_UP: Final = 0.4
"""Share of the steps before growth is measured."""
STEPS_PER_CYCLE: Final = 40
_PROGRAM: Final = ROOT / "tests" / "support" / "processes" / "soaked_training.py"


def main() -> None:
    """Print one row per run."""
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    parser.add_argument("--workloads", nargs="+", default=["gpt", "transformer"])
    parser.add_argument("--ranks", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--forms", nargs="+", default=["loop", "script"], choices=["loop", "script"])
    parser.add_argument("--profiler", nargs="+", default=["cycles", "none"], choices=["cycles", "none"])
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--skip-products", action="store_true")
    parser.add_argument("--raw", type=Path, help="a folder for what each run printed")
    chosen = parser.parse_args()
    print(
        f"{'workload':12} {'ranks':>5} {'form':6} {'profiler':8} {'steps':>6} {'minutes':>7}"
        f" {'bytes per step':>14} {'resident':>9} {'MB in use at the end':>21}",
        flush=True,
    )
    for workload, ranks, form, profiler in product(chosen.workloads, chosen.ranks, chosen.forms, chosen.profiler):
        with tempfile.TemporaryDirectory() as folder:
            command = _command(workload, ranks, form, profiler, chosen, folder)
            begin = time.monotonic()
            ended = subprocess.run(
                command,
                env={**environment(), "TORCH_FR_BUFFER_SIZE": "200", "PYTHONPATH": str(ROOT)},
                stderr=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                text=True,
                cwd=ROOT,
            )
            minutes = (time.monotonic() - begin) / 60
        if chosen.raw is not None:
            (chosen.raw / f"{workload}-{ranks}-{form}-{profiler}.txt").write_text(ended.stderr)
        if ended.returncode:
            sys.exit(f"{' '.join(command)}: exit {ended.returncode}\n{ended.stderr[-2000:]}")
        growth, resident, in_use = _judge(ended.stderr)
        print(
            f"{workload:12} {ranks:5} {form:6} {profiler:8} {chosen.steps:6} {minutes:7.1f}"
            f" {growth:14.0f} {resident:9.0f} {in_use / 1e6:21.1f}",
            flush=True,
        )


def _command(workload: str, ranks: int, form: str, profiler: str, chosen: argparse.Namespace, folder: str) -> list[str]:
    own = [workload, str(chosen.steps), str(EVERY)] + ["--skip-products"] * chosen.skip_products
    cycles = chosen.steps // STEPS_PER_CYCLE
    schedule = f"wait={STEPS_PER_CYCLE - 2},warmup=1,active=1,repeat={cycles}"
    if form == "loop":
        own += ["--loop", f"{folder}/soak", *(["--schedule", schedule] if profiler == "cycles" else [])]
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        return [sys.executable, *launcher, str(_PROGRAM), *own]
    recorded = ["--schedule", schedule] if profiler == "cycles" else ["--no-profile", "--monitor"]
    options = ["-n", str(ranks), "--trace-dir", folder, "--no-report", *recorded]
    return [*PYTHON, "run", str(_PROGRAM), *options, "--", *own]


def _judge(printed: str) -> tuple[float, float, int]:
    """Return the growth of malloc's and of the resident bytes per step, and malloc's bytes at the end."""
    rows: dict[int, list[tuple[int, int, int]]] = {}
    for line in printed.splitlines():
        if line.startswith("heap "):
            rank, *row = map(int, line.split()[1:])
            rows.setdefault(rank, []).append((row[0], row[1], row[2]))
    late = [[row for row in of_rank if row[0] > WARM_UP * of_rank[-1][0]] for of_rank in rows.values()]
    growth = max(_slope([(step, heap) for step, heap, _ in part]) for part in late)
    resident = max(_slope([(step, size) for step, _, size in part]) for part in late)
    return growth, resident, max(part[-1][1] for part in late)


def _slope(points: list[tuple[int, int]]) -> float:
    return median((high - low) / (end - begin) for (begin, low), (end, high) in combinations(points, 2))


if __name__ == "__main__":
    main()
