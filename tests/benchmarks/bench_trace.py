"""Speed and memory of analysing a trace, compared with other tools on the same bytes.

    python -m tests.benchmarks.bench_trace --megabytes 500 --also 50 2000 rank0.json.gz

The trace is made as large as asked by repeating one: a real one, or one that is made up. Each side is a process of its
own, start-up included, pinned to one core (or two, if stated); of several rounds the minimum of each figure counts.
Ratios are to perfkit's full report of the plain file; memory is the peak of the process. The breakdown alone is
`--section ranks`, the short answer what `perfkit analyze` prints; the small trace is `traces/sample-hdf5`. Python may
cache its bytecode, as it does where perfkit is installed, whatever PYTHONDONTWRITEBYTECODE says here.
HolisticTraceAnalysis is installed into `.venv/hta` on the first run (about 400 MB), unless `--no-hta`; it runs once,
for about a minute at 500 MB. Behind the table stands what was aimed at, and whether this run reached it.
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

from tests.benchmarks.gpu_trace import write_gpu_trace
from tests.benchmarks.make_trace import repeat

_HTA: Final = Path(".venv/hta")
_HTA_SIDE: Final = "HTA 0.5.0"
_JSON_LOADS: Final = "json.loads alone"

_BREAKDOWN_ALONE: Final = "perfkit, breakdown alone"
_ANSWER: Final = "perfkit, short answer"
_SMALL: Final = "perfkit, small trace"

_ENVIRONMENT: Final = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
_ANSWERED: Final = [sys.executable, "-m", "perfkit", "analyze", "--no-cache"]
ANALYZE: Final = [*_ANSWERED, "-f", "json", "-o", os.devnull]

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
_COUNT: Final = """
import sys
from pathlib import Path
from perfkit.trace.reader import read_trace
print(len(read_trace(Path(sys.argv[1])).events.kind))
"""


class Cost(NamedTuple):
    """Cost of one process."""

    wall_s: float
    cpu_s: float
    peak_mb: float


class Sizes(NamedTuple):
    """Amount of data read, and its cost on one core."""

    json_mb: float
    events: int
    """Events that the analysis keeps."""
    cost: Cost


def main() -> None:
    """Measure every side and print the tables."""
    arguments = parse()
    with tempfile.TemporaryDirectory(dir=arguments.dir) as folder:
        plain, packed = Path(folder, "rank0.json"), Path(folder, "rank0.json.gz")
        arguments.source = arguments.source or write_gpu_trace(Path(folder, "made-up.json.gz"))
        size = repeat(arguments.source, arguments.megabytes * 1_000_000, plain)
        with plain.open("rb") as source, gzip.open(packed, "wb", 6) as target:
            shutil.copyfileobj(source, target, 1 << 20)
        packed_mb = packed.stat().st_size / 1e6
        print(f"{arguments.source.name}, repeated: {size / 1e6:.0f} MB of JSON, {packed_mb:.0f} MB as gzip\n")
        costs = measure_all(plain, packed, arguments)
        table(costs, size)
        sizes = [Sizes(size / 1e6, events_kept(plain), costs["perfkit"])]
        packed.unlink()
        for megabytes in arguments.also:
            size = repeat(arguments.source, megabytes * 1_000_000, plain)
            cost = least([run([*ANALYZE, plain], 1) for _ in range(arguments.repeats)])
            sizes.append(Sizes(size / 1e6, events_kept(plain), cost))
    sizes.sort()
    table_of_sizes(sizes)
    table_of_targets(targets(costs, sizes))


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, nargs="?", help="a trace to repeat [default: a synthetic GPU trace]")
    parser.add_argument("--megabytes", type=int, default=100, help="size of JSON to compare all tools on")
    parser.add_argument(
        "--also", type=int, nargs="*", default=[50], help="further sizes in megabytes for perfkit alone [50]"
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--dir", default=None, help="where to write the trace")
    parser.add_argument("--no-hta", action="store_true", help="skip HolisticTraceAnalysis")
    parser.add_argument("--no-json", action="store_true", help="skip json.loads (it needs 5 bytes of memory per byte)")
    return parser.parse_intermixed_args()


def measure_all(plain: Path, packed: Path, arguments: argparse.Namespace) -> dict[str, Cost]:
    """Return the cost of each tool: the minimum over interleaved runs, so that a busy minute affects all of them."""
    sides: dict[str, tuple[list[str | Path], int]] = {
        "perfkit": ([*ANALYZE, plain], 1),
        _BREAKDOWN_ALONE: ([*_ANSWERED, "--section", "ranks", plain], 1),
        _ANSWER: ([*_ANSWERED, plain], 1),
        _SMALL: ([*_ANSWERED, "traces/sample-hdf5"], 1),
        "perfkit, 2 cores": ([*ANALYZE, plain], 2),
        "perfkit, gzip": ([*ANALYZE, packed], 1),
        "perfkit, gzip, 2 cores": ([*ANALYZE, packed], 2),
        "floor: igzip and a pass": ([sys.executable, "-c", _FLOOR, packed], 1),
    }
    if not arguments.no_json:
        sides[_JSON_LOADS] = ([sys.executable, "-c", _JSON, plain], 1)
    rounds = [{name: run(*side) for name, side in sides.items()} for _ in range(arguments.repeats)]
    costs = {name: least([one[name] for one in rounds]) for name in sides}
    if not arguments.no_hta and (python := hta_python()):
        try:
            costs[_HTA_SIDE] = run([python, "-c", _BREAKDOWN, plain], 1)
        except subprocess.CalledProcessError:
            print("HolisticTraceAnalysis is skipped: it fails on this trace (as on those without a GPU)\n")
    return costs


def events_kept(trace: Path) -> int:
    """Return how many events of a trace the analysis keeps in memory."""
    done = subprocess.run([sys.executable, "-c", _COUNT, trace], stdout=subprocess.PIPE, check=True)
    return int(done.stdout)


def hta_python() -> Path | None:
    """Return the interpreter of an environment with HolisticTraceAnalysis; create it if missing.

    None if it cannot be installed, with a message.
    """
    python = _HTA / "bin" / "python"
    try:
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", _HTA], check=True)
        if subprocess.run([python, "-c", "import hta"], stderr=subprocess.DEVNULL, check=False).returncode:
            subprocess.run([python, "-m", "pip", "install", "-q", "HolisticTraceAnalysis==0.5.0"], check=True)
    except subprocess.CalledProcessError as error:
        print(f"HolisticTraceAnalysis is skipped: it cannot be installed into {_HTA} ({error})", file=sys.stderr)
        return None
    return python


def least(costs: list[Cost]) -> Cost:
    """Return the smallest of each figure."""
    return Cost(*(min(figures) for figures in zip(*costs, strict=True)))


def run(command: list[str | Path], cores: int) -> Cost:
    """Run a command on the given number of cores and return its cost.

    Raises:
        CalledProcessError: it failed.
    """
    allowed = sorted(os.sched_getaffinity(0))[:cores]
    started = perf_counter()
    process = subprocess.Popen(
        list(map(str, command)),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=_ENVIRONMENT,
        preexec_fn=lambda: os.sched_setaffinity(0, allowed),
    )
    _, status, usage = os.wait4(process.pid, 0)
    wall_s = perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return Cost(wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def table(costs: dict[str, Cost], size: int) -> None:
    """Print the costs and their ratios to perfkit's."""
    base = costs["perfkit"]
    print(f"{'':26}{'wall s':>9}{'CPU s':>9}{'MB/s':>8}{'peak MB':>9}   {'wall':>7}{'CPU':>7}{'memory':>8}")
    for name, cost in costs.items():
        if name == _SMALL:
            continue
        ratios = (cost.wall_s / base.wall_s, cost.cpu_s / base.cpu_s, cost.peak_mb / base.peak_mb)
        print(
            f"{name:26}{cost.wall_s:9.2f}{cost.cpu_s:9.2f}{size / 1e6 / cost.wall_s:8.0f}{cost.peak_mb:9.0f}   "
            + "".join(f"{ratio:{width}.2f}" for ratio, width in zip(ratios, (7, 7, 8), strict=True))
        )


