"""What tables say of a run that the monitor has logged."""

from pathlib import Path

import pytest

import perfkit
from tests.support.monitor.made_runs import own_times, records, write_log, write_run
from tests.support.reports.tables import table_of


def _remark(folder: Path) -> str:
    (run,) = perfkit.analyze(folder).runs
    table = table_of(run, "monitor", "Whole run")
    assert table is not None
    return table.remark


@pytest.mark.parametrize(("steps", "remark"), [(20, "ranks not compared: too few steps"), (60, "")])
def test_ranks_of_a_short_run_are_not_compared(tmp_path: Path, steps: int, remark: str) -> None:
    assert _remark(write_run(tmp_path / "run", own_times(2, steps))) == remark


def test_ranks_without_time_in_collectives_are_not_compared(tmp_path: Path) -> None:
    for rank in range(2):
        made = records(own_times(2, 60), rank)
        made["collective_ns"] = -1
        write_log(tmp_path, rank, 2, made)
    assert _remark(tmp_path) == "ranks not compared: time in collectives is unknown"
