"""Global efficiency of a series' points, and the factors that account for losses (metrics.md sections 6 and 7)."""

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean
from typing import Final

from perfkit.base.statistics.bootstrap import FEWEST_RUNS, FEWEST_STEPS, generator, means, medians
from perfkit.records.facts import statement
from perfkit.records.run import FACTORS, RunReport
from perfkit.records.scaling import Estimate, Factors, LostEfficiency, ScalingPoint
from perfkit.subjects.scaling.series import Group
from perfkit.subjects.scaling.step_time import estimate

PARTS: Final = (*FACTORS, "computation_scaling")
"""The factors whose product is global efficiency."""

Parts = Factors | str
"""The factors, or why there are none."""


def factors(group: Group) -> dict[int, Parts]:
    """Return the factors of each world size: geometric means over its runs, which keep them multiplicative."""
    reasons = {size: _why_no_factors(runs) for size, runs in group.points.items()}
    least = min(reasons)
    work = {size: _mean_computation(runs) for size, runs in group.points.items() if reasons[size] is None}
    by_size: dict[int, Parts] = {}
    for size, runs in group.points.items():
        reason = reasons[size] or reasons[least]
        grown = 1.0 if group.kind == "strong" else size / least
        by_size[size] = reason or _factors(runs, grown * work[least] / work[size])
    return by_size


def _why_no_factors(runs: Sequence[RunReport]) -> str | None:
    """Return why there are no factors; None if there are."""
    for run in runs:
        if not run.ranks:
            return statement("no_trace")
        if len(run.ranks) != run.world_size:
            return statement("traces_of", traces=len(run.ranks), ranks=run.world_size)
        if len({len(rank.steps) for rank in run.ranks}) != 1:
            return statement("unequal_steps")
        if not run.ranks[0].steps:
            return statement("no_step_recorded")
        if run.efficiency is None or run.efficiency.parallel is None:
            return (run.efficiency and run.efficiency.reason) or statement("ranks_unknown")
    return None


def computation(runs: Sequence[RunReport], stream: int) -> Estimate | None:
    """Return the compute time per step, summed over ranks (ns); None without the traces of all ranks."""
    if _why_no_factors(runs) is not None:
        return None
    draw = generator(stream)
    if len(runs) >= FEWEST_RUNS:
        return estimate(_mean_computation(runs), medians([_mean_computation([run]) for run in runs], draw))
    steps = [[step.exposed_ns.compute for step in rank.steps] for rank in runs[0].ranks]
    enough = len(runs) == 1 and len(steps[0]) >= FEWEST_STEPS
    sums = [float(sum(ranks)) for ranks in zip(*steps, strict=True)]
    return estimate(_mean_computation(runs), means(sums, draw) if enough else None)


def _mean_computation(runs: Sequence[RunReport]) -> float:
    return _mean([run.efficiency.sum_compute_ns / len(run.ranks[0].steps) for run in runs if run.efficiency])


def _factors(runs: Sequence[RunReport], computation_scaling: float) -> Factors:
    parts = {name: _mean([getattr(run.efficiency, name) for run in runs]) for name in FACTORS}
    parts["computation_scaling"] = computation_scaling
    return Factors(global_efficiency=math.prod(parts.values()), **parts)


def _mean(values: list[float]) -> float:
    """Return the geometric mean: the mean of products is the product of the means."""
    return math.exp(fmean(map(math.log, values)))


def efficiency_losses(points: Sequence[ScalingPoint]) -> list[LostEfficiency]:
    """Return the efficiency lost between neighbouring world sizes that both have factors."""
    return [
        attribute_loss(before.world_size, before.factors, after.world_size, after.factors)
        for before, after in pairwise(points)
        if before.factors and after.factors
    ]


def attribute_loss(from_size: int, before: Factors, to_size: int, after: Factors) -> LostEfficiency:
    """Attribute the difference of two global efficiencies to their factors, in percentage points.

    With G = product of f, G1 - G2 = L (ln G1 - ln G2) = sum of L (ln f1 - ln f2), where L is the logarithmic mean of G1
    and G2: each factor's share is that of its logarithm (the logarithmic mean Divisia index, Ang 2004).
    """
    mean = logarithmic_mean(before.global_efficiency, after.global_efficiency)
    parts = {name: 100 * mean * math.log(getattr(before, name) / getattr(after, name)) for name in PARTS}
    return LostEfficiency(from_size=from_size, to_size=to_size, total=math.fsum(parts.values()), **parts)


def logarithmic_mean(a: float, b: float) -> float:
    """Return (a - b) / ln(a / b), or a if they are equal; both must be positive."""
    ratio = math.log(a / b)
    # Near 1 the ratio of two tiny differences is noise; the series a (1 - r/2 + r^2/6) is accurate there.
    return (a - b) / ratio if abs(ratio) > 1e-5 else a * (1 - ratio / 2 + ratio * ratio / 6)
