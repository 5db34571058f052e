"""Insight rule for waiting for data: how much, on which ranks, for what, and what to do about it."""

from collections.abc import Sequence
from statistics import median
from typing import Final, NamedTuple

from perfkit.analysis.per_run.loading_causes import main_cause
from perfkit.insights.loader_advice import load_faster
from perfkit.insights.rule import InsightDraft, Rule
from perfkit.insights.run_context import RunContext, besides_stragglers, exposed_without_stragglers, late_in
from perfkit.insights.waiting import MIN_SHARE
from perfkit.schema.common import UNNAMED
from perfkit.schema.rank import RankReport
from perfkit.schema.run import DataLoading
from perfkit.util.formatting import duration, escape_unprintable, rank_list, whole_percent
from perfkit.whatif.changes import NO_INPUT

_MAJORITY: Final = 0.5
_NAMED_SHARE: Final = 0.75
"""Share of the waiting for data from which the ranks that have it are named."""

_HARDLY_ANY: Final = 0.25
"""Share of the longest wait up to which a rank is named as an exception from the others, if it is one of a few."""


class _Where(NamedTuple):
    """The ranks that a sentence about loading is true of."""

    ranks: Sequence[RankReport]
    clause: str
    """Which ones, as the end of a clause; empty if the sentence is about all."""
    place: str = ""
    """The same, in short."""


def _input(context: RunContext) -> InsightDraft | None:
    exposed_ns = exposed_without_stragglers(context, "data_loading")
    loads = context.run.data_loading
    if context.share(exposed_ns) < MIN_SHARE or loads is None:
        return None
    where = _where(context)
    evidence = {"exposed_share": context.share(exposed_ns), "median_load_ns": float(_median_ns(where, loads))}
    if context.load_ratio:
        evidence["load_ratio"] = context.load_ratio
    near, storage, why = "", "", main_cause(where.ranks)
    if loads.file_share is not None:
        evidence["file_share"] = loads.file_share
        if loads.file_share >= _MAJORITY:
            near = f", at {whole_percent(loads.file_share)} of the file's read bandwidth"
            storage = ", or faster storage"
    advice = load_faster(context, why[0] if why else None)
    return InsightDraft(
        f"waiting for data takes {whole_percent(context.share(exposed_ns))} of the step{where.clause}: "
        f"{_loads_clause(context, loads, where)}{near}" + (f"; {why[1]}" if why else ""),
        evidence,
        advice if why or "faster storage" in advice else advice + storage,
        exposed_ns,
        NO_INPUT,
        "data_loading",
    )


def _loads_clause(context: RunContext, loads: DataLoading, where: _Where) -> str:
    """Return how long loads take, and those from memory."""
    source = f" from {escape_unprintable(loads.source)}" if loads.source not in (None, UNNAMED) else ""
    ratio = context.load_ratio if context.load_ratio and context.load_ratio > 1.1 and not where.clause else None
    against = f", {ratio:.1f} times as long as from memory" if ratio else ""
    spans_ns, median_ns = _spans_ns(where.ranks), _median_ns(where, loads)
    count = len(spans_ns) if where.clause else loads.count
    waited_ns = sum(step.exposed_ns.data_loading for rank in where.ranks for step in rank.steps)
    # Where few loads take most of the time, the median one tells nothing of it.
    few = median_ns * count < _MAJORITY * waited_ns
    longest_ns = max(spans_ns, default=loads.max_ns) if where.clause else loads.max_ns
    longest = f", the longest {duration(longest_ns)}" if few else ""
    return f"the median load{source}{where.place} takes {duration(median_ns)}{longest}{against}"


def _median_ns(where: _Where, loads: DataLoading) -> int:
    return round(median(_spans_ns(where.ranks) or [loads.median_ns])) if where.clause else loads.median_ns


def _spans_ns(ranks: Sequence[RankReport]) -> list[int]:
    return [span_ns for rank in ranks for step in rank.steps for span_ns in step.loads.spans_ns]


def _where(context: RunContext) -> _Where:
    """Return the ranks that the waiting is on: not the stragglers, and only those that have nearly all of it.

    Half of all loads may be short, and half long: there is no load between the two that takes the median time. Where
    most ranks wait, the few that hardly do are named.
    """
    ranks = context.run.ranks
    if beside := besides_stragglers(context, "data_loading"):
        late = {row.rank for row in late_in(context, "data_loading")}
        return _Where([rank for rank in ranks if rank.rank not in late] or ranks, beside, " on the others")
    waits_ns = {rank.rank: _wait_ns(rank) for rank in ranks if rank.rank is not None}
    most = [number for number, wait_ns in waits_ns.items() if 2 * wait_ns >= max(waits_ns.values())]
    share = sum(waits_ns[number] for number in most) / (sum(waits_ns.values()) or 1.0)
    if len(waits_ns) < len(ranks) or len(most) == len(ranks) or share < _NAMED_SHARE:
        return _Where(ranks, "")
    who = rank_list(most)
    if 2 * len(most) > len(ranks):
        few = [number for number in waits_ns if number not in most]
        # Ranks without a trace may wait or not.
        if context.run.is_partial or max(waits_ns[number] for number in few) > _HARDLY_ANY * max(waits_ns.values()):
            return _Where(ranks, "")
        who = f"all ranks but {rank_list(few)}"
    return _Where([rank for rank in ranks if rank.rank in most], f", most of it on {who}", " there")


def _wait_ns(rank: RankReport) -> float:
    """Return the exposed data loading of a rank's mean step."""
    return sum(step.exposed_ns.data_loading for step in rank.steps) / max(1, len(rank.steps))


INPUT: Final = Rule("input", _input)
