"""What ranks wait for each other within a hook of autograd's stays communication."""

from pathlib import Path
from statistics import median

import pytest

import perfkit
from tests.integration.scripts.waits_in_hooks import WAIT_S
from tests.support.processes.launching import PYTHON, ROOT, execute

SCRIPT = ROOT / "tests" / "integration" / "scripts" / "waits_in_hooks.py"


@pytest.mark.slow  # two ranks of a script: 8 s
def test_waiting_for_another_rank_in_a_hook_is_communication(tmp_path: Path) -> None:
    done = execute([*PYTHON, "run", str(SCRIPT), "-n", "2", "--no-report", "--trace-dir", str(tmp_path)])
    assert done.returncode == 0, done.stderr
    (run,) = perfkit.analyze(tmp_path).runs
    waiting, late = run.ranks
    assert median(step.exposed_ns.communication for step in waiting.steps) >= 0.8 * WAIT_S * 1e9
    assert median(step.idle_ns.not_running for step in waiting.steps) < 0.2 * WAIT_S * 1e9
    assert median(step.idle_ns.not_running for step in late.steps) >= 0.7 * WAIT_S * 1e9
