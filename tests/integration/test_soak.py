"""Long runs: memory and descriptors stay flat over steps and cycles, every trace is readable.

`PERFKIT_SOAK_CYCLES` makes the first longer; `tests.benchmarks.bench_soak` has runs of hours.
"""

import ctypes
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import pytest

import perfkit
from perfkit.storage.run_folder import read_manifest
from tests.support.processes.launching import PYTHON, ROOT, environment

CYCLES = int(os.environ.get("PERFKIT_SOAK_CYCLES", "24"))
STEPS_PER_CYCLE = 10
SIZES = {"layers": 1, "width": 32, "heads": 2, "block": 16, "batch-size": 4, "vocab-size": 64, "samples": 256}
GROWTH = 0.05
"""Limit of the relative growth of resident memory from the second third of the run to the last; noise is far below."""

HEAP_OF_RUN = str(ROOT / "tests" / "support" / "processes" / "heap_of_run.py")
STEPS_PER_HEAP = 10
FULL_AT = 80
"""Steps after which torch's record of collectives is full."""
HEAP_BYTES_PER_STEP = 1_000
"""Limit of the slope of what malloc has given out: perfkit's own records are some 50 bytes per step."""

pytestmark = pytest.mark.slow  # a leak shows only after many cycles


def sample(pid: int) -> tuple[int, int] | None:
    """Return the resident pages and the open descriptors of a process; None once it has ended."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return pages, len(list(Path(f"/proc/{pid}/fd").iterdir()))
    except (OSError, IndexError):
        return None


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="no /proc")
def test_memory_and_descriptors_stay_flat_over_many_cycles(tmp_path: Path) -> None:
    sizes = [word for name, value in SIZES.items() for word in (f"--{name}", str(value))]
    schedule = f"wait=0,warmup=0,active={STEPS_PER_CYCLE},repeat={CYCLES}"
    steps = str(STEPS_PER_CYCLE * CYCLES + 1)
    options = ["--schedule", schedule, "--steps", steps, "--name", "soak", "--threads", "1"]
    process = subprocess.Popen(
        [*PYTHON, "run", "gpt", *sizes, *options, "--trace-dir", str(tmp_path)],
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    )
    samples: list[tuple[int, int]] = []
    try:
        # Nothing reads the pipe meanwhile: a run of this length writes 10 KiB to it, less than it holds.
        while process.poll() is None:
            if len(list(tmp_path.glob("soak/rank0.cycle*.json.gz"))) > CYCLES / 10:
                seen = sample(process.pid)
                samples += [seen] if seen else []
            time.sleep(0.05)
    finally:
        process.kill()
        _, errors = process.communicate()
    assert process.returncode == 0, errors
    pages, descriptors = zip(*samples[:-2], strict=True)  # without the end of the run
    third = len(pages) // 3
    assert third >= 10
    # Allocators still warm up in the first third; a leak goes on after it.
    before, after = median(pages[third : 2 * third]), median(pages[-third:])
    print(f"{len(pages)} samples: {median(pages[:third])}, {before}, {after} pages; descriptors {set(descriptors)}")
    assert after < before * (1 + GROWTH)
    assert min(descriptors[-third:]) <= min(descriptors[:third])  # more are open while a trace is written
    folder = tmp_path / "soak"
    manifest = read_manifest(folder)
    assert len([file for file in manifest.files if file.kind == "trace"]) == CYCLES
    (run,) = perfkit.analyze(folder).runs
    assert len(run.ranks[0].steps) == STEPS_PER_CYCLE * CYCLES
    # A busy machine has slow steps now and then; what a damaged or an incomplete trace would say must be absent.
    assert {finding.code for finding in run.findings if finding.severity != "info"} <= {"slow_steps"}


def heap_at_steps(every: int, arguments: list[str]) -> list[tuple[int, int]]:
    """Run a workload; return the bytes that malloc has given out after every so many steps."""
    ended = subprocess.run(
        [sys.executable, HEAP_OF_RUN, str(every), "run", *arguments, "--threads", "1", "--no-report"],
        env=environment(),
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert ended.returncode == 0, ended.stderr
    seen = [line.split()[1:] for line in ended.stderr.splitlines() if line.startswith("heap ")]
    return [(int(step), int(size)) for step, size in seen]


def slope(seen: list[tuple[int, int]]) -> float:
    """Return the bytes per step, from the medians of the first and the last third."""
    third = len(seen) // 3
    (begin, low), (end, high) = (
        (median(step for step, _ in part), median(size for _, size in part)) for part in (seen[:third], seen[-third:])
    )
    return (high - low) / (end - begin)


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="no glibc of 2.33 or later")
@pytest.mark.parametrize("recorded", [["--no-profile"], ["--schedule", "wait=15,warmup=1,active=4,repeat=10"]])
def test_the_heap_does_not_grow_with_the_steps(
    recorded: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # torch keeps its last 2,000 collectives, and in runs that record traces perfkit lets it keep more: that many are
    # reached soon with a bucket for each parameter, 34 in a step. What still grows then is a leak.
    if recorded != ["--no-profile"]:
        monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "2000")
    sizes = ["--d-model", "512", "--encoder-layers", "1", "--decoder-layers", "1", "--target-length", "4"]
    options = ["--batch-size", "2", "--bucket-cap-mb", "0.001", "--steps", "160", "--trace-dir", str(tmp_path)]
    seen = heap_at_steps(STEPS_PER_HEAP, ["transformer", *sizes, *options, *recorded])
    late = [(step, size) for step, size in seen if step > FULL_AT]
    print(f"{slope(late):.0f} bytes per step: {seen}")
    assert slope(late) < HEAP_BYTES_PER_STEP
