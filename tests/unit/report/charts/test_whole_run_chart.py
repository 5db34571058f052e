"""The chart of the whole run."""

from pathlib import Path
from typing import Any

import pytest

import perfkit
from perfkit.subjects.monitor.charts import whole_run_chart
from tests.support.monitor.made_runs import own_times, write_run


def _drawn(folder: Path, first: float) -> tuple[str, dict[str, Any]]:
    """Return the note and the median's line of a run whose first step takes `first` times as long as the others."""
    own = own_times(2, 60)
    own[:, 0] *= first
    (run,) = perfkit.analyze(write_run(folder, own)).runs
    chart = whole_run_chart(run)
    assert chart is not None
    return chart.note, next(line for line in chart.spec["data"] if line["name"] == "median")


@pytest.mark.parametrize(("first", "drawn_from"), [(1, 0), (2, 0), (40, 1)])
def test_a_first_step_that_would_flatten_the_others_is_left_out(tmp_path: Path, first: float, drawn_from: int) -> None:
    note, line = _drawn(tmp_path, first)
    assert line["x"] == list(range(drawn_from, 60))
    assert len(line["y"]) == len(line["x"])
    assert note.startswith("From step 1 on: before, a step takes up to 2.") == (drawn_from == 1)
