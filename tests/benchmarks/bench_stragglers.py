"""Record training runs with known delays; print how many stragglers perfkit finds, with which size, and whom it blames.

Usage: python -m tests.benchmarks.bench_stragglers [--runs 96] [--ranks 2 4] [--seed 1] [--busy 2] [--real 20]
           [--folder FOLDER]

Every set is recorded twice: `quiet`, with ranks at real-time priority (as root; else left out), and `busy N`, at normal
priority beside N processes that only compute (`--busy`; one per core if not given). On a machine that does nothing else
this is a defined load. The load average is printed, so a set that was recorded beside more can be told. The set `real`
is of `perfkit run gpt` on two ranks that compute, without a delay: where ranks fill the cores, one may really be late.
Right is a run whose delayed ranks are named, with their pattern, and nobody else; its size is right within 20 %.
Blamed is somebody in a run without a delay; falsely, if Linux does not show that each rank named waited for a core so
much longer than the others that this explains at least half of its lag: in `busy N` some ranks really are late.
Targets: quiet 98 % right, 95 % of those with the right size, 1 % of the runs without a delay blaming somebody falsely;
busy 80 % and 5 %.
"""

import argparse
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import perfkit
from perfkit.records.cross_rank import Straggler
from tests.support.processes.delayed_jobs import Delay, Job, make_jobs, read_core_waits
from tests.support.processes.launching import in_real_time
from tests.support.processes.ports import free_port

_TOLERANCE: Final = 0.2
_EXPLAINED: Final = 0.5
"""Share of a lag from which waiting for a core explains it."""
_BUSY: Final = "while True: pass"
_ROOT: Final = Path(__file__).parents[2]


class Score(NamedTuple):
    """How the runs of a set were judged."""

    delayed: int
    right: int
    sized: int
    quiet: int
    blamed: int
    falsely: int

    def __str__(self) -> str:
        return (
            f"{_share(self.right, self.delayed):>16} {_share(self.sized, self.right):>16} "
            f"{_share(self.blamed, self.quiet):>16} {_share(self.falsely, self.quiet):>16}"
        )


def _share(part: int, whole: int) -> str:
    return f"{part}/{whole} {100 * part / whole:.1f} %" if whole else "-"


def named_right(delay: Delay, stragglers: Sequence[Straggler], ranks: int) -> bool:
    """Return whether exactly the delayed ranks are named, with their pattern."""
    late = tuple(range(ranks)) if delay.in_turns else delay.ranks
    every = ranks if delay.in_turns else delay.every
    return tuple(sorted(row.rank for row in stragglers)) == late and all(
        (row.every, row.in_turns) == (every, delay.in_turns) for row in stragglers
    )


def kept_from_core(folder: Path, stragglers: Sequence[Straggler], ranks: int) -> bool:
    """Return whether every rank that is named waited for a core by at least half its lag longer than the others."""
    waits = read_core_waits(folder, ranks)
    return bool(waits) and all(
        median(
            own - median(other for rank, other in enumerate(step) if rank != row.rank)
            for own, step in zip(waits[row.rank], zip(*waits, strict=True), strict=True)
        )
        >= _EXPLAINED * row.lag_ns
        for row in stragglers
    )


def score(folder: Path, jobs: Sequence[Job], ranks: int) -> Score:
    """Analyse recorded jobs, print those that are judged wrongly, and count."""
    delayed = right = sized = quiet = blamed = falsely = 0
    for job in jobs:
        (run,) = perfkit.analyze(folder / job.name).runs
        stragglers = run.cross_rank.stragglers if run.cross_rank else []
        if job.delay is None:
            quiet, blamed = quiet + 1, blamed + bool(stragglers)
            wrong = bool(stragglers) and not kept_from_core(folder / job.name, stragglers, ranks)
            falsely += wrong
        else:
            wrong = not named_right(job.delay, stragglers, ranks)
            delayed, right = delayed + 1, right + (not wrong)
            seconds = job.delay.seconds
            sized += not wrong and all(abs(row.lag_ns / 1e9 / seconds - 1) <= _TOLERANCE for row in stragglers)
        if wrong:
            found = [finding.message for finding in run.findings if finding.code == "straggler"]
            print(f"  {job.name}, {job.steps} steps, {job.delay or 'no delay'}: {found or 'nobody named'}")
    return Score(delayed, right, sized, quiet, blamed, falsely)


