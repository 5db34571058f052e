"""Verdict: one sentence on the bottleneck of a run."""

from collections import Counter
from collections.abc import Collection
from typing import Final

from msgspec.structs import replace

from perfkit.analysis.cross_rank.straggler_sentences import one_off_clause, stragglers_sentence
from perfkit.schema.common import CATEGORIES, Category, Finding
from perfkit.schema.cross_rank import CrossRankSummary
from perfkit.schema.rank import RankReport
from perfkit.schema.run import Bound, DataLoading, Efficiency, ProfilerCost, Verdict
from perfkit.util.formatting import duration

_MIN_BOTTLENECK_SHARE: Final = 0.2
"""Share of the step from which an overhead counts as the bottleneck."""

_MIN_GAIN: Final = 0.05
"""Share of the step that mending stragglers must be able to save for the verdict to name them."""

_MAJORITY: Final = 0.5
"""Share of compute from which a run is compute-bound."""

_MIN_COST_RATIO: Final = 1.1
"""Ratio of recorded to plain step time from which the verdict mentions the profiler's cost."""

_MIN_SHOWN_SHARE: Final = 0.0005
"""A smaller share would be shown as 0.0 %."""

_BOUNDS: Final[dict[Category, Bound]] = {
    "communication": "communication",
    "memcpy": "memcpy",
    "data_loading": "input",
    "overhead": "host",
}

_LABELS: Final[dict[Category, str]] = {
    "compute": "compute",
    "communication": "exposed communication",
    "memcpy": "exposed copies",
    "data_loading": "waiting for data",
    "overhead": "idle (launch gaps, Python, synchronisation)",
}


def exposed_shares(ranks: list[RankReport]) -> dict[Category, float]:
    """Return each category's share of the wall time, over all ranks and steps; empty without steps."""
    wall_ns = sum(step.wall_ns for rank in ranks for step in rank.steps)
    if not wall_ns:
        return {}
    return {
        category: sum(getattr(step.exposed_ns, category) for rank in ranks for step in rank.steps) / wall_ns
        for category in CATEGORIES
    }


def classify_bottleneck(
    ranks: list[RankReport],
    loading: DataLoading | None,
    compared: CrossRankSummary | None = None,
    efficiency: Efficiency | None = None,
) -> Verdict:
    """Return the bottleneck of the run, with its evidence.

    Stragglers come first if a step could be noticeably shorter without their delays, by at least half of the exposed
    communication; then the largest overhead that is large enough, then compute.
    """
    shares = exposed_shares(ranks)
    if not shares:
        return Verdict(bound="unknown", share=0.0, sentence="no verdict: all steps have zero duration")
    overhead = max(_BOUNDS, key=lambda category: shares[category])
    if compared and (lost := _lost_to_stragglers(compared, shares, overhead, _mean_wall(ranks))):
        return lost
    if shares[overhead] < _MIN_BOTTLENECK_SHARE:
        return _compute_verdict(shares, overhead)
    sentence = _overhead_sentence(overhead, shares[overhead], ranks, loading)
    if overhead == "communication":
        sentence += _wait_share(efficiency, compared)
    return Verdict(bound=_BOUNDS[overhead], share=shares[overhead], sentence=sentence)


def _lost_to_stragglers(
    compared: CrossRankSummary, shares: dict[Category, float], overhead: Category, wall_ns: float
) -> Verdict | None:
    """Return the verdict that stragglers are the bottleneck, if what mending them could give says so."""
    gain = compared.stragglers_gain_ns / wall_ns
    if not compared.stragglers or gain < max(_MIN_GAIN, shares["communication"] / 2, shares[overhead] / 2):
        return None
    sentence = stragglers_sentence(compared.stragglers, compared.stragglers_gain_ns)
    name = "straggler" if len(compared.stragglers) == 1 else "stragglers"
    return Verdict(bound="imbalance", share=min(gain, 1.0), sentence=f"{name}: {sentence}")


