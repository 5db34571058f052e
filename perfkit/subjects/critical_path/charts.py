"""The chart of the critical path of one step: what runs on which rank when."""

from collections.abc import Sequence
from itertools import groupby
from typing import Final

from perfkit.base.formatting import duration, in_ms, left_out
from perfkit.records.per_run.critical_path import DrawnPath, PathSpan
from perfkit.records.run import RunReport
from perfkit.subjects.critical_path.tables import WORDS, known_path
from perfkit.tables.charts import Chart, RunChart, Spec, as_html, axis
from perfkit.tables.labels import COLOURS, PATTERNS, step_label

_MOST_STRETCHES: Final = 12
"""Stretches on one rank that the text alternative lists."""
_PATTERNS: Final = PATTERNS | {"host": "\\"}


def path_chart(run: RunReport) -> Chart | None:
    """Return the path of one step as bars in time, one row per rank; None if it is unknown or trivial."""
    path = known_path(run)
    drawn = path.drawn if path else None
    if drawn is None or not drawn.spans:
        return None
    kinds = list(dict.fromkeys(span.kind for span in sorted(drawn.spans, key=lambda span: -span.ns)))
    data = [_bars(kind, [span for span in drawn.spans if span.kind == kind]) for kind in kinds]
    ranks = sorted({span.rank for span in drawn.spans})
    layout = {
        "barmode": "overlay",
        "bargap": 0.35,
        "legend": {"traceorder": "normal"},
        "xaxis": axis("ms since the last rank began the step", range=[0, in_ms(drawn.total_ns)]),
        "yaxis": axis(
            "",
            type="category",
            autorange="reversed",
            categoryorder="array",
            categoryarray=[f"rank {rank}" for rank in ranks],
        ),
    }
    return Chart(_title(drawn), _note(drawn), {"data": data, "layout": layout}, _in_words(drawn))


def _title(drawn: DrawnPath) -> str:
    which = "of the whole trace" if drawn.step is None else f"of step {step_label(drawn.step)}"
    return f"Critical path {which}, by rank"


def _note(drawn: DrawnPath) -> str:
    note = f"{duration(drawn.total_ns)}: the work that the end of the step waited for."
    if drawn.cell_ns:
        return f"{note} Each cell of {duration(drawn.cell_ns)} shows what took most of it."
    return f"{note} A stretch of the host's work between two launches, waits or collectives shows what took most of it."


def _bars(kind: str, spans: Sequence[PathSpan]) -> Spec:
    shading = {"shape": _PATTERNS.get(kind, ""), "size": 6, "fillmode": "overlay", "fgcolor": "rgba(255,255,255,.55)"}
    return {
        "type": "bar",
        "orientation": "h",
        "name": WORDS[kind],
        "base": [in_ms(span.start_ns) for span in spans],
        "x": [in_ms(span.ns) for span in spans],
        "y": [f"rank {span.rank}" for span in spans],
        "text": [as_html(span.name) for span in spans],
        "textposition": "none",
        "marker": {"color": COLOURS.get(kind, COLOURS["unknown"]), "pattern": shading, "line": {"width": 0}},
        "hovertemplate": f"%{{y}}, from %{{base:.6~g}} ms: %{{x:.6~g}} ms<br>%{{text}}<extra>{WORDS[kind]}</extra>",
    }


def _in_words(drawn: DrawnPath) -> str:
    """Return what the chart shows, for those who do not see it."""
    stretches = [(rank, list(spans)) for rank, spans in groupby(drawn.spans, key=lambda span: span.rank)]
    described = [_stretch(rank, spans) for rank, spans in stretches[:_MOST_STRETCHES]]
    left = len(stretches) - len(described)
    more = f"; and {left_out(left, 'change')} of rank" if left else ""
    return f"{_title(drawn)}, {duration(drawn.total_ns)}: {'; '.join(described)}{more}"


def _stretch(rank: int, spans: Sequence[PathSpan]) -> str:
    kinds = dict.fromkeys(span.kind for span in spans)
    total = {kind: sum(span.ns for span in spans if span.kind == kind) for kind in kinds}
    most = max(total, key=lambda kind: total[kind])
    mostly = "" if len(total) == 1 else "mostly "
    until = spans[-1].start_ns + spans[-1].ns
    return f"rank {rank} from {duration(spans[0].start_ns)} to {duration(until)}, {mostly}{WORDS[most]}"


CHARTS: Final[dict[str, RunChart]] = {
    "critical_path": RunChart(
        path_chart, "a chart of the critical path needs several ranks or a device, and steps in common"
    ),
}
