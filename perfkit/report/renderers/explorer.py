"""The data of a page's explorer: every rank and step of a run, and the timelines of some."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from perfkit.base.formatting import escape_unprintable
from perfkit.records.common import CATEGORIES
from perfkit.records.per_run.communication import LinkedCollective
from perfkit.records.per_run.step_timeline import NAME_LENGTH, StepTimeline, TimelineLane, TimelineRow
from perfkit.records.rank import RankReport
from perfkit.records.run import RunReport
from perfkit.report.charts.rank_steps import RankSteps, rank_steps, shown_ranks
from perfkit.report.content.answer import marker_option, shell_path
from perfkit.tables.labels import COLOURS, LONG, step_label
from perfkit.tables.specification import Instance

SLICE_COLOURS: Final = {LONG[name]: (COLOURS[name], name != "compute") for name in CATEGORIES}
"""Colour of each category by its label, and whether text on it is black."""
LANE_COLOURS: Final[dict[TimelineLane, tuple[str, bool]]] = {
    "idle": (COLOURS["overhead"], True),
    "annotation": (COLOURS["host"], True),
    "operator": (COLOURS["operator"], True),
    "compute": (COLOURS["compute"], False),
    "communication": (COLOURS["communication"], True),
    "copy": (COLOURS["memcpy"], True),
}
"""Likewise, of what is in the lanes of timelines and in flame graphs."""
NO_TIMELINES: Final = "The page has no timelines: analyze a single run, from its traces, to have those of a few steps."
UNLINKED: Final = (
    "The page does not have this collective of other ranks: it was not matched with theirs, or is not among the "
    "longest of the step."
)
_DOUBT: Final = " It may be otherwise: see the findings."
_DIGITS: Final = 7


@dataclass(frozen=True, slots=True)
class Explorer(RankSteps):
    """What the page's scripts are given."""

    traces: Sequence[tuple[str, str]]
    """Of each rank's trace, the path, quoted for a shell, and the file name; empty if it has several."""
    timelines: Sequence[dict[str, Any]]
    opens: Sequence[int] | None
    """Rank and step that are shown at first; None without a timeline."""
    collectives: Sequence[dict[str, Any]]
    """Those that the timelines' slices of communication are linked to."""
    step_marker: str
    """Option of commands that are to find the same steps, after a space; empty without."""
    doubt: str = ""
    """A sentence after who joined last, where matches are doubtful."""
    no_timelines: str = NO_TIMELINES
    unlinked: str = UNLINKED


def explorer(run: RunReport) -> Explorer | None:
    """Return the data of a run's explorer; None without steps."""
    steps = rank_steps(run)
    if steps is None:
        return None
    ranks = shown_ranks(run)
    origin_ns = min((one.begin_ns for one in run.step_timelines if one.begin_ns is not None), default=0)
    timelines = [drawn for one in run.step_timelines if (drawn := _timeline(run, steps, ranks, one, origin_ns))]
    fields = {name: getattr(steps, name) for name in RankSteps.__slots__}
    return Explorer(
        **fields,
        traces=[_trace(run, rank.traces[0]) if len(rank.traces) == 1 else ("", "") for rank in ranks],
        timelines=timelines,
        opens=_opens(timelines),
        collectives=[_collective(run, one, origin_ns) for one in run.linked_collectives] if run.step_timelines else [],
        step_marker=marker_option(run),
        doubt=_DOUBT if any(one.code == "suspect_matches" for one in run.findings) else "",
    )


def place_of(instance: Instance) -> dict[str, Any]:
    """Return where the page shows an instance, as its scripts look for it."""
    found: dict[str, Any] = {"name": escape_unprintable(instance.name[:NAME_LENGTH])}
    if instance.rank is not None:
        found |= {
            "rank": str(instance.rank),
            "step": step_label(instance.step),
            "ns": instance.ns,
            "at_ns": instance.at_ns,
            "what": instance.what,
            "inside": instance.is_inside,
        }
    return found


def _opens(timelines: Sequence[dict[str, Any]]) -> list[int] | None:
    """Return rank and step of the first rank's timeline of median length: it is the slowest rank."""
    if not timelines:
        return None
    own = [one for one in timelines if one["rank"] == timelines[0]["rank"]]
    typical = sorted(own, key=lambda one: one["length"] * one["unit_ns"])[(len(own) - 1) // 2]
    return [typical["rank"], typical["step"]]


def _trace(run: RunReport, name: str) -> tuple[str, str]:
    return shell_path(run, name), escape_unprintable(name)


def _timeline(
    run: RunReport, steps: RankSteps, ranks: Sequence[RankReport], one: StepTimeline, origin_ns: int
) -> dict[str, Any] | None:
    """Return a timeline for the page; None if its rank or step is not on it."""
    places = [place for place, rank in enumerate(ranks) if one.trace in rank.traces]
    step = step_label(one.step)
    if not places or step not in steps.steps:
        return None
    unit_ns = int(10 ** max(0, len(str(one.window_ns)) - _DIGITS))
    return {
        "rank": places[0],
        "step": steps.steps.index(step),
        "trace": _trace(run, one.trace),
        "unit_ns": unit_ns,
        "begin_ns": None if one.begin_ns is None else one.begin_ns - origin_ns,
        "length": -(-one.window_ns // unit_ns),
        "names": [escape_unprintable(name) for name in one.names],
        "rows": [
            {
                "lane": row.lane,
                "title": escape_unprintable(row.title),
                "spans": _packed(row, unit_ns),
                **({"link": row.link} if row.link else {}),
            }
            for row in one.rows
        ],
        "left_out": one.left_out,
        "cell_ns": one.cell_ns,
    }


def _collective(run: RunReport, one: LinkedCollective, origin_ns: int) -> dict[str, Any]:
    """Return a collective for the page: of each rank its number, begin, length and waiting in ns, or null."""
    partial = one.ranks < one.group_size if one.group_size else run.is_partial
    return {
        "name": one.operator,
        "ranks": one.ranks,
        "partial": partial,
        "last": one.last,
        "on": [
            [own.rank, None if own.begin_ns is None else own.begin_ns - origin_ns, own.duration_ns, own.wait_ns]
            for own in one.on_ranks
        ],
    }


def _packed(row: TimelineRow, unit_ns: int) -> list[int]:
    """Return start (since the slice before), length and name of each slice, flat: half of the page's size."""
    packed, before = [], 0
    for start_ns, ns, name in zip(row.start_ns, row.duration_ns, row.name, strict=True):
        start = start_ns // unit_ns
        packed += [start - before, (start_ns + ns) // unit_ns - start, name]
        before = start
    return packed
