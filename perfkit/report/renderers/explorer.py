"""The data of a page's scripts: every rank and step of a run, the timelines of some, and flame graphs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Final

from perfkit.base.formatting import escape_unprintable
from perfkit.python_functions import PYTHON_FUNCTION
from perfkit.records.aggregate import mean_own_step_ns, traced_step_ns
from perfkit.records.common import CATEGORIES
from perfkit.records.per_run.communication import LinkedCollective
from perfkit.records.per_run.flame_graph import FlameGraph, FlameView, FlameWeight
from perfkit.records.per_run.step_timeline import NAME_LENGTH, StepTimeline, TimelineLane, TimelineRow
from perfkit.records.rank import RankReport, StepBreakdown
from perfkit.records.run import RunReport
from perfkit.report.content.answer import marker_option, shell_path
from perfkit.tables.labels import COLOURS, LONG, rank_label, rank_labels, step_label
from perfkit.tables.specification import Instance

MOST_RANKS: Final = 1024
MOST_CELLS: Final = 50_000
"""Steps times ranks."""
_FEWEST_STEPS: Final = 16
_STEP_DIGITS: Final = 5


@dataclass(frozen=True, slots=True)
class RankSteps:
    """Times of steps by rank, in multiples of `unit_ns`."""

    unit_ns: int
    categories: Sequence[tuple[str, str]]
    """Key and label of each, in the order of the times."""
    steps: Sequence[str]
    ranks: Sequence[tuple[str, str]]
    """Label and host of each."""
    times: Sequence[Sequence[Sequence[int] | None]]
    """By rank, then by step: exposed time per category; None for a step that the rank lacks."""
    stragglers: Mapping[str, str]
    """Why a rank is a straggler, by its label."""
    note: str
    """Which ranks and steps are left out; empty if none are."""


def rank_steps(run: RunReport) -> RankSteps | None:
    """Return the steps of a run by rank; None without steps."""
    ranks, known = shown_ranks(run), sum(1 for rank in run.ranks if rank.steps)
    if not ranks:
        return None
    numbers = sorted({step.step for rank in ranks for step in rank.steps}, key=lambda n: (n is None, n or 0))
    kept = _kept_steps(ranks, numbers)
    unit_ns = _unit_ns(ranks)
    tables = [{step.step: step for step in rank.steps} for rank in ranks]
    return RankSteps(
        unit_ns=unit_ns,
        categories=[(name, LONG[name]) for name in CATEGORIES],
        steps=[step_label(number) for number in kept],
        ranks=[
            (label, escape_unprintable(rank.host or "")) for label, rank in zip(rank_labels(ranks), ranks, strict=True)
        ],
        times=[[_times(table.get(number), unit_ns) for number in kept] for table in tables],
        stragglers=_stragglers(run),
        note=_note(len(ranks), known, len(kept), len(numbers)),
    )


def shown_ranks(run: RunReport) -> list[RankReport]:
    """Return the ranks of `rank_steps`, in its order; none without steps."""
    return _kept([rank for rank in run.ranks if rank.steps], _late(run))


def _late(run: RunReport) -> set[int | None]:
    return {one.rank for one in run.cross_rank.stragglers} if run.cross_rank else set()


def _kept(ranks: Sequence[RankReport], late: set[int | None]) -> list[RankReport]:
    """Return the stragglers, and those that take longest without communication; in order."""
    if len(ranks) <= MOST_RANKS:
        return list(ranks)
    by_own_time = sorted(ranks, key=lambda rank: (rank.rank not in late, -mean_own_step_ns(rank)))
    kept = {id(rank) for rank in by_own_time[:MOST_RANKS]}
    return [rank for rank in ranks if id(rank) in kept]


def _kept_steps(ranks: Sequence[RankReport], numbers: Sequence[int | None]) -> list[int | None]:
    """Return the longest steps, in order, as many as there is room for."""
    most = max(_FEWEST_STEPS, MOST_CELLS // len(ranks))
    if len(numbers) <= most:
        return list(numbers)
    longest = traced_step_ns(ranks)
    kept = set(sorted(longest, key=lambda number: -longest[number])[:most])
    return [number for number in numbers if number in kept]


def _unit_ns(ranks: Sequence[RankReport]) -> int:
    """Return a power of ten that leaves the mean step about `_STEP_DIGITS` digits."""
    mean = fmean(step.wall_ns for rank in ranks for step in rank.steps)
    return int(10 ** max(0, len(str(int(mean))) - _STEP_DIGITS))


def _times(step: StepBreakdown | None, unit_ns: int) -> list[int] | None:
    return None if step is None else [round(getattr(step.exposed_ns, name) / unit_ns) for name in CATEGORIES]


def _stragglers(run: RunReport) -> dict[str, str]:
    if run.cross_rank is None:
        return {}
    return {
        rank_label(one.rank): f"takes longer than the others, in {LONG[one.category]}"
        for one in run.cross_rank.stragglers
    }


def _note(ranks: int, of_ranks: int, steps: int, of_steps: int) -> str:
    shown = []
    if ranks < of_ranks:
        which = "are stragglers or take longest without communication"
        shown.append(f"the {ranks:,} of {of_ranks:,} ranks that {which}")
    if steps < of_steps:
        shown.append(f"the {steps:,} longest of {of_steps:,} steps")
    return f"Shown are {' and '.join(shown)}." if shown else ""


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


# ---- flame graphs ----------------------------------------------------------------------------------------------------


_WHAT: Final[dict[FlameWeight, str]] = {
    "samples": "time of the main thread",
    "device": "device time",
    "host": "time of operators on the host",
}
_BY: Final[dict[FlameView, str]] = {"python": "function", "module": "module"}


def flames(run: RunReport) -> list[dict[str, Any]]:
    """Return the flame graphs of a run for its page: frames as depth, name and length in ns, flat."""
    return [_flame(graph) for graph in run.flame_graphs]


def _flame(graph: FlameGraph) -> dict[str, Any]:
    return {
        "by": "sampled" if graph.weight == "samples" else f"by {_BY[graph.by]}",
        "title": f"{_WHAT[graph.weight]} of rank {rank_label(graph.rank)} by {_BY[graph.by]}, mean step",
        "total_ns": graph.total_ns,
        "names": [_shown(name) for name in graph.names],
        "lanes": graph.lanes,
        "frames": [value for frame in zip(graph.depth, graph.name, graph.duration_ns, strict=True) for value in frame],
        "left_out": graph.left_out,
    }


def _shown(name: str) -> str:
    """Return a name as a frame shows it: of a Python function, first what it is called, then where it is."""
    found = PYTHON_FUNCTION.fullmatch(escape_unprintable(name))
    return f"{found['function']}  {found['file']}:{found['line']}" if found else escape_unprintable(name)