def table_of_sizes(sizes: list[Sizes]) -> None:
    """Print perfkit's cost as the trace grows."""
    print(f"\n{'MB of JSON':>12}{'events kept':>13}{'wall s':>9}{'CPU s':>9}{'ms CPU/MB':>11}{'peak MB':>9}")
    for json_mb, events, cost in sizes:
        per_mb = 1000 * cost.cpu_s / json_mb
        print(f"{json_mb:12.0f}{events:13,}{cost.wall_s:9.2f}{cost.cpu_s:9.2f}{per_mb:11.2f}{cost.peak_mb:9.0f}")


class Target(NamedTuple):
    """A target."""

    what: str
    aim: float
    here: float
    cpu: float | None = None
    """The ratio of CPU times: more reliable on a busy machine."""
    at_least: bool = False


def targets(costs: dict[str, Cost], sizes: list[Sizes]) -> list[Target]:
    """Return the targets that these measurements cover."""
    base, alone, answer, small = (costs[side] for side in ("perfkit", _BREAKDOWN_ALONE, _ANSWER, _SMALL))
    smallest, largest = sizes[0], sizes[-1]
    found = []
    if hta := costs.get(_HTA_SIDE):
        found.append(_faster("HTA 0.5.0", 12, hta, base))
        found.append(_faster("HTA 0.5.0, breakdown alone", 18, hta, alone))
        found.append(Target("less memory than HTA 0.5.0, times", 10, hta.peak_mb / base.peak_mb, at_least=True))
    if loads := costs.get(_JSON_LOADS):
        found.append(_faster(_JSON_LOADS, 2.2, loads, base))
        found.append(_faster("json.loads, breakdown alone", 4.1, loads, alone))
    found.append(
        Target("short answer against breakdown, times", 1.2, answer.wall_s / alone.wall_s, answer.cpu_s / alone.cpu_s)
    )
    found.append(Target("small trace, start to prompt, s", 0.5, small.wall_s, small.cpu_s))
    found.append(Target("peak of the breakdown alone, MB", 120, alone.peak_mb))
    gzip_s, plain_s = costs["perfkit, gzip, 2 cores"].wall_s, costs["perfkit, 2 cores"].wall_s
    found.append(Target("gzip against plain on two cores, times", 1.15, gzip_s / plain_s))
    found.append(Target("peak, MB (120 + 0.35 a MB of JSON)", 120 + 0.35 * largest.json_mb, largest.cost.peak_mb))
    if len(sizes) > 1:
        more = largest.events - smallest.events
        # Start-up is not included.
        growth = (largest.cost.peak_mb - smallest.cost.peak_mb) * 2**20 / more
        found.append(Target("bytes an event kept", 64, growth))
        per_mb = (largest.cost.cpu_s / largest.json_mb) / (smallest.cost.cpu_s / smallest.json_mb)
        found.append(
            Target(f"CPU a MB at {largest.json_mb:.0f} MB against {smallest.json_mb:.0f} MB, times", 1, per_mb)
        )
    return found


def _faster(than: str, aim: float, other: Cost, base: Cost) -> Target:
    ratios = other.wall_s / base.wall_s, other.cpu_s / base.cpu_s
    return Target(f"faster than {than}, times", aim, *ratios, at_least=True)


def table_of_targets(found: list[Target]) -> None:
    """Print each target and whether it was reached."""
    print(f"\n{'':44}{'aim':>12}{'here':>9}{'by CPU':>9}")
    for what, aim, here, cpu, at_least in found:
        reached = here >= aim if at_least else here <= aim
        sign = ">=" if at_least else "<="
        by_cpu = "" if cpu is None else f"{cpu:.2f}"
        print(f"{what:44}{f'{sign} {aim:.4g}':>12}{here:9.2f}{by_cpu:>9}   {'reached' if reached else 'MISSED'}")


if __name__ == "__main__":
    main()
