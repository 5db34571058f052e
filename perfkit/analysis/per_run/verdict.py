"""One sentence on what limits a run."""

from collections import Counter
from collections.abc import Collection
from typing import Final

from msgspec.structs import replace

from perfkit.analysis.cross_rank.stragglers import straggler_sentence
from perfkit.schema.common import CATEGORIES, Category, Finding
from perfkit.schema.cross_rank import Straggler
from perfkit.schema.rank import RankReport
from perfkit.schema.run import Bound, DataLoading, Efficiency, ProfilerCost, Verdict
from perfkit.util.formatting import duration

_WORTH_NAMING: Final = 0.2
"""Below this share of the step, the largest loss is no longer what bounds it."""

_MOST: Final = 0.5
"""From this share on a run is bound by computing."""

_COSTLY: Final = 1.1
"""From this ratio of a recorded step to a plain one on, the profiler's cost is part of what is seen."""

_SHOWN: Final = 0.0005
"""What is smaller would read as 0.0 %."""

_BOUNDS: Final[dict[Category, Bound]] = {
    "communication": "communication",
    "memcpy": "memcpy",
    "data_loading": "input",
    "overhead": "host",
}

WORDS: Final[dict[Category, str]] = {
    "compute": "compute",
    "communication": "exposed communication",
    "memcpy": "exposed copies",
    "data_loading": "waiting for data",
    "overhead": "overhead (launch gaps, Python, synchronisation)",
}


def exposed_shares(ranks: list[RankReport]) -> dict[Category, float]:
    """Return each category's share of the wall time, over all ranks and steps; empty where there is none."""
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
    straggler: Straggler | None,
    efficiency: Efficiency | None = None,
) -> Verdict:
    """Say what limits the run, with the evidence.

    A rank that the others wait for comes first where it explains at least half of their exposed communication; then the
    largest loss that is worth naming; else the run computes.
    """
    shares = exposed_shares(ranks)
    if not shares:
        return Verdict(bound="unknown", share=0.0, sentence="no verdict: no step has any duration")
    loss = max(_BOUNDS, key=lambda category: shares[category])
    waits = shares["communication"] * _mean_wall(ranks)
    if (
        straggler
        and straggler.delays_others
        and straggler.lag_ns >= 0.5 * waits
        and straggler.share >= shares[loss] / 2
    ):
        return Verdict(
            bound="imbalance", share=straggler.share, sentence=f"imbalanced: {straggler_sentence(straggler)}"
        )
    if shares[loss] < _WORTH_NAMING:
        return _computing(shares, loss)
    sentence = _loss_sentence(loss, shares[loss], ranks, loading)
    if loss == "communication":
        sentence += _waiting(efficiency)
    return Verdict(bound=_BOUNDS[loss], share=shares[loss], sentence=sentence)


def add_caveats(verdict: Verdict, findings: Collection[Finding], cost: ProfilerCost | None, traces: int) -> Verdict:
    """Return a verdict that says what makes it doubtful, or none where what it would be about was not recorded.

    Args:
        verdict: as `judge` has it.
        findings: all of the run.
        cost: of the profiler.
        traces: how many there are.
    """
    codes = Counter(finding.code for finding in findings)
    lost = codes["no_device_events"]
    if lost >= traces > 0:
        sentence = "no verdict: what the device did was not recorded, and the host's operators do not tell"
        return Verdict(bound="unknown", share=0.0, sentence=sentence)
    sentence = verdict.sentence
    if lost:
        sentence += f"; {lost} of {traces} traces have lost what the device did"
    if verdict.bound == "host" and cost and cost.ratio and cost.ratio >= _COSTLY:
        added = duration((cost.recorded_step_ns or 0) - (cost.plain_step_ns or 0))
        sentence += f"; the profiler itself adds {added} to a step"
    if "damaged_trace" in codes:
        sentence += "; traces are damaged, and what is lost of them shows as overhead"
    if "timestamp_gap" in codes:
        sentence += "; some times lie hours from the others, and make the steps that they fall into as long"
    return replace(verdict, sentence=sentence)


def _waiting(efficiency: Efficiency | None) -> str:
    """Say how much of exposed communication is waiting for other ranks, where that is known of most of it."""
    if efficiency is None:
        return ""
    exposed_ns = efficiency.wait_ns + efficiency.transfer_ns
    if not exposed_ns or efficiency.unmatched_ns > _MOST * exposed_ns:
        return ""
    return f", {_percent(efficiency.wait_ns / exposed_ns)} of it waiting for other ranks"


def _mean_wall(ranks: list[RankReport]) -> float:
    walls = [step.wall_ns for rank in ranks for step in rank.steps]
    return sum(walls) / len(walls)


def _computing(shares: dict[Category, float], loss: Category) -> Verdict:
    share = shares["compute"]
    named = f"{WORDS[loss]}, {100 * shares[loss]:.1f} %"
    if share < _MOST:
        sentence = f"no single limit: {_percent(share)} of the step computes, the largest loss is {named}"
        return Verdict(bound="unknown", share=share, sentence=sentence)
    sentence = f"compute-bound: {_percent(share)} of the step computes"
    if shares[loss] >= _SHOWN:
        sentence += f"; the largest loss is {named}"
    return Verdict(bound="compute", share=share, sentence=sentence)


def _loss_sentence(loss: Category, share: float, ranks: list[RankReport], loading: DataLoading | None) -> str:
    percent = _percent(share)
    if loss == "data_loading":
        where = f" on rank {loading.max_rank}" if loading and loading.max_rank is not None else ""
        slowest = f"; slowest load {duration(loading.max_ns)}{where}" if loading else ""
        return f"input-bound: {percent} of the step waits for data{slowest}"
    if loss == "communication":
        return f"communication-bound: {percent} of the step is communication that nothing hides{_top_collective(ranks)}"
    if loss == "memcpy":
        return f"copy-bound: {percent} of the step is copies and memsets that nothing hides"
    return (
        f"host-bound: for {percent} of the step nothing runs where the work should be: "
        "launch gaps, Python, synchronisation"
    )


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
