"""How fast, and in how much memory, a trace is analysed, against others on the same bytes.

    python -m tests.benchmarks.bench_trace --megabytes 500 ../shared/traces/nccl-metadata-1of2/rank0.json.gz

The trace is made as large as asked by repeating a real one. Each side is a process of its own, start included, pinned
to one core (or two, where it says so); of several rounds the least of each figure counts. Ratios are to perfkit on the
plain file; memory is the peak of the process. HolisticTraceAnalysis is installed into `.venv/hta` on the first run
(about 400 MB), unless `--no-hta`.
"""

import argparse
import gzip
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Final, NamedTuple

from tests.benchmarks.make_trace import repeat

_HTA: Final = Path(".venv/hta")

_JSON: Final = "import json, sys; json.loads(open(sys.argv[1], 'rb').read())"
_FLOOR: Final = """
import sys
from isal import igzip
with igzip.open(sys.argv[1]) as file:
    while piece := file.read(1 << 20):
        piece.count(b"}")
"""
_BREAKDOWN: Final = """
import sys
from hta.trace_analysis import TraceAnalysis
print(TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="/").get_temporal_breakdown(visualize=False))
"""


class Cost(NamedTuple):
    """What one process took."""

    wall_s: float
    cpu_s: float
    peak_mb: float


def main() -> None:
    """Measure every side and print a table."""
    arguments = parse()
    with tempfile.TemporaryDirectory(dir=arguments.dir) as folder:
        plain, packed = Path(folder, "rank0.json"), Path(folder, "rank0.json.gz")
        size = repeat(arguments.source, arguments.megabytes * 1_000_000, plain)
        with plain.open("rb") as source, gzip.open(packed, "wb", 6) as target:
            shutil.copyfileobj(source, target, 1 << 20)
        print(f"{size / 1e6:.0f} MB of JSON, {packed.stat().st_size / 1e6:.0f} MB as gzip\n")
        table(measure_all(plain, packed, arguments), size)


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, nargs="?", help="a trace to repeat [a sample of this repository]")
    parser.add_argument("--megabytes", type=int, default=100, help="of JSON")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--dir", default=None, help="where to write the trace")
    parser.add_argument("--no-hta", action="store_true", help="leave HolisticTraceAnalysis out")
    parser.add_argument("--no-json", action="store_true", help="leave json.loads out (it needs 5 bytes a byte)")
    arguments = parser.parse_args()
    arguments.source = arguments.source or next(iter(sorted(Path("traces").glob("sample-*/rank0*.json.gz"))))
    return arguments


def measure_all(plain: Path, packed: Path, arguments: argparse.Namespace) -> dict[str, Cost]:
    """Return the cost of each side; in turns, so that a busy minute hits all of them, and the least of each figure."""
    analyze = [sys.executable, "-m", "perfkit", "analyze", "-f", "json", "-o", os.devnull]
    sides: dict[str, tuple[list[str | Path], int]] = {
        "perfkit": ([*analyze, plain], 1),
        "perfkit, 2 cores": ([*analyze, plain], 2),
        "perfkit, gzip": ([*analyze, packed], 1),
        "perfkit, gzip, 2 cores": ([*analyze, packed], 2),
        "floor: igzip and a pass": ([sys.executable, "-c", _FLOOR, packed], 1),
    }
    if not arguments.no_json:
        sides["json.loads alone"] = ([sys.executable, "-c", _JSON, plain], 1)
    rounds = [{name: run(*side) for name, side in sides.items()} for _ in range(arguments.repeats)]
    costs = {name: least([one[name] for one in rounds]) for name in sides}
    if not arguments.no_hta:
        costs["HTA 0.5.0"] = run([hta_python(), "-c", _BREAKDOWN, plain], 1)
    return costs


def hta_python() -> Path:
    """Return the interpreter of an environment with HolisticTraceAnalysis; make it where there is none."""
    python = _HTA / "bin" / "python"
    if not (_HTA / "bin" / "pytest").exists():
        subprocess.run([sys.executable, "-m", "venv", _HTA], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "HolisticTraceAnalysis==0.5.0"], check=True)
    return python


def least(costs: list[Cost]) -> Cost:
    """Return the smallest of each figure."""
    return Cost(*(min(figures) for figures in zip(*costs, strict=True)))


def run(command: list[str | Path], cores: int) -> Cost:
    """Run a command on so many cores and return what it took.

    Raises:
        SystemExit: it failed.
    """
    allowed = sorted(os.sched_getaffinity(0))[:cores]
    started = perf_counter()
    process = subprocess.Popen(
        list(map(str, command)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: os.sched_setaffinity(0, allowed),
    )
    _, status, usage = os.wait4(process.pid, 0)
    wall_s = perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(map(str, command))[:200]} failed ({process.returncode})")
    return Cost(wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def table(costs: dict[str, Cost], size: int) -> None:
    """Print the costs and their ratios to perfkit's."""
    base = costs["perfkit"]
    print(f"{'':26}{'wall s':>9}{'CPU s':>9}{'MB/s':>8}{'peak MB':>9}   {'wall':>7}{'CPU':>7}{'memory':>8}")
    for name, cost in costs.items():
        ratios = (cost.wall_s / base.wall_s, cost.cpu_s / base.cpu_s, cost.peak_mb / base.peak_mb)
        print(
            f"{name:26}{cost.wall_s:9.2f}{cost.cpu_s:9.2f}{size / 1e6 / cost.wall_s:8.0f}{cost.peak_mb:9.0f}   "
            + "".join(f"{ratio:{width}.2f}" for ratio, width in zip(ratios, (7, 7, 8), strict=True))
        )


if __name__ == "__main__":
    main()
