"""Writes series as JSON Lines for Extra-P, which models how time grows with ranks.

A line is one measurement, `{"params": {"ranks": 2}, "callpath": "gpt weak->step", "metric": "time", "value": 0.1}`, in
seconds; several lines of one point are its repeats. Each series has its own root: strong and weak scaling have
different models. `recorded step` has one child per category, mean over steps and ranks.
"""

import json
from collections.abc import Iterator
from typing import Any, TextIO

from perfkit.base.formatting import escape_unprintable
from perfkit.errors import UsageError
from perfkit.records.aggregate import step_time_ns, steps_ns
from perfkit.records.common import CATEGORIES
from perfkit.records.report import Report
from perfkit.records.run import RunReport
from perfkit.records.scaling import ScalingPoint


def write(report: Report, stream: TextIO, *, top: int) -> None:  # noqa: ARG001  every point is written
    """Write the points of every series of `report` to `stream`.

    Raises:
        UsageError: there are no series.
    """
    if report.multi_run is None or not report.multi_run.series:
        raise UsageError(
            "Extra-P models time against ranks: it needs runs of several world sizes that are otherwise identical"
        )
    runs = {run.run: run for run in report.runs}
    for series in report.multi_run.series:
        root = escape_unprintable(series.name).replace("->", "-")
        for point in series.points:
            for line in _lines(root, point, [runs[name] for name in point.step_time.runs]):
                stream.write(f"{json.dumps(line)}\n")


def _lines(root: str, point: ScalingPoint, runs: list[RunReport]) -> Iterator[dict[str, Any]]:
    for run in runs:
        yield _line(root, point, "step", _step_ns(run, point))
        steps = [step for rank in run.ranks for step in rank.steps]
        for category in CATEGORIES if steps else ():
            mean_ns = sum(getattr(step.exposed_ns, category) for step in steps) / len(steps)
            yield _line(root, point, f"recorded step->{category}", mean_ns)


def _step_ns(run: RunReport, point: ScalingPoint) -> float:
    return step_time_ns(steps_ns(run, point.step_time.measured_on)) or point.step_time.step_ns.value


def _line(root: str, point: ScalingPoint, callpath: str, ns: float) -> dict[str, Any]:
    params = {"ranks": point.world_size}
    return {"params": params, "callpath": f"{root}->{callpath}", "metric": "time", "value": ns / 1e9}
