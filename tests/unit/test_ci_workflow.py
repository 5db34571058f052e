"""The workflow of docs/how-to/ci.md: valid YAML, whose commands exist and whose gates end as it says."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from perfkit.cli import main
from tests.support.documentation import ROOT
from tests.support.processes.launching import LIMIT_S

yaml = pytest.importorskip("yaml")


def scripts() -> dict[str, str]:
    """Return the commands of each step of the workflow, by the step's name."""
    page = (ROOT / "docs" / "how-to" / "ci.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    steps: list[dict[str, Any]] = yaml.safe_load(block)["jobs"]["gate"]["steps"]
    return {step["name"]: step["run"] for step in steps if "run" in step}


def test_what_it_records_with_is_a_command_that_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = re.findall(
        r"perfkit (run .*?)(?:\)|$)", scripts()["Record three repeats before and after, in turns"], re.M
    )
    assert len(recorded) == 2
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    for line in recorded:
        assert main([*shlex.split(line), "--help"]) == 0


def test_its_gate_writes_the_comparison_and_is_undecided_without_repeats(tmp_path: Path) -> None:
    (tmp_path / "traces").mkdir()
    for name, sample in (("before", "sample-memory"), ("after", "sample-hdf5")):
        (tmp_path / "traces" / name).symlink_to(ROOT / "traces" / sample)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-e", "-c", scripts()["Compare"]],
        cwd=tmp_path,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 4, done.stderr
    assert (tmp_path / "comparison.md").read_text(encoding="utf-8").startswith("# perfkit compare")
    assert "data_loading &gt; 20%" in (tmp_path / "gates.xml").read_text(encoding="utf-8")
