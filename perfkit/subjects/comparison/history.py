"""Step time and efficiency of runs over time, and change points of the step time.

Pettitt's test finds the likeliest change point, and is then applied to both sides of it. With fewer than eight runs no
order of two levels is rarer than one in twenty, so no change point is ever reported.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from statistics import median
from typing import Any

import msgspec

from perfkit._version import __version__
from perfkit.base.statistics.bootstrap import FEWEST_RUNS, FEWEST_STEPS, mean_interval, median_interval
from perfkit.base.statistics.series import FEWEST_FOR_CHANGE_POINT, find_change_points
from perfkit.records.aggregate import common_kind
from perfkit.records.common import Observation
from perfkit.records.comparison import ChangePoint, ConfigHistory, History, HistoryBy, HistoryPoint
from perfkit.records.facts import Statement, statement
from perfkit.records.run import FACTORS, RunReport
from perfkit.subjects.comparison.changes import settings
from perfkit.subjects.comparison.metrics import STEP_TIME, Metric, MetricName, metrics


def excluded_runs(runs: Iterable[RunReport]) -> list[Observation]:
    """Return which runs a history cannot have, and why."""
    reasons = ((run.run, _unusable(run)) for run in runs)
    return [Observation("run_excluded", {"run": run, "reason": reason}) for run, reason in reasons if reason]


def config_histories(runs: Iterable[RunReport], by: HistoryBy, *, own_clock: bool = True) -> History:
    """Return the history of runs, grouped by configuration, without findings.

    Args:
        runs: in any order; those of `excluded_runs` are left out.
        by: what a point stands for: a run, or all runs of one commit.
        own_clock: whether to use steps without the profiler, by the runs' own clock, if all runs of a configuration
            have some; False if a marker marks other steps than those.
    """
    groups: dict[bytes, list[RunReport]] = defaultdict(list)
    for run in runs:
        if _unusable(run) is None:
            groups[msgspec.json.encode(_settings(run), order="sorted")].append(run)
    ordered = [sorted(group, key=_started) for group in groups.values()]
    ordered.sort(key=lambda group: (-len(group), _started(group[0])))
    known = [_build_history(group, by, own_clock) for group in ordered]
    return History(perfkit_version=__version__, by=by, configurations=known, findings=[])


def _unusable(run: RunReport) -> Statement | None:
    if run.config is None or run.started_at is None:
        damaged = any(finding.code == "unreadable_manifest" for finding in run.findings)
        return statement("manifest_damaged" if damaged else "no_manifest")
    if run.state != "completed":
        return statement("state", state=run.state)
    try:
        _started(run)
    except ValueError:
        return statement("no_start_time")
    if STEP_TIME not in metrics(run):
        return statement("no_traced_step")
    # What a damaged trace lacks counts as idle time, and its rank may seem late.
    lost = (finding for finding in run.findings if finding.code == "damaged_trace")
    return next((statement("in_file", file=one.file, message=one.message) for one in lost), None)


def _started(run: RunReport) -> datetime:
    when = datetime.fromisoformat(run.started_at or "")
    return when if when.tzinfo else when.replace(tzinfo=UTC)


def _settings(run: RunReport) -> dict[str, Any]:
    """Return what the runs of one history have in common: package versions may change, machines may not."""
    devices = sorted({rank.device for rank in run.ranks})
    return settings(run) | {"source": run.source, "device_names": run.device_names, "devices": devices}


def _build_history(runs: Sequence[RunReport], by: HistoryBy, own_clock: bool) -> ConfigHistory:
    measured_on = common_kind(runs) if own_clock else None
    metrics_of = {id(run): metrics(run, measured_on) for run in runs}
    steps = [metrics_of[id(run)][STEP_TIME].value for run in runs]
    enough = len(runs) >= FEWEST_FOR_CHANGE_POINT
    return ConfigHistory(
        settings=_settings(runs[0]),
        measured_on="plain" if measured_on == "plain" else "recorded",
        runs=len(runs),
        points=[_point(group, [metrics_of[id(run)] for run in group]) for group in _grouped(runs, by)],
        change_points=_change_points(runs, steps),
        reason=None if enough else statement("few_runs", runs=len(runs), fewest=FEWEST_FOR_CHANGE_POINT),
    )


def _grouped(runs: Sequence[RunReport], by: HistoryBy) -> list[list[RunReport]]:
    groups: dict[object, list[RunReport]] = defaultdict(list)
    for run in runs:
        # Runs without a known commit may be of different commits.
        groups[run.commit if by == "commit" and run.commit else id(run)].append(run)
    return list(groups.values())


def _point(runs: Sequence[RunReport], known: Sequence[dict[MetricName, Metric]]) -> HistoryPoint:
    steps = [one[STEP_TIME] for one in known]
    interval, resampled = None, None
    if len(runs) >= FEWEST_RUNS:
        interval, resampled = median_interval([step.value for step in steps]), "runs"
    elif len(runs) == 1 and len(steps[0].samples) >= FEWEST_STEPS:
        interval, resampled = mean_interval(steps[0].samples), "steps"
    return HistoryPoint(
        runs=[run.run for run in runs],
        started_at=str(runs[0].started_at),
        commit=runs[0].commit,
        versions=runs[-1].versions,
        step_ns=median(step.value for step in steps),
        interval_ns=interval,
        resampled=resampled,  # type: ignore[arg-type]
        samples_per_s=_median(known, MetricName("run", "samples_per_s")),
        efficiency={
            factor: _median(known, MetricName("efficiency", f"efficiency.{factor}"))
            for factor in ("parallel", *FACTORS)
        },
    )


def _median(known: Sequence[dict[MetricName, Metric]], name: MetricName) -> float | None:
    values = [one[name].value for one in known if name in one]
    return median(values) if values else None


def _change_points(runs: Sequence[RunReport], steps: Sequence[float]) -> list[ChangePoint]:
    detected = find_change_points(steps)
    places = [0, *(change.place for change in detected), len(steps)]
    return [
        ChangePoint(
            run=runs[change.place].run,
            commit=runs[change.place].commit,
            last_before=runs[change.place - 1].run,
            before_ns=median(steps[start : change.place]),
            after_ns=median(steps[change.place : end]),
            interval=change.interval,
            p_value=change.p_value,
        )
        for change, start, end in zip(detected, places, places[2:], strict=False)
    ]
