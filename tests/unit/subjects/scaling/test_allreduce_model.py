"""Predicted all-reduce times in forecasts."""

from typing import Any

import pytest

from perfkit.records.cross_rank import BandwidthFit, MatchedCollectiveStat
from perfkit.records.run import RunReport
from perfkit.report.content.scaling import fits as tables
from perfkit.subjects.scaling.forecast import all_reduce_ns
from tests.support.reports.report_builders import make_across
from tests.support.reports.scaling_builders import make_scaled, make_together, make_weak
from tests.unit.subjects.scaling.test_laws import usl


def reduced(size: int = 4, **changes: Any) -> dict[str, Any]:
    """Two steps, each with three all-reduces of 1 MB and one of 10 kB; 20 us and 1 GB/s."""
    fit: dict[str, Any] = {"operator": "all_reduce", "group": "default", "group_size": size, "sizes": 3}
    fit |= {"error": 0.01, "reason": None}
    rows = [
        MatchedCollectiveStat(
            operator="all_reduce",
            group="default",
            group_size=size,
            bytes=number,
            dtype="float32",
            count=count,
            wait_ns=None,
            transfer_ns=None,
            algbw=None,
            busbw=None,
        )
        for number, count in ((1_000_000, 6), (10_000, 2))
    ]
    fitted = BandwidthFit(**(fit | {"alpha_ns": 20_000.0, "beta": 1e9} | changes))
    return {"cross_rank": make_across(collectives=rows, bandwidth_fits=[fitted])}


def run_of(**changes: Any) -> RunReport:
    return make_scaled(4, 100, **reduced(**changes))


def test_a_step_is_the_sum_of_its_all_reduces() -> None:
    # 4 collectives a step with 3.01 MB in all.
    assert all_reduce_ns([run_of()], 4) == pytest.approx(4 * 20e3 + 3.01e6 * 1.5)
    assert all_reduce_ns([run_of()], 64) == pytest.approx(4 * 20e3 + 3.01e6 * 2 * 63 / 64)
    assert all_reduce_ns([run_of(beta=None)], 64) == 4 * 20e3


@pytest.mark.parametrize(
    "change", [{"alpha_ns": None, "reason": "two sizes"}, {"group_size": 2}, {"operator": "barrier"}]
)
def test_without_a_fit_of_all_ranks_there_is_none(change: dict[str, Any]) -> None:
    assert all_reduce_ns([run_of(), run_of(**change)], 8) is None
    assert all_reduce_ns([], 8) is None


def test_all_reduce_time_is_part_of_the_forecast() -> None:
    runs = make_weak(usl(0.05, 0.002), [1, 2, 4], repeats=2, noise=0.01, cross_rank=None)
    runs += make_weak(usl(0.05, 0.002), [8], repeats=2, noise=0.01, seed=1, **reduced(8))
    report = make_together(runs, forecast=[16])
    assert report.multi_run is not None
    (forecast,) = report.multi_run.series[0].forecasts
    assert forecast.all_reduce_ns == pytest.approx(4 * 20e3 + 3.01e6 * 2 * 15 / 16)
    (table,) = [table for table in tables(report.multi_run) if table.title.startswith("Forecast")]
    assert [cell.text for cell in table.rows[0]][3] == "5.72 ms"
