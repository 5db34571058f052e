"""Waiting for data: how much, on which ranks, for what, and what can still help in the run."""

from collections.abc import Sequence
from statistics import median
from typing import Final, NamedTuple

from perfkit.engine.losses.context import MIN_SHARE, LossContext, exposed_without_stragglers, late_in
from perfkit.engine.losses.loading import load_faster
from perfkit.engine.losses.loss import Loss, Rules
from perfkit.engine.runs.data_loading import main_cause
from perfkit.engine.whatif.changes import NO_INPUT
from perfkit.records.aggregate import MAJORITY
from perfkit.records.facts import fact
from perfkit.records.per_rank.loading import WaitCause
from perfkit.records.rank import RankReport
from perfkit.records.run import DataLoading

_NAMED_SHARE: Final = 0.75
"""Share of the waiting for data from which the ranks that have it are named."""


_OWN_WORK: Final[frozenset[WaitCause]] = frozenset({"transforming", "collating", "waiting"})
"""Causes that are the program's own, and neither storage nor a free core."""


class _Where(NamedTuple):
    """The ranks that wait for data."""

    ranks: Sequence[RankReport]
    some: bool = False
    """Whether there are others."""


def slow_input(context: LossContext) -> Loss | None:
    """Waiting for data."""
    exposed_ns = exposed_without_stragglers(context, "data_loading")
    share, loads = context.share(exposed_ns), context.run.data_loading
    if share < MIN_SHARE or loads is None:
        return None
    where, row = _where(context), context.ledger.of("data_loading")
    evidence = {"exposed_share": share, "median_load_ns": float(_median_ns(where, loads))}
    if context.load_ratio:
        evidence["load_ratio"] = context.load_ratio
    near, why = False, main_cause(where.ranks)
    if loads.file_share is not None:
        evidence["file_share"] = loads.file_share
        near = loads.file_share >= MAJORITY
    advice = load_faster(context, why[0] if why else None)
    faster = (fact("or_faster_storage"),) if near and not why and not advice.name.endswith("_storage") else ()
    return Loss(
        cause=why[0] if why else "input",
        row="data_loading",
        code=row.code.text if row is not None and row.code else None,
        ranks=tuple(rank.rank for rank in where.ranks if rank.rank is not None) if where.some else (),
        facts=(why[1],) if why else (),
        evidence=evidence,
        remedy=(advice, *faster),
        per_step_ns=exposed_ns,
        change=NO_INPUT,
        blames=None if why and why[0] in _OWN_WORK else "storage",
    )


def _median_ns(where: _Where, loads: DataLoading) -> int:
    return round(median(_spans_ns(where.ranks) or [loads.median_ns])) if where.some else loads.median_ns


def _spans_ns(ranks: Sequence[RankReport]) -> list[int]:
    return [span_ns for rank in ranks for step in rank.steps for span_ns in step.loads.spans_ns]


def _where(context: LossContext) -> _Where:
    """Return the ranks that the waiting is on: not the stragglers, and only those that have nearly all of it.

    Half of all loads may be short, and half long: there is no load between the two that takes the median time.
    """
    ranks = context.run.ranks
    if late := {row.rank for row in late_in(context, "data_loading")}:
        return _Where([rank for rank in ranks if rank.rank not in late] or ranks, some=True)
    waits_ns = {rank.rank: _wait_ns(rank) for rank in ranks if rank.rank is not None}
    most = [number for number, wait_ns in waits_ns.items() if 2 * wait_ns >= max(waits_ns.values())]
    share = sum(waits_ns[number] for number in most) / (sum(waits_ns.values()) or 1.0)
    if len(waits_ns) < len(ranks) or 2 * len(most) > len(ranks) or share < _NAMED_SHARE:
        return _Where(ranks)
    return _Where([rank for rank in ranks if rank.rank in most], some=True)


def _wait_ns(rank: RankReport) -> float:
    """Return the exposed data loading of a rank's mean step."""
    return sum(step.exposed_ns.data_loading for step in rank.steps) / max(1, len(rank.steps))


LOSSES: Final[Rules] = {"input": slow_input}
