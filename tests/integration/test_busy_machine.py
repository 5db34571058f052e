"""Runs on a machine that other processes keep busy: the answer says so, and blames nothing for it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from perfkit.pipeline.analyze import analyze
from perfkit.pipeline.words import find_insights
from perfkit.report.content.answer import answer
from tests.support.processes.launching import LIMIT_S, PYTHON, environment

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]
BURNERS = 2 * len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0


@pytest.fixture
def _busy() -> Iterator[None]:
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(BURNERS)]
    yield
    for burner in burners:
        burner.kill()
        burner.wait()


@pytest.mark.usefixtures("_busy")
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_run_on_a_busy_machine_says_so_and_blames_nothing_for_it(ranks: int, tmp_path: Path) -> None:
    options = ["--batch-size", "4", "--samples", "256", "--threads", "1", "--steps", "8", "--no-report"]
    delay = ["--inject", "phase=data_loading,delay=200ms"]
    command = [
        *PYTHON,
        "run",
        "gpt",
        "-n",
        str(ranks),
        *options,
        *delay,
        "--trace-dir",
        str(tmp_path),
        "--name",
        "busy",
    ]
    subprocess.run(command, env=environment(), check=True, timeout=LIMIT_S, capture_output=True)
    report = analyze(tmp_path / "busy")
    (run,) = report.runs
    (load,) = run.core_loads
    assert load.ranks == list(range(ranks))
    assert load.others > load.idle
    assert 0 < load.own <= load.cores
    assert (run.trust[0].code, run.trust[0].overrules) == ("busy_machine", True)
    (shown,) = answer(report).runs
    assert shown.trust.startswith("Trust: other processes used ")
    assert "input" in {one.rule for one in find_insights([replace(run, trust=[])], None).insights}
    assert {"input", "waiting", "transfer"}.isdisjoint(one.rule for one in report.insights)
    assert {"straggler", "early_ranks", "one_off_straggler"}.isdisjoint(one.code for one in run.findings)
