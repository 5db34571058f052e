"""Points of a sweep that left no run to analyse: what is missing from the report, and why."""

from collections.abc import Collection, Iterator, Sequence

from perfkit.schema.common import Finding
from perfkit.schema.sweep import SweepPoint


def missing_sweep_points(sweep: str, points: Sequence[SweepPoint], there: Collection[str]) -> Iterator[Finding]:
    """Yield a finding a point that failed without leaving a run, and one for all that are yet to be run.

    Args:
        sweep: name of the sweep's folder.
        points: what its `sweep.json` says.
        there: names of the run folders that are analysed; what failed in one of those, its run says itself.
    """
    absent = [point for point in points if point.run not in there]
    for point in absent:
        if point.state == "failed":
            message = f"{sweep}: {point.run} is not here, its run failed: {point.reason or 'no reason is known'}"
            yield Finding(code="point_failed", severity="error", message=message)
    left = sum(point.state != "failed" for point in absent)
    if left:
        message = f"{sweep}: {left} of {len(points)} points are not here; the same `perfkit sweep` again runs them"
        yield Finding(code="sweep_points_pending", severity="info", message=message)
