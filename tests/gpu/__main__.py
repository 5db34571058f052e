"""Record what runs on one device with known faults, and print what perfkit says of it beside what is true.

Usage: python -m tests.gpu FOLDER [NAME ...]

FOLDER gets the runs, what was printed, and `table.md`. With torch's CPU build the same programs run in a small form:
that the check runs is then tested, not what it finds. On a GPU the whole takes five to nine minutes.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from tests.gpu.reading import read_shares

TRAIN: Final = str(Path(__file__).with_name("train.py"))
LIMIT_S: Final = 100
"""Of one program: one that hangs must not cost the time of the others."""
FAULTS: Final = {
    "healthy": r"[Nn]othing large|[Cc]ompute",
    "item": r"check_finite",
    "small_kernels": r"scale_gradients",
    "loop_optimizer": r"foreach|fused|optimizer|adam",
    "retries": r"cudaMalloc|cudaFree|empty_cache|alloc",
    "pageable": r"pageable|pin",
    "loader": r"tokenize",
    "gc": r"[Gg]arbage",
    "hook": r"slow_hook",
    "fragmentation": r"alloc|cudaMalloc|cudaFree",
    "checkpoint": r"[Cc]heckpoint|save",
    "compile": r"[Nn]othing large|[Cc]ompute",
    "graphs": r"[Nn]othing large|[Cc]ompute",
}
"""What the first screen is to say of each, as a pattern."""
NOT_TIMED: Final = ("compile", "graphs", "fragmentation")
"""What is not timed without the profiler: it would compile again, or needs the device's memory for itself."""
DEVICE: Final = "cuda" if torch.cuda.is_available() else "cpu"
GPT: Final = ("run", "gpt", "--precision", "bfloat16")
WORKLOADS: Final = {
    "gpt": GPT,
    "gpt_compile": (*GPT, "--compile"),
    "two_ranks": (
        *GPT,
        "-n",
        "2",
        "--device",
        DEVICE,
        "--backend",
        "gloo",
        "--inject",
        "rank=1,phase=backward,delay=20ms",
    ),
    "nccl": (*GPT, "--backend", "nccl"),
}


@dataclass(frozen=True)
class Answer:
    """What perfkit says of a run: first screen, report, and the largest difference to the independent reading."""

    screen: str
    report: dict[str, Any]
    off_by: float | None


def main(folder: Path, names: list[str]) -> None:
    """Record the named programs (all without a name), then write and print the table."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = names or [*FAULTS, *WORKLOADS]
    faults = [name for name in wanted if name in FAULTS and name not in NOT_TIMED]
    run([sys.executable, TRAIN, "--measure", ",".join(faults), "--folder", str(folder)], folder / "measure.txt")
    run([sys.executable, "-m", "tests.gpu.overhead", str(folder)], folder / "overhead.txt")
    run(perfkit("peaks", "--sizes", "4096", "--dtypes", "bfloat16,tf32"), folder / "peaks.txt")
    with ThreadPoolExecutor() as pool:
        answers = {name: pool.submit(answer, record(name, folder)) for name in wanted}
        rows = list(table(folder, answers))
    text = "\n".join(rows)
    (folder / "table.md").write_text(text + "\n")
    print(text)


def perfkit(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "perfkit", *arguments]


def record(name: str, folder: Path) -> Path:
    """Run one program under perfkit and return the run's folder."""
    program = WORKLOADS.get(name) or ("run", TRAIN)
    script = () if name in WORKLOADS else ("--", "--fault", name, "--folder", str(folder))
    options = ("--trace-dir", str(folder), "--name", name, "--no-report")
    run(perfkit(*program, *options, *script), folder / f"{name}.txt")
    return folder / name


def answer(path: Path) -> Answer:
    """Analyse one run twice, for people and as JSON, and read its traces independently."""
    screen = run(perfkit("analyze", str(path), "--no-cache"), path.with_suffix(".screen.txt"))
    text = run(perfkit("analyze", str(path), "--no-cache", "--json"), path.with_suffix(".json"))
    report = json.loads(text)["runs"][0] if text.startswith("{") else {}
    return Answer(screen, report, largest_difference(path, report) if report else None)


def largest_difference(path: Path, report: dict[str, Any]) -> float | None:
    """Return by how many points of its time a category of a step differs from the independent reading."""
    differences = [
        abs(step["exposed_ns"][category] / step["wall_ns"] - share)
        for trace, rank in zip(sorted(path.glob("rank*.json*")), report["ranks"], strict=False)
        for step in rank["steps"]
        if not step["paused_ns"]
        for category, share in read_shares(trace, step["start_ns"], step["start_ns"] + step["wall_ns"]).items()
    ]
    return 100 * max(differences) if differences else None


def table(folder: Path, answers: dict[str, Future[Answer]]) -> Iterable[str]:
    """Yield rows of a Markdown table, then what was measured beside it."""
    measured = load(folder / "measured.json")
    yield "| run | step, ms | timed | costs, ms | first row | promised | off by, points | named | first line |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for name, future in answers.items():
        said, truth = future.result(), measured.get(name, {})
        costs = truth["step_ms"] - truth["healthy_ms"] if "step_ms" in truth else None
        lines = said.screen.splitlines()
        named = bool(re.search(FAULTS[name], said.screen)) if name in FAULTS else None
        cells = (name, step_ms(said.report), truth.get("step_ms"), costs, first_row(said.report), promised(said.report))
        first = lines[1] if len(lines) > 1 else (folder / f"{name}.txt").read_text()[-150:].replace("\n", " ")
        yield "| " + " | ".join(shown(cell) for cell in (*cells, said.off_by, named, first)) + " |"
    for name in ("overhead.json", "peaks.txt"):
        path = folder / name
        yield f"\n{name}: {path.read_text() if path.exists() else 'missing'}"


def step_ms(report: dict[str, Any]) -> float | None:
    return report["ledger"]["step_ns"] / 1e6 if report.get("ledger") else None


def first_row(report: dict[str, Any]) -> str | None:
    rows = [row for row in (report.get("ledger") or {}).get("rows", []) if row["cause"] != "compute"]
    return f"{rows[0]['cause']} {rows[0]['ns'] / 1e6:.2f}" if rows else None


def promised(report: dict[str, Any]) -> str | None:
    savings = report.get("predicted_savings") or []
    return ", ".join(f"{s.get('change')}: {(s.get('saving_ns') or 0) / 1e6:.2f}" for s in savings[:2]) or None


def shown(cell: object) -> str:
    return "–" if cell is None else f"{cell:.2f}" if isinstance(cell, float) else str(cell)


def load(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.exists() else {}


def run(command: list[str], log: Path) -> str:
    """Run a command, keep what it prints in `log`, and return its standard output; a failure is printed, not raised."""
    environment = os.environ | {"COLUMNS": "100", "NO_COLOR": "1"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False, env=environment)
    except subprocess.TimeoutExpired:
        print(f"{log.stem}: no end within {LIMIT_S} s", flush=True)
        return ""
    log.write_text(done.stdout + done.stderr)
    if done.returncode:
        print(f"{log.stem}: exit code {done.returncode}: {done.stderr[-600:]}", flush=True)
    return done.stdout


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
