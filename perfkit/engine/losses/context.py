"""The input of rules on losses: a run, its mean step, and the scaling series that it is part of."""

import re
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from perfkit.records.aggregate import exposed_sums, longest_mean_step_ns
from perfkit.records.common import Category
from perfkit.records.cross_rank import Straggler
from perfkit.records.per_run.communication import DimensionStat
from perfkit.records.per_run.ledger import Ledger
from perfkit.records.run import RunReport
from perfkit.records.scaling import MultiRunSummary, OptionComparison, ScalingPoint, ScalingSeries

_COMPILED: Final = re.compile(r"triton_|Torch-Compiled Region|## Call CompiledFxGraph|CompiledFunction")
MIN_SHARE: Final = 0.05
"""Smallest share of the step that is reported."""
MIN_COMMON_SHARE: Final = 0.1
"""The same of what every step has some of: idle time, element-wise operators, bubbles."""
MANY: Final = 10
"""Collectives or calls per step that are many."""
TINY_BYTES: Final = 16_384
"""Up to this size the time of a collective is nearly all latency."""
_FULL: Final = 0.9
"""Share of a device's memory from which a larger batch is not known to fit."""


class DimensionTime(NamedTuple):
    """Exposed communication of one dimension of parallelism: means per step and rank (ns)."""

    name: str | None
    """As in `perfkit.records.per_run.communication`; None if unknown."""
    exposed_ns: float
    wait_ns: float
    transfer_ns: float
    across_hosts: bool
    """Whether any of its groups is known to span hosts."""

    @property
    def parts(self) -> frozenset[str]:
        """The dimensions that it joins; empty if it is unknown."""
        return frozenset(self.name.split("+")) if self.name else frozenset()


class LossContext(NamedTuple):
    """One run, as rules on losses see it."""

    run: RunReport
    rank_steps: int
    """Number of steps, summed over ranks."""
    step_ns: float
    """Mean step time over the steps of all ranks."""
    exposed_ns: dict[Category, float]
    """Mean exposed time per step, by category."""
    ledger: Ledger
    in_series: tuple[ScalingSeries, ScalingPoint, ScalingPoint] | None
    """Its series, the previous point and its own point; None at the smallest world size or outside a series."""
    load_ratio: float | None
    """Median load time relative to that from memory; None if unknown."""
    known: dict[str, object]
    """What several rules need of the run and one has computed, by a name of theirs."""
    reported: tuple[str, ...] = ()
    """Causes of the losses that subjects before this one reported."""

    @property
    def recorded_steps(self) -> int:
        """Number of steps that any rank recorded."""
        return len({step.step for rank in self.run.ranks for step in rank.steps})

    @property
    def longest_step_ns(self) -> float:
        """Mean step time of the rank on which it is longest, of which no more can be saved."""
        return longest_mean_step_ns(self.run)

    def share(self, ns: float) -> float:
        return ns / self.step_ns

    def longest_wait_ns(self, wait_ns: float) -> float:
        """Return the bound on what a mean step could save if nobody waited for others (ns).

        What the rank that communicates most spends on it, without transfers: the mean over ranks is less than a step
        loses, because the rank that all wait for hardly waits. No more than the step, which some ranks may record in
        part.

        Args:
            wait_ns: exposed waiting per step, the mean over ranks.
        """
        longest: dict[int | None, int] = defaultdict(int)
        for rank in self.run.ranks:
            for step in rank.steps:
                longest[step.step] = max(longest[step.step], step.exposed_ns.communication)
        mean_ns = sum(longest.values()) / len(longest) if longest else 0.0
        return min(max(wait_ns, mean_ns - (self.exposed_ns["communication"] - wait_ns)), self.longest_step_ns)

    def option(self, name: str) -> object:
        """Return an option of the run; None if unknown."""
        return (self.run.config or {}).get(name)

    def dimensions(self) -> list[DimensionTime]:
        """Return the communication by dimension; empty without collectives of known ranks."""
        summary = self.run.dimensions
        rows: dict[str | None, list[DimensionStat]] = defaultdict(list)
        for row in summary.rows if summary else ():
            rows[row.dimension].append(row)
        steps = summary.rank_steps if summary and summary.rank_steps else 1
        return [
            DimensionTime(
                name=name,
                exposed_ns=sum(row.exposed_ns for row in several) / steps,
                wait_ns=sum(row.exposed_wait_ns for row in several) / steps,
                transfer_ns=sum(row.exposed_transfer_ns for row in several) / steps,
                across_hosts=any(row.across_hosts for row in several),
            )
            for name, several in rows.items()
        ]

    def waits_in_bubbles(self) -> bool:
        """Return whether more than half of exposed communication is the bubble of pipelines."""
        rows = [rank for pipeline in self.run.pipelines for rank in pipeline.ranks]
        return sum(row.bubble_ns for row in rows) > sum(row.other_communication_ns for row in rows)

    def predicted_saving(self, change: str) -> float | None:
        """Return what a change would save per step (ns), by replay; None if it was not predicted."""
        return next((one.saving_ns for one in self.run.predicted_savings if one.change == change), None)

    @property
    def is_own(self) -> bool:
        """Whether a workload of perfkit was trained, which has options for what other programs do in their loop."""
        return self.option("accumulate") is not None

    @property
    def is_compiled(self) -> bool:
        """Whether the run is known to run code of torch.compile."""
        if self.option("compile") is True:
            return True
        ranks = self.run.ranks
        idle = (row for rank in ranks for row in rank.idle.causes)
        names = (name for row in idle for name in (row.detail, row.context) if name)
        work = (row.name for rank in ranks for rows in (rank.operators, rank.phases) for row in rows)
        return any(_COMPILED.match(name) for name in (*work, *names))

    @property
    def is_memory_full(self) -> bool:
        """Whether tensors are known to fill the memory of a device: nothing that needs more is advised."""
        uses = [use for rank in self.run.ranks for use in rank.memory if use.limit_bytes]
        return any(use.peak.allocated_bytes >= _FULL * (use.limit_bytes or 0) for use in uses)

    def has(self, code: str) -> bool:
        return any(finding.code == code for finding in self.run.findings)