def add_caveats(verdict: Verdict, findings: Collection[Finding], cost: ProfilerCost | None, traces: int) -> Verdict:
    """Return the verdict with its caveats, or an unknown one if no device activity was recorded.

    Args:
        verdict: result of `classify_bottleneck`.
        findings: all findings of the run.
        cost: cost of the profiler.
        traces: number of traces.
    """
    codes = Counter(finding.code for finding in findings)
    lost = codes["no_device_events"]
    if lost >= traces > 0:
        sentence = "no verdict: device activity was not recorded, and host operators alone do not show the bottleneck"
        return Verdict(bound="unknown", share=0.0, sentence=sentence)
    sentence = verdict.sentence
    if lost:
        sentence += f"; {lost} of {traces} traces have no device activity"
    if verdict.bound == "host" and cost and cost.ratio and cost.ratio >= _MIN_COST_RATIO:
        added = duration((cost.recorded_step_ns or 0) - (cost.plain_step_ns or 0))
        sentence += f"; the profiler itself adds {added} per step"
    if "damaged_trace" in codes:
        sentence += "; traces are damaged, and missing events count as idle time"
    if "timestamp_gap" in codes:
        sentence += "; some timestamps are hours from the others and may inflate their steps"
    return replace(verdict, sentence=sentence)


def _wait_share(efficiency: Efficiency | None, compared: CrossRankSummary | None) -> str:
    """Return the share of exposed communication spent waiting for other ranks, if known for most of it."""
    if efficiency is None:
        return ""
    exposed_ns = efficiency.wait_ns + efficiency.transfer_ns
    if not exposed_ns or efficiency.unmatched_ns > _MAJORITY * exposed_ns:
        return ""
    once = one_off_clause(compared, efficiency.wait_ns) if compared else ""
    return f", {_percent(efficiency.wait_ns / exposed_ns)} of it waiting for other ranks{once}"


def _mean_wall(ranks: list[RankReport]) -> float:
    walls = [step.wall_ns for rank in ranks for step in rank.steps]
    return sum(walls) / len(walls)


def _compute_verdict(shares: dict[Category, float], overhead: Category) -> Verdict:
    share = shares["compute"]
    named = f"{_LABELS[overhead]}, {100 * shares[overhead]:.1f} %"
    if share < _MAJORITY:
        sentence = f"no single bottleneck: {_percent(share)} of the step is compute; the biggest overhead is {named}"
        return Verdict(bound="unknown", share=share, sentence=sentence)
    sentence = f"compute-bound: {_percent(share)} of the step is compute"
    if shares[overhead] >= _MIN_SHOWN_SHARE:
        sentence += f"; the biggest overhead is {named}"
    return Verdict(bound="compute", share=share, sentence=sentence)


def _overhead_sentence(overhead: Category, share: float, ranks: list[RankReport], loading: DataLoading | None) -> str:
    percent = _percent(share)
    if overhead == "data_loading":
        where = f" on rank {loading.max_rank}" if loading and loading.max_rank is not None else ""
        slowest = f"; the slowest load took {duration(loading.max_ns)}{where}" if loading else ""
        return f"input-bound: {percent} of the step is spent waiting for data{slowest}"
    if overhead == "communication":
        return f"communication-bound: {percent} of the step is exposed communication{_top_collective(ranks)}"
    if overhead == "memcpy":
        return f"copy-bound: {percent} of the step is exposed copies and memsets"
    gpu = any(rank.device == "gpu" for rank in ranks)
    idle = f"the GPU is idle for {percent} of the step" if gpu else f"no operator runs for {percent} of the step"
    return f"host-bound: {idle}: launch gaps, Python, synchronisation"


def _top_collective(ranks: list[RankReport]) -> str:
    exposed: dict[str, int] = {}
    for rank in ranks:
        for row in rank.collectives:
            exposed[row.operator] = exposed.get(row.operator, 0) + row.exposed_ns
    total = sum(exposed.values())
    if not total:
        return ""
    operator = max(exposed, key=lambda name: exposed[name])
    return f"; {_percent(exposed[operator] / total)} of it {operator}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
