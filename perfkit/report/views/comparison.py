"""The document and charts of a `Comparison`."""

from collections.abc import Sequence

from perfkit.report.charts import specs
from perfkit.report.charts.specs import PageCharts
from perfkit.report.content.document import Cell, Column, Document, FindingLine, Section, Table, Tone
from perfkit.schema.common import Finding
from perfkit.schema.comparison import Change, Comparison, GateResult, GateState, Side
from perfkit.stats.bootstrap import FEWEST_RUNS
from perfkit.util.formatting import (
    MISSING,
    duration,
    escape_unprintable,
    format_percent,
    format_value,
    in_ms,
    percent_change,
)

_GATE_TONES: dict[GateState, Tone] = {"passed": "good", "failed": "error", "not_evaluated": "warning"}
_TITLES = {
    "collective": "Collectives: mean exposed time per profiled step and rank",
    "operator": "Kernels and operators: mean time per profiled step and rank",
}


def _columns(report: Comparison) -> tuple[Column, ...]:
    ranges = "95 % interval" if _over_runs(report) else "spread of steps"
    return Column("before"), Column("after"), Column("ratio"), Column(ranges), Column("change", "words")


def _over_runs(report: Comparison) -> bool:
    return any(change.resampled == "runs" for change in report.changes)


def page_charts(report: Comparison) -> PageCharts:
    """Return the charts of the page: where the step goes, before and after."""
    changes = [change for change in report.changes if change.kind == "category"]
    if not changes:
        return PageCharts([], [[]])
    series = [
        specs.Bars(
            one.name, one.name.replace("_", " "), [None if ns is None else in_ms(ns) for ns in (one.before, one.after)]
        )
        for one in changes
    ]
    note = "Mean over ranks, median over steps and runs."
    return PageCharts(
        [], [[specs.stacked_bars("Time per profiled step, before and after", ["before", "after"], series, note=note)]]
    )


def document(report: Comparison, top: int) -> Document:
    """Return the content of `report`, with at most `top` rows in its ranked tables."""
    ranked = [table for kind in _TITLES if (table := _ranked(report, kind, top))]
    gates = [gates_table(report.gates)] if report.gates else []
    section = Section(
        title=f"{_side(report.before)} → {_side(report.after)}",
        headline=_headline(report),
        tone=_tone(report),
        summary=[_metrics(report)],
        key_values=[],
        tables=[*ranked, *gates],
        findings=[_finding_line(finding) for finding in report.findings],
    )
    return Document("perfkit compare", [], [section], [_note(report)])


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


def _headline(report: Comparison) -> str:
    step = next((change for change in report.changes if change.name == "step_time"), None)
    if step is None or step.ratio is None:
        return "No step time on both sides to compare."
    name = "Step time" if report.measured_on == "plain" else "Profiled step"
    moved = f"{name}: {duration(step.before)} → {duration(step.after)} ({percent_change(step.ratio)})"
    if step.significant is None:
        few = min(len(report.before.runs), len(report.after.runs)) < FEWEST_RUNS
        return f"{moved}; {'too few runs' if few else 'these runs do not suffice'} to tell this from noise."
    within = "beyond" if step.significant else "within"
    if report.assumed_noise is not None:
        return f"{moved}, {within} the assumed noise of {format_percent(report.assumed_noise)}."
    return f"{moved}, {within} run-to-run variation."


def _tone(report: Comparison) -> Tone:
    states = {gate.state for gate in report.gates}
    return "error" if "failed" in states else "warning" if "not_evaluated" in states else "info"


def _metrics(report: Comparison) -> Table:
    rows = [_row(change, _over_runs(report)) for change in report.changes if change.kind not in _TITLES]
    remark = (
        "step_time and rates: steps without the profiler; profiled_step and all below: recorded steps"
        if report.measured_on == "plain"
        else "step_time and all below: profiled steps, because not all runs have steps without the profiler"
    )
    return Table(
        "Metrics (times of steps: medians)",
        (Column("metric", "words"), *_columns(report)),
        rows,
        remark,
    )


def _ranked(report: Comparison, kind: str, top: int) -> Table | None:
    changes = [change for change in report.changes if change.kind == kind]
    if not changes:
        return None
    left = len(changes) - top
    remark = f"{left} more with smaller changes" if left > 0 else ""
    rows = [_row(change, _over_runs(report)) for change in changes[:top]]
    return Table(_TITLES[kind], (Column(kind, "name"), *_columns(report)), rows, remark)


def _row(change: Change, over_runs: bool) -> tuple[Cell, ...]:
    low_high = f"{change.interval[0]:.3f} to {change.interval[1]:.3f}" if change.interval else MISSING
    return (
        Cell(escape_unprintable(change.name)),
        Cell(format_value(change.before, change.unit)),
        Cell(format_value(change.after, change.unit)),
        Cell(MISSING if change.ratio is None else f"{change.ratio:.3f}"),
        Cell(low_high, note="steps" if over_runs and change.resampled == "steps" else ""),
        _verdict(change),
    )


def _verdict(change: Change) -> Cell:
    if change.before is None:
        return Cell("appeared", tone="strong")
    if change.after is None:
        return Cell("vanished", tone="strong")
    if not change.significant or change.ratio is None:
        return Cell("" if change.significant is None else "within noise", tone="faint")
    worse = (change.ratio > 1) == (change.unit == "ns")
    return Cell(percent_change(change.ratio), tone="warning" if worse else "good")


def gates_table(results: Sequence[GateResult]) -> Table:
    """Return the conditions with their results."""
    rows = [
        (
            Cell(escape_unprintable(gate.expression)),
            Cell(gate.state.replace("_", " "), tone=_GATE_TONES[gate.state]),
            Cell(escape_unprintable(gate.message)),
        )
        for gate in results
    ]
    return Table(
        "Gates (--fail-on)", (Column("condition", "words"), Column("result", "words"), Column("value", "words")), rows
    )


def _finding_line(finding: Finding) -> FindingLine:
    return FindingLine(finding.severity, escape_unprintable(finding.message))
