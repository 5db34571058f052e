"""Every view of a run shows one step time: the answer, the tables, JSON, what-if, and a comparison with itself."""

import re
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perfkit.base.formatting import duration
from tests.support.processes.command import run_command

pytestmark = pytest.mark.usefixtures("shared_cache")

ROOT = Path(__file__).parents[3]
SAMPLES = [ROOT / "traces" / name for name in ("sample-hdf5", "sample-memory")]
FOREIGN = sorted(
    path for path in (ROOT / "tests" / "data" / "traces").iterdir() if path.is_dir() and path.name != "small"
)
"""Those of one job each."""


def shown(*args: str | Path) -> str:
    done = run_command(*args)
    assert done.returncode == 0, done.stderr
    return done.stdout


def as_json(*args: str | Path) -> dict[str, Any]:
    return msgspec.json.decode(shown(*args, "-f", "json"), type=dict[str, Any])


@pytest.mark.parametrize("path", [*SAMPLES, *FOREIGN], ids=lambda path: path.name)
def test_all_views_show_one_step_time(path: Path) -> None:
    (run,) = as_json("analyze", path)["runs"]
    known = run["step_time"]
    step_ns, printed = known["mean_ns"], duration(known["mean_ns"])
    profiled = run["step_times"] is None
    assert known["is_profiled"] == profiled

    assert f"{'profiled ' if profiled else ''}step {printed}" in shown("analyze", path)
    compared = as_json("compare", path, path)
    (change,) = [change for change in compared["changes"] if change["name"] == "step_time"]
    assert (change["before"], change["after"], change["ratio"]) == (step_ns, step_ns, 1)
    assert re.search(rf"step_time +{re.escape(printed)} +{re.escape(printed)} +1.000", shown("compare", path, path))
    replayed = as_json("whatif", path)
    assert [duration(replayed[name]) for name in ("measured_step_ns", "replayed_step_ns")] == [printed, printed]
    assert re.search(rf"measured step +{re.escape(printed)}", shown("whatif", path))
    if run["ledger"] is not None:
        assert duration(sum(row["ns"] for row in run["ledger"]["rows"])) == printed


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_rates_are_of_that_step(path: Path) -> None:
    (run,) = as_json("analyze", path)["runs"]
    rates, printed = run["throughput"], duration(run["step_time"]["mean_ns"])
    assert rates["step_ns"] == round(run["step_time"]["mean_ns"])
    assert rates["samples_per_s"] * rates["step_ns"] / 1e9 == pytest.approx(16)  # 8 on each of two ranks
    assert re.search(rf"throughput .*step {re.escape(printed)} without the profiler", shown("analyze", path, "--full"))


def test_a_marker_of_other_steps_gives_their_time(tmp_path: Path) -> None:
    """The run has timed its own steps, each of which has one forward pass."""
    run_folder = tmp_path / "run"
    shutil.copytree(SAMPLES[0], run_folder)
    (run,) = as_json("analyze", run_folder, "--step-marker", "perfkit.forward")["runs"]
    assert run["step_time"]["is_profiled"]
    longest: dict[int, int] = {}
    for rank in run["ranks"]:
        for step in rank["steps"]:
            longest[step["step"]] = max(longest.get(step["step"], 0), step["wall_ns"])
    assert run["step_time"]["mean_ns"] == pytest.approx(sum(longest.values()) / len(longest), rel=0.02)
