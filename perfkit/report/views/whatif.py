"""The document of a prediction: the step before and after, what was assumed, or the changes that save most."""

from typing import Final

from perfkit.base.formatting import MISSING, duration, escape_unprintable, format_percent, ranges
from perfkit.records.per_run.whatif import Prediction, WhatIf
from perfkit.report.content.document import Document, KeyValue, Section
from perfkit.report.content.run_facts import finding_lines
from perfkit.tables.specification import Table, make_table, number, words

_NOTE: Final = "Predicted by replaying the dependencies of the recorded steps."
_INTERVAL: Final = "The interval is how the recorded steps vary (95 %, bootstrap of the mean)."
_ASSUMPTIONS: Final = "Check whether the assumptions hold for your program."
_ALONE: Final = "Give a change as an argument to see what it assumes."


def document(report: WhatIf, top: int) -> Document:
    """Return the content of `report`: of a ranking at most `top` rows."""
    section = Section(
        title=escape_unprintable(report.run),
        headline=_headline(report),
        tone="info",
        key_values=_facts(report),
        tables=_tables(report, top),
        findings=finding_lines(report.findings),
    )
    one = report.prediction
    notes = [_NOTE, *([_INTERVAL] if one and one.interval_ns else []), _ASSUMPTIONS if one else _ALONE]
    return Document("perfkit whatif", [section], [" ".join(notes)])


def _headline(report: WhatIf) -> str:
    one = report.prediction or next(iter(report.ranking or []), None)
    if one is None:
        return "No single change would make the step noticeably shorter."
    changes = " ".join(escape_unprintable(change.change) for change in one.changes)
    if report.prediction is None:
        return f"The largest saving is predicted for {changes}: {_saving(one, report)} per step."
    if one.saving_ns == 0:
        return f"With {changes}, the step would take as long: {duration(one.step_ns)}."
    more = "less" if one.saving_ns > 0 else "more"
    return (
        f"With {changes}, the step would take {duration(one.step_ns)} instead of {duration(report.replayed_step_ns)}: "
        f"{_saving(one, report)} {more}."
    )


def _saving(one: Prediction, report: WhatIf) -> str:
    """Return the size of the saving, and its share of the step."""
    saving_ns = abs(one.saving_ns)
    return f"{duration(saving_ns)} ({format_percent(_share(saving_ns, report))})"


def _share(saving_ns: float, report: WhatIf) -> float | None:
    """Return a saving as a share of the step, negative where the step would take longer."""
    return saving_ns / report.replayed_step_ns if report.replayed_step_ns else None


def _facts(report: WhatIf) -> list[KeyValue]:
    known = f" ({ranges(report.ranks)})" if report.ranks else ""
    steps = [step for step in report.steps if step is not None]
    facts = [
        KeyValue("ranks", f"{max(1, len(report.ranks))} of {report.world_size}{known}"),
        KeyValue("steps", f"{len(report.steps)}{f' ({ranges(steps)})' if steps else ''}"),
        KeyValue("measured step", duration(report.measured_step_ns)),
        KeyValue("replayed without a change", duration(report.replayed_step_ns)),
    ]
    if one := report.prediction:
        low, high = one.range_ns
        facts.append(
            KeyValue("predicted step", f"{duration(one.step_ns)}; single steps {duration(low)} to {duration(high)}")
        )
        facts.append(KeyValue("saving per step", f"{duration(one.saving_ns)}{_interval(one)}"))
    return facts


def _interval(one: Prediction) -> str:
    if one.interval_ns is None:
        return " (too few steps for an interval)"
    return f" ({duration(one.interval_ns[0])} to {duration(one.interval_ns[1])})"


def _tables(report: WhatIf, top: int) -> list[Table]:
    one = report.prediction
    found = make_table("Changes", one.changes, _APPLIED) if one else _ranking(report, top)
    return [found] if found else []


_APPLIED: Final = (
    words("change", lambda change: change.change),
    words("applies to", lambda change: change.applies_to),
    words("assumes", lambda change: "; ".join(change.assumptions) or MISSING),
)


def _ranking(report: WhatIf, top: int) -> Table | None:
    predictions = report.ranking or []
    columns = (
        words("change", lambda one: one.changes[0].change),
        number("predicted step", lambda one: one.step_ns, duration),
        number("saves", lambda one: one.saving_ns, duration),
        number("of the step", lambda one: _share(one.saving_ns, report), format_percent),
    )
    left = len(predictions) - top
    remark = f"{left} more: use --top N" if left > 0 else ""
    return make_table("Changes that save most, each by itself", predictions, columns, remark, top=top)
