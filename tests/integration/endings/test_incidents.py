"""What happened in a run stands in its report: when, and what."""

import re
from pathlib import Path

import pytest

import perfkit
from tests.support.processes.launching import PYTHON, ROOT, execute

SCRIPT = ROOT / "tests" / "integration" / "scripts" / "incidents.py"


def recorded(folder: Path, how: str) -> str:
    """Run the script on two ranks, and return what perfkit prints on stderr."""
    options = ["-n", "2", "--trace-dir", str(folder), "--name", how, "--hang-after", "2s"]
    return execute([*PYTHON, "run", str(SCRIPT), *options, "--", how]).stderr


@pytest.mark.slow  # a hang takes seconds
def test_a_hang_and_its_stall_stand_in_the_answer(tmp_path: Path) -> None:
    printed = " ".join(recorded(tmp_path, "hang").partition("hang ─")[2].split())
    assert re.search(r"run_hung: rank 1 held up step 40 for more than \d\.\d+ s, \d{4}-\d\d-\d\d", printed)
    assert "slow_steps: " in printed
    messages = {one.code: one.message for one in perfkit.analyze(tmp_path / "hang").runs[0].findings}
    assert "rank 1 has not issued it" in messages["run_hung"]
    assert "step 40 (" in messages["slow_steps"]


@pytest.mark.slow
def test_running_out_of_memory_stands_in_the_last_line_and_the_report(tmp_path: Path) -> None:
    last = recorded(tmp_path, "memory").splitlines()[-1]
    assert "rank 1: out of memory at " in last
    assert ": asked for 21.5 GB" in last
    assert ", after 40 steps" in last
    (failed,) = [one for one in perfkit.analyze(tmp_path / "memory").runs[0].findings if one.code == "run_failed"]
    assert failed.message.startswith("the run failed in step 40, 2")
    assert "rank 1: out of memory at " in failed.message