def loss_context(run: RunReport, multi_run: MultiRunSummary | None) -> LossContext | None:
    """Return the context of a run; None if it failed, or has no steps or no verdict.

    A single step may be atypical: whoever prints an insight of it states that it is the only one.
    """
    steps = [step for rank in run.ranks for step in rank.steps if step.step is not None]
    wall_ns = sum(step.wall_ns for step in steps)
    # The last steps of a failed run may be atypical.
    if not wall_ns or run.state == "failed" or run.verdict.bound == "unknown" or run.ledger is None:
        return None
    return LossContext(
        run=run,
        rank_steps=len(steps),
        step_ns=wall_ns / len(steps),
        ledger=run.ledger,
        exposed_ns={name: time_ns / len(steps) for name, time_ns in exposed_sums(steps).items()},
        in_series=_in_series(run, multi_run.series if multi_run else ()),
        load_ratio=_load_ratio(run, multi_run.option_comparisons if multi_run else ()),
        known={},
    )


def _in_series(
    run: RunReport, all_series: Sequence[ScalingSeries]
) -> tuple[ScalingSeries, ScalingPoint, ScalingPoint] | None:
    for series in all_series:
        for before, point in pairwise(series.points):
            if run.run in point.step_time.runs:
                return series, before, point
    return None


def _load_ratio(run: RunReport, comparisons: Sequence[OptionComparison]) -> float | None:
    by_source = (comparison for comparison in comparisons if comparison.option == "source")
    rows = (row for comparison in by_source for row in comparison.rows if run.run in row.step_time.runs)
    return next((row.loads[0].ratio.value for row in rows if row.loads and row.loads[0].ratio), None)


def stragglers_of(run: RunReport) -> list[Straggler]:
    """Return the ranks that are late in more than one step; empty if fixing them could save no time.

    On a busy machine too: they may have waited for a core.
    """
    across = None if run.on_busy_machine else run.cross_rank
    return across.stragglers if across is not None and across.stragglers_gain_ns else []


def late_in(context: LossContext, category: Category) -> list[Straggler]:
    """Return the stragglers that are late in a category, if fixing them could save time."""
    return [row for row in stragglers_of(context.run) if row.category == category]


def exposed_without_stragglers(context: LossContext, category: Category) -> float:
    """Return the exposed time per step without the stragglers' excess, which counts as the others' waiting (ns)."""
    late = late_in(context, category)
    alone = sum(row.lag_ns * row.steps_late / row.steps for row in late) / len(context.run.ranks)
    return context.exposed_ns[category] - alone
