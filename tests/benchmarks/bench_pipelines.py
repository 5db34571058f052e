"""Record pipelines whose stages sleep for known times; print the bubble beside that of the schedule, and heavy stages.

Usage: python -m tests.benchmarks.bench_pipelines [--ranks 2 4] [--micro-batches 4 8] [--ms 25] [--folder FOLDER]

Each schedule is recorded with equal stages, and with one stage 30 % heavier. `schedule` is the ideal bubble of the
replay of its own order, `imbalance` what the heavy stage adds to it. With equal stages the measured bubble should be
within 3 points of the schedule's; of a heavy stage the excess within 10 % of 30 %. As root the ranks have real-time
priority: they sleep nearly all the time, and what else the machine does would delay them when they wake up.
"""

import argparse
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

import perfkit
from perfkit.records.per_run.pipeline import Pipeline
from tests.support.processes.sleeping_pipeline import install, record

_SCHEDULES: Final = {"gpipe": 1, "1f1b": 1, "interleaved": 2, "zero-bubble": 2}
"""With their stages per rank."""
_FACTOR: Final = 1.3
_POINTS: Final = 0.03


def _recorded(folder: Path, schedule: str, ranks: int, batches: int, each_ms: float, heavy: int | None) -> Pipeline:
    """Record and analyze one pipeline; `heavy` is the stage that takes longer."""
    options = f"--pp-schedule {schedule} --micro-batches {batches} --batch-size {batches}"
    options += "".join(f" --{part}-ms {each_ms}" for part in ("forward", "input", "weight"))
    options += f" --layers {ranks * _SCHEDULES[schedule]}"
    if heavy is not None:
        options += f" --heavy-stage {heavy} --heavy-factor {_FACTOR}"
    name = f"{schedule}-{ranks}-{batches}-{heavy}"
    (run,) = perfkit.analyze(record(folder, {name: options}, ranks=ranks)[name]).runs
    (found,) = run.pipelines
    return found


def _line(schedule: str, found: Pipeline, heavy: int | None) -> str:
    imbalance = sum(rank.imbalance_ns or 0 for rank in found.ranks) / sum(rank.wall_ns for rank in found.ranks)
    named = {one.stage: one.excess for one in found.heavy.all} if found.heavy else {}
    ideal = found.ideal_share or 0.0
    if heavy is None:
        right = not named and abs(found.bubble_share - ideal) <= _POINTS
    else:
        right = [*named] == [heavy] and abs(named[heavy] / (_FACTOR - 1) - 1) <= 0.1
    shares = "".join(f"{100 * share:11.1f} %" for share in (ideal, imbalance, found.bubble_share))
    excess = ", ".join(f"stage {stage} +{100 * more:.1f} %" for stage, more in named.items()) or "-"
    return f"{schedule:<12}{found.stages:>7}{found.micro_batches:>9}{shares}  {'' if right else 'wrong: '}{excess}"


def main() -> None:
    """Record all pipelines and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4], help="ranks of the pipelines")
    parser.add_argument("--micro-batches", type=int, nargs="+", default=[4, 8])
    parser.add_argument("--ms", type=float, default=25.0, help="forward, and each half of backward, of a layer")
    parser.add_argument("--folder", type=Path, help="keep the runs here")
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    install(folder)
    print(f"{'':<12}{'stages':>7}{'batches':>9}{'schedule':>13}{'imbalance':>13}{'measured':>13}  heavy")
    for ranks in given.ranks:
        for batches in given.micro_batches:
            for schedule in _SCHEDULES:
                for heavy in (None, ranks // 2):
                    found = _recorded(folder, schedule, ranks, batches, given.ms, heavy)
                    print(f"{_line(schedule, found, heavy)}  (load {os.getloadavg()[0]:.0f})", flush=True)
    if not given.folder:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
