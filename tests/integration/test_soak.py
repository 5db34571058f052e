"""Long runs: memory and descriptors stay flat over steps and cycles, every trace is readable.

`tests.benchmarks.bench_soak` has runs of hours.
"""

import ctypes
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import NamedTuple

import pytest

import perfkit
from perfkit.storage.run_folder import read_manifest
from tests.support.processes.launching import ROOT, environment

CYCLES, STEPS_PER_CYCLE, ACTIVE = 8, 20, 4
STEPS_PER_SAMPLE = 10
HEAP_OF_RUN = str(ROOT / "tests" / "support" / "processes" / "heap_of_run.py")
FULL_AT = 80
"""Steps after which torch's record of collectives is full."""
HEAP_BYTES_PER_STEP = 1_000
"""Limit of the slope of what malloc has given out: perfkit's own records are some 50 bytes per step."""


class Sample(NamedTuple):
    """What a process holds after a step."""

    step: int
    heap_bytes: int
    descriptors: int


def samples(options: list[str]) -> list[Sample]:
    """Run a workload; return what it holds after every so many steps."""
    ended = subprocess.run(
        [sys.executable, HEAP_OF_RUN, str(STEPS_PER_SAMPLE), "run", *options, "--threads", "1", "--no-report"],
        env=environment(),
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert ended.returncode == 0, ended.stderr
    seen = [line.split()[1:] for line in ended.stderr.splitlines() if line.startswith("heap ")]
    return [Sample(*map(int, words)) for words in seen]


def slope(seen: list[Sample]) -> float:
    """Return the bytes per step, from the medians of the first and the last third."""
    third = len(seen) // 3
    (begin, low), (end, high) = (
        (median(one.step for one in part), median(one.heap_bytes for one in part))
        for part in (seen[:third], seen[-third:])
    )
    return (high - low) / (end - begin)


@pytest.mark.slow  # a leak shows only after many cycles
@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="no glibc of 2.33 or later")
def test_memory_and_descriptors_do_not_grow_with_the_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # torch keeps its last 2,000 collectives, and in runs that record traces perfkit lets it keep more: that many are
    # reached soon with a bucket for each parameter, 34 in a step. What still grows then is a leak.
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "2000")
    sizes = ["--d-model", "512", "--encoder-layers", "1", "--decoder-layers", "1", "--target-length", "4"]
    schedule = f"wait={STEPS_PER_CYCLE - 1 - ACTIVE},warmup=1,active={ACTIVE},repeat={CYCLES}"
    cycles = ["--schedule", schedule, "--steps", str(STEPS_PER_CYCLE * CYCLES + 1)]
    place = ["--trace-dir", str(tmp_path), "--name", "soak"]
    seen = samples(["transformer", *sizes, "--batch-size", "2", "--bucket-cap-mb", "0.001", *cycles, *place])
    late = [one for one in seen if one.step > FULL_AT]
    print(f"{slope(late):.0f} bytes per step: {seen}")
    assert slope(late) < HEAP_BYTES_PER_STEP
    third = len(seen) // 3
    least = [min(one.descriptors for one in part) for part in (seen[:third], seen[-third:])]
    assert least[1] <= least[0]  # more are open while a trace is written
    folder = tmp_path / "soak"
    assert len([file for file in read_manifest(folder).files if file.kind == "trace"]) == CYCLES
    (run,) = perfkit.analyze(folder).runs
    assert len(run.ranks[0].steps) == ACTIVE * CYCLES
    # A busy machine has slow steps now and then; what a damaged or an incomplete trace would say must be absent.
    assert {finding.code for finding in run.findings if finding.severity != "info"} <= {"slow_steps"}
