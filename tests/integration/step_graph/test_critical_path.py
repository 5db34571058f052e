"""The critical path of real runs of two ranks with a known delay: it runs through the late rank and contains the delay.

The delays are long, so that other activity on the machine stays far below them.
"""

from pathlib import Path

import pytest

import perfkit
from perfkit.engine.step_graph.replay import replay
from perfkit.records.run import RunReport
from tests.support.processes.launching import PYTHON, execute
from tests.support.traces.step_graphs import graph_of_run

SIZES = {"layers": 1, "width": 32, "heads": 2, "block": 16, "batch-size": 4, "vocab-size": 64, "samples": 256}
TINY = [word for name, value in SIZES.items() for word in (f"--{name}", str(value))]
DELAY_NS = 100_000_000
STEPS = 4

# Cause of reruns: other programs on the machine change wall times.
pytestmark = [pytest.mark.slow, pytest.mark.flaky(reruns=2)]


def record(folder: Path, *faults: str) -> RunReport:
    words = [word for fault in faults for word in ("--inject", fault)]
    run = ["run", "gpt", "-n", "2", *TINY, "--schedule", f"wait=1,warmup=1,active={STEPS}", "--steps", "6"]
    done = execute([*PYTHON, *run, "--trace-dir", str(folder), *words])
    assert done.returncode == 0, done.stderr
    (report,) = perfkit.analyze(folder).runs
    return report


def test_the_path_runs_through_the_late_rank_and_contains_its_delay(tmp_path: Path) -> None:
    report = record(tmp_path, "rank=1,phase=forward,delay=100ms")
    path = report.critical_path
    assert path is not None
    assert path.linked
    delay_ns = STEPS * DELAY_NS
    assert sum(row.total_ns for row in path.kinds) == path.total_ns == sum(row.total_ns for row in path.names)
    assert path.ranks[0].rank == 1
    assert delay_ns <= path.ranks[0].total_ns
    slept_ns = sum(row.total_ns for row in path.names if "injected_delay" in row.name or row.name == "perfkit.forward")
    assert 0.9 * delay_ns <= slept_ns
    # Rank 0 waits for rank 1 as long, which is not on the path.
    assert sum(row.total_ns for row in path.kinds if row.kind == "communication") < 0.3 * delay_ns
    graph = graph_of_run(next(tmp_path.iterdir())).graph
    assert graph is not None
    assert graph.violated == {}
    assert (replay(graph) == graph.nodes.end).all()
