"""Idle time of a real script, by function, against what the script itself measured."""

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import perfkit
from perfkit.report.content.answer import run_answer

SCRIPT = Path(__file__).with_name("idle_phases.py")
STEPS = (2, 3, 4)
CAUSES = {"nap": "not_running"}
"""Of the functions; all others are host work."""
CALLED = {"nap": "<built-in function sleep>", "clean": "<built-in function collect>"}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list[int]]]:
    """Return the run's folder and what the script measured of each function in each step (ns)."""
    folder = tmp_path_factory.mktemp("idle")
    schedule = f"wait=1,warmup=1,active={len(STEPS)}"
    command = [sys.executable, "-m", "perfkit", "run", str(SCRIPT), "--trace-dir", str(folder / "traces")]
    command += ["--schedule", schedule, "--with-stack", "--", str(folder), str(STEPS[-1] + 2)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    (run,) = (folder / "traces").glob("*/")
    return run, json.loads(done.stdout.splitlines()[-1])


def spans(trace: Path) -> list[dict[str, Any]]:
    return [e for e in json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"] if e.get("ph") == "X"]


def idle_in_frames(trace: Path) -> dict[str, float]:
    """Return the time within each function of the script in which no operator runs (ns), from the JSON alone."""
    events = spans(trace)
    operators = sorted((e["ts"], e["ts"] + e["dur"]) for e in events if e["cat"] == "cpu_op")
    idle: dict[str, float] = {}
    for frame in events:
        if frame["cat"] == "python_function" and SCRIPT.name in frame["name"]:
            name = frame["name"].rsplit(" ", 1)[-1]
            idle[name] = idle.get(name, 0.0) + 1000 * _outside(frame, operators)
    return idle


def _outside(frame: dict[str, Any], operators: list[tuple[float, float]]) -> float:
    begin, end = frame["ts"], frame["ts"] + frame["dur"]
    inside = [(start, stop) for start, stop in operators if begin <= start < end]
    reach, pauses = begin, 0.0
    for start, stop in [*inside, (end, end)]:
        pauses += max(0.0, start - reach)
        reach = max(reach, stop)
    return pauses


@pytest.mark.slow
def test_each_function_is_found_with_its_name_and_size(recorded: tuple[Path, dict[str, list[int]]]) -> None:
    run, measured_ns = recorded[0], dict(recorded[1])
    (trace,) = run.glob("rank0*.json.gz")
    (report,) = perfkit.analyze(run, cache=False).runs
    idle = report.ranks[0].idle
    assert idle is not None
    assert idle.has_python_frames
    wanted_ns = idle_in_frames(trace)
    (checkpoints,) = report.pauses  # `save` writes one in each step: that is no part of the step
    saving_ns = measured_ns.pop("save")
    assert (checkpoints.phase, checkpoints.count, checkpoints.recorded) == ("checkpoint", len(saving_ns), len(STEPS))
    within = re.compile(r"torch/serialization\.py\(\d+\): save")
    saved_ns = sum(1000 * event["dur"] for event in spans(trace) if within.fullmatch(event["name"]))
    assert 0 < saved_ns <= checkpoints.recorded_ns <= sum(saving_ns[step] for step in STEPS)
    for name, walls_ns in measured_ns.items():
        rows = [row for row in idle.causes if f": {name}" in (row.context or row.detail)]
        found_ns = sum(row.total_ns for row in rows)
        assert found_ns == pytest.approx(wanted_ns[name], rel=0.1), name
        assert max(rows, key=lambda row: row.total_ns).cause == CAUSES.get(name, "host_work"), name
        if name in CALLED:
            assert rows[0].detail == CALLED[name]
        assert found_ns <= sum(walls_ns[step] for step in STEPS), name


@pytest.mark.slow
def test_nothing_else_is_blamed(recorded: tuple[Path, dict[str, list[int]]]) -> None:
    run, measured_ns = recorded
    (report,) = perfkit.analyze(run, cache=False).runs
    idle = report.ranks[0].idle
    assert idle is not None
    total_ns = sum(row.total_ns for row in idle.causes)
    others = [row for row in idle.causes if not any(f": {name}" in (row.context or row.detail) for name in measured_ns)]
    assert sum(row.total_ns for row in others) < 0.1 * total_ns
    assert {row.cause for row in idle.causes} <= {"host_work", "not_running", "profiler", "unknown"}
    assert sum(row.total_ns for row in idle.causes if row.cause == "unknown") < 0.01 * total_ns


@pytest.mark.slow
def test_the_advice_names_the_largest(recorded: tuple[Path, dict[str, list[int]]]) -> None:
    run, measured_ns = recorded[0], dict(recorded[1])
    measured_ns.pop("save")  # part of no step, however long a busy disk takes
    report = perfkit.analyze(run, cache=False)
    (insight,) = [one for one in report.insights if one.rule == "host"]
    largest = max(measured_ns, key=lambda name: sum(measured_ns[name][step] for step in STEPS))
    assert f"`{largest}`" in run_answer(report.runs[0]).headline
    assert insight.row == "host_work"
    saving_ns = insight.potential_saving_ns or 0  # unknown where too few steps can be replayed
    assert saving_ns <= 1.1 * sum(measured_ns[largest][step] for step in STEPS) / len(STEPS)