def record(folder: Path, jobs: Sequence[Job], ranks: int, prefix: Sequence[str]) -> None:
    """Run all jobs one after the other, in one process per rank."""
    (folder / "jobs").write_bytes(pickle.dumps(list(jobs)))
    port = str(free_port())
    module = "tests.support.processes.delayed_training"
    started = [
        subprocess.Popen(
            [*prefix, sys.executable, "-m", module, str(rank), str(ranks), port, str(folder / "jobs"), str(folder)],
            cwd=_ROOT,
            stderr=subprocess.DEVNULL,
        )
        for rank in range(ranks)
    ]
    codes = [process.wait() for process in started]
    if any(codes):
        raise SystemExit(f"ranks ended with {codes}")


def record_real(folder: Path, count: int) -> list[Job]:
    """Record `perfkit run` without a delay, `count` times; return the jobs."""
    jobs = [Job(name=f"real-{number}", steps=9, layers=2, bucket_mb=25.0, jitter=0.0) for number in range(count)]
    options = ["--preset", "tiny", "-n", "2", "--threads", "1", "--schedule", "wait=3,warmup=1,active=9"]
    for job in jobs:
        command = [sys.executable, "-m", "perfkit", "run", "gpt", *options, "--steps", "13"]
        subprocess.run(
            [*command, "--trace-dir", str(folder), "--name", job.name], check=True, capture_output=True, cwd=_ROOT
        )
    return jobs


@contextmanager
def beside(busy: int) -> Iterator[None]:
    """Run processes that only compute."""
    started = [subprocess.Popen([sys.executable, "-c", _BUSY]) for _ in range(busy)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def sets(busy: int) -> Iterator[tuple[str, Sequence[str], int]]:
    """Yield the sets with the command that starts a rank, and how many busy processes run beside the ranks."""
    if in_real_time():
        yield "quiet", in_real_time(), 0
    yield f"busy {busy}", (), busy


def main() -> None:
    """Print a row per set and number of ranks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--runs",
        type=int,
        default=96,
        help="runs per set; half of them have a delay: 96 have each size of it equally often",
    )
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--busy", type=int, default=os.cpu_count(), help="processes that only compute beside the ranks")
    parser.add_argument("--folder", type=Path, help="where to keep the traces")
    parser.add_argument("--real", type=int, default=20, help="real runs without a delay")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        os.environ.setdefault("PERFKIT_CACHE_DIR", f"{scratch}/cache")
        for ranks in options.ranks:
            jobs = make_jobs(ranks, options.runs, options.seed + ranks)
            for name, prefix, busy in sets(options.busy):
                folder = (options.folder or Path(scratch)) / f"{name.replace(' ', '')}-{ranks}"
                folder.mkdir(parents=True)
                with beside(busy):
                    record(folder, jobs, ranks, prefix)
                show(name, ranks, folder, jobs)
        if options.real:
            folder = (options.folder or Path(scratch)) / "real"
            show("real", 2, folder, record_real(folder, options.real))


def show(name: str, ranks: int, folder: Path, jobs: Sequence[Job]) -> None:
    """Analyse a recorded set and print its row."""
    load = os.getloadavg()[0]
    judged = score(folder, jobs, ranks)
    print(f"{'set':>7} {'ranks':>5} {'load':>5} {'right':>16} {'size of those':>16} {'blamed':>16} {'falsely':>16}")
    print(f"{name:>7} {ranks:>5} {load:>5.1f} {judged}", flush=True)


if __name__ == "__main__":
    main()
