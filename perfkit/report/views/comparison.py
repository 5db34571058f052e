"""The document and charts of a `Comparison`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from perfkit.base.formatting import MISSING, duration, escape_unprintable, format_value, in_ms, percent_change
from perfkit.base.statistics.bootstrap import FEWEST_RUNS
from perfkit.records.benchmark import BenchmarkChange
from perfkit.records.common import Finding
from perfkit.records.comparison import (
    MODELS_DIFFER,
    SAMPLES_DIFFER,
    STEP_WORK_CODES,
    Change,
    Comparison,
    GateResult,
    GateState,
    Side,
)
from perfkit.report.content.document import Document, FindingLine, KeyValue, Section
from perfkit.report.wording import comparisons as wording
from perfkit.tables import charts as specs
from perfkit.tables.charts import PageCharts
from perfkit.tables.labels import LONG
from perfkit.tables.specification import Cell, Column, Field, Table, Tone, make_table, name, number, words

_IN_SUMMARY = {*STEP_WORK_CODES, "too_few_repeats", "configurations_differ", "devices_differ", "versions_differ"}
"""Findings that the summary reports."""
_GATE_TONES: dict[GateState, Tone] = {"passed": "good", "failed": "error", "not_evaluated": "warning"}
_LABELS: Mapping[str, str] = {str(category): label for category, label in LONG.items()}
_TITLES = {
    "collective": "Collectives: mean exposed time per profiled step and rank",
    "operator": "Kernels and operators: mean time per profiled step and rank",
}


def _over_runs(report: Comparison) -> bool:
    return any(change.resampled == "runs" for change in report.changes)


def page_charts(report: Comparison) -> PageCharts:
    """Return the charts of the page: where the step goes, before and after."""
    changes = [change for change in report.changes if change.kind == "category"]
    if not changes:
        return PageCharts([], [[]])
    series = [
        specs.Bars(
            one.name,
            _LABELS.get(one.name, one.name),
            [None if ns is None else in_ms(ns) for ns in (one.before, one.after)],
        )
        for one in changes
    ]
    note = "Mean over ranks and steps, median over runs."
    return PageCharts(
        [], [[specs.stacked_bars("Time per profiled step, before and after", ["before", "after"], series, note=note)]]
    )


def document(report: Comparison, top: int) -> Document:
    """Return the content of `report`, with at most `top` rows in its ranked tables."""
    ranked = [table for kind in _TITLES if (table := _ranked(report, kind, top))]
    gates = gates_table(report.gates)
    section = Section(
        title=f"{_side(report.before)} → {_side(report.after)}",
        headline=_headline(report),
        tone=_tone(report),
        key_values=_summary(report),
        tables=[_metrics(report), *ranked, *([gates] if gates else [])],
        findings=[FindingLine.of(finding) for finding in report.findings if finding.code not in _IN_SUMMARY],
    )
    has_ranges = any(change.interval for change in report.changes)
    return Document("perfkit compare", [section], [_note(report)] if has_ranges else [])


def _note(report: Comparison) -> str:
    if _over_runs(report):
        return (
            "interval: 95 % bootstrap interval of the ratio over runs (marked steps: only over the steps of two runs)."
        )
    return (
        "spread of steps: 95 % bootstrap range of the ratio over the steps of the two runs; it does not cover how runs "
        "differ, for which each side needs three or more."
    )


def _side(side: Side) -> str:
    return escape_unprintable(side.path) + (f" ({len(side.runs)} runs)" if len(side.runs) > 1 else "")


def _step_work(report: Comparison) -> Finding | None:
    """Return the finding that steps do other work after than before, if there is one."""
    return next((finding for finding in report.findings if finding.code in STEP_WORK_CODES), None)


def _result(report: Comparison) -> str:
    """Return which side is faster; empty if steps do other work, and rates tell nothing either."""
    work = _step_work(report)
    if work is not None and work.code != SAMPLES_DIFFER:
        return ""
    return wording.result(_compared(report), is_plain=report.measured_on == "plain")


def _compared(report: Comparison) -> Change | None:
    metric = "samples_per_s" if _step_work(report) else "step_time"
    return next((change for change in report.changes if change.name == metric), None)


def _headline(report: Comparison) -> str:
    """Return which side is faster, or why that is not known."""
    work = _step_work(report)
    parts = [f"{work.message[0].upper()}{escape_unprintable(work.message[1:])}."] if work else []
    return " ".join(filter(None, [*parts, _result(report)]))


def _summary(report: Comparison) -> list[KeyValue]:
    """Return whether the change is more than noise; and what else differs, with the category that changed most."""
    lines, change = [], _compared(report)
    if change is not None and change.ratio is not None and _result(report):
        runs = [len(side.runs) for side in (report.before, report.after)]
        lines.append(KeyValue("noise", wording.noise(change, runs, FEWEST_RUNS, report.assumed_noise)))
    known = [one for one in report.changes if one.kind == "category" and None not in (one.before, one.after)]
    moved_ns = {one.name: abs((one.after or 0) - (one.before or 0)) for one in known}
    most = max(known, key=lambda one: moved_ns[one.name], default=None)
    is_named = most is not None and moved_ns[most.name] and not _step_work(report)
    return [*lines, KeyValue("changed", wording.changed(report.differences, most if is_named else None))]


def _tone(report: Comparison) -> Tone:
    states = {gate.state for gate in report.gates}
    return "error" if "failed" in states else "warning" if "not_evaluated" in states else "info"


def _metrics(report: Comparison) -> Table:
    changes = [change for change in report.changes if change.kind not in _TITLES and (change.before or change.after)]
    title = "Metrics (times of steps: means)"
    first = words("metric", lambda change: change.name)
    return _filled(title, first, changes, report, _measured_on(report))


def _measured_on(report: Comparison) -> str:
    """Return which steps the metrics are of."""
    if report.measured_on != "plain":
        return "step_time and all below: profiled steps, because not all runs have steps without the profiler"
    text = "step_time and rates: steps without the profiler"
    has_traces = any(change.kind == "category" for change in report.changes)
    return f"{text}; profiled_step and all below: recorded steps" if has_traces else text


def _ranked(report: Comparison, kind: str, top: int) -> Table | None:
    changes = [change for change in report.changes if change.kind == kind]
    if not changes:
        return None
    left = len(changes) - top
    remark = f"{left} more with smaller changes" if left > 0 else ""
    return _filled(_TITLES[kind], name(kind, lambda change: change.name), changes[:top], report, remark)


def _filled(title: str, first: Field, changes: Sequence[Change], report: Comparison, remark: str) -> Table:
    """Return a table without its empty columns: few runs and steps have no interval, and no change is judged."""
    table = make_table(title, changes, (first, *_columns(report)), remark)
    if table is None:
        return Table(title, tuple(Column(one.title, one.kind) for one in (first, *_columns(report))), [], remark)
    kept = [i for i in range(len(table.columns)) if any(row[i].text not in ("", MISSING) for row in table.rows)]
    rows = [tuple(row[i] for i in kept) for row in table.rows]
    return replace(table, columns=tuple(table.columns[i] for i in kept), rows=rows)


def _columns(report: Comparison) -> tuple[Field, ...]:
    over_runs = _over_runs(report)
    return (
        number("before", lambda change: format_value(change.before, change.unit)),
        number("after", lambda change: format_value(change.after, change.unit)),
        number("ratio", lambda change: change.ratio, "{:.3f}".format),
        number(
            "95 % interval" if over_runs else "spread of steps",
            lambda change: change.interval,
            lambda ends: f"{ends[0]:.3f} to {ends[1]:.3f}",
            note=lambda change: "steps" if over_runs and change.resampled == "steps" else "",
        ),
        words("change", lambda change: _verdict(change, judged=_is_comparable(change, report))),
    )


def _is_comparable(change: Change, report: Comparison) -> bool:
    work = _step_work(report)
    return work is None or (work.code != MODELS_DIFFER and change.unit != "ns")


def _verdict(change: Change, judged: bool) -> Cell:
    if change.before is None:
        return Cell("appeared", tone="strong")
    if change.after is None:
        return Cell("vanished", tone="strong")
    if not change.significant or change.ratio is None:
        return Cell("" if change.significant is None else "within noise", tone="faint")
    if not judged:
        return Cell(percent_change(change.ratio))
    worse = (change.ratio > 1) == (change.unit == "ns")
    return Cell(percent_change(change.ratio), tone="warning" if worse else "good")


# ---- of benchmarks too -----------------------------------------------------------------------------------------------


def time_changes() -> tuple[Field, ...]:
    """Return the columns of a `BenchmarkChange`: both times, their ratio with its interval, and the change in words."""
    return (
        number("before", lambda change: change.before_ns, duration),
        number("after", lambda change: change.after_ns, duration),
        number("ratio", lambda change: change.ratio, "{:.3f}".format),
        number("95 % interval", lambda change: change.interval, lambda ends: f"{ends[0]:.2f} to {ends[1]:.2f}"),
        words("change", _time_verdict),
    )


def _time_verdict(change: BenchmarkChange) -> Cell:
    if not change.significant:
        return Cell("" if change.significant is None else "within noise", tone="faint")
    return Cell(percent_change(change.ratio), tone="warning" if change.ratio > 1 else "good")


def gates_table(results: Sequence[GateResult]) -> Table | None:
    """Return the conditions with their results; None without any."""
    return make_table("Gates (--fail-on)", results, _GATES)


_GATES: Final = (
    words("condition", lambda gate: gate.expression),
    words("result", lambda gate: gate.state.replace("_", " "), tone=lambda gate: _GATE_TONES[gate.state]),
    words("value", lambda gate: gate.message),
)
