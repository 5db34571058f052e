"""The data of a page's explorer: every rank and step of a run, and the timelines of some."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from perfkit.report.charts.rank_steps import RankSteps, rank_steps
from perfkit.report.charts.specs import COLOURS
from perfkit.report.content.answer import shell_path
from perfkit.report.content.run_tables import LONG, rank_label, step_label
from perfkit.schema.common import CATEGORIES
from perfkit.schema.per_run.step_timeline import StepTimeline, TimelineRow
from perfkit.schema.run import RunReport
from perfkit.util.formatting import escape_unprintable

CATEGORY_COLOURS: Final = {LONG[name]: (COLOURS[name], name != "compute") for name in CATEGORIES}
"""Colour of each category by its label, and whether text on it is black."""
NO_TIMELINES: Final = "The page has no timelines: analyze a single run, from its traces, to have those of a few steps."
_DIGITS: Final = 7


@dataclass(frozen=True, slots=True)
class Explorer(RankSteps):
    """What the page's scripts are given."""

    traces: Sequence[str]
    """Path of each rank's first trace, quoted for a shell."""
    timelines: Sequence[dict[str, Any]]
    no_timelines: str = NO_TIMELINES


def explorer(run: RunReport) -> Explorer | None:
    """Return the data of a run's explorer; None without steps."""
    steps = rank_steps(run)
    if steps is None:
        return None
    traces = {rank_label(rank.rank): shell_path(run, rank.traces[0]) if rank.traces else "" for rank in run.ranks}
    fields = {name: getattr(steps, name) for name in RankSteps.__slots__}
    return Explorer(
        **fields,
        traces=[traces[label] for label, _ in steps.ranks],
        timelines=[drawn for one in run.step_timelines if (drawn := _timeline(run, steps, one))],
    )


def _timeline(run: RunReport, steps: RankSteps, one: StepTimeline) -> dict[str, Any] | None:
    """Return a timeline for the page; None if its rank or step is not on it."""
    labels = [label for label, _ in steps.ranks]
    rank, step = rank_label(one.rank), step_label(one.step)
    if rank not in labels or step not in steps.steps:
        return None
    unit_ns = int(10 ** max(0, len(str(one.window_ns)) - _DIGITS))
    return {
        "rank": labels.index(rank),
        "step": steps.steps.index(step),
        "trace": shell_path(run, one.trace),
        "unit_ns": unit_ns,
        "length": -(-one.window_ns // unit_ns),
        "names": [escape_unprintable(name) for name in one.names],
        "rows": [
            {"lane": row.lane, "title": escape_unprintable(row.title), "spans": _packed(row, unit_ns)}
            for row in one.rows
        ],
        "left_out": one.left_out,
        "cell_ns": one.cell_ns,
    }


def _packed(row: TimelineRow, unit_ns: int) -> list[int]:
    """Return start (since the slice before), length and name of each slice, flat: half of the page's size."""
    packed, before = [], 0
    for start_ns, ns, name in zip(row.start_ns, row.duration_ns, row.name, strict=True):
        start = start_ns // unit_ns
        packed += [start - before, (start_ns + ns) // unit_ns - start, name]
        before = start
    return packed
