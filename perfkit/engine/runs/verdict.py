"""The verdict: where the time of a run goes, as facts."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from perfkit.engine.runs.bubble_verdict import Bubble, explains_stragglers, find_bubble
from perfkit.engine.runs.data_loading import main_cause
from perfkit.records.aggregate import MAJORITY, exposed_sums
from perfkit.records.common import CATEGORIES, Category, Finding
from perfkit.records.cross_rank import CrossRankSummary, OneOffStraggler
from perfkit.records.facts import Fact, Facts, fact
from perfkit.records.per_rank.idle import CAUSES, Cause
from perfkit.records.per_run.pipeline import Pipeline
from perfkit.records.rank import UNKNOWN_OPERATOR, CollectiveStat, RankReport
from perfkit.records.run import Bound, DataLoading, Efficiency, ProfilerCost

_MIN_BOUND_SHARE: Final = 0.8
"""Share of the step from which a category bounds the run: without all others a step would be at most a fifth
shorter."""

_MIN_GAIN: Final = 0.05
"""Share of the step that fixing stragglers must be able to save for the verdict to name them."""

_MIN_SHOWN_SHARE: Final = 0.005
"""A smaller share would be shown as 0 %."""

_BOUNDS: Final[dict[Category, Bound]] = {
    "compute": "compute",
    "communication": "communication",
    "memcpy": "memcpy",
    "data_loading": "input",
    "overhead": "host",
}
_LOSSES: Final[tuple[Category, ...]] = ("communication", "memcpy", "data_loading", "overhead")
_MAY_BE_LOADING: Final[frozenset[Cause]] = frozenset({"host_work", "launch_bound", "not_running", "unknown"})
"""Causes beside which, or as which, a loader without annotations may hide."""
_CAVEATS: Final = ("possible_communication", "damaged_trace", "timestamp_gap")
"""Findings that limit what a verdict says."""
_Label = Fact | Facts | list[Fact]
"""What a category is called."""
_LAUNCHING: Final[Cause] = "launch_bound"
"""What no loader looks like: where it is all of the idle time, none of that is loading."""


class Judgement(Struct, frozen=True, kw_only=True):
    """What `perfkit.records.run.Verdict` says in words."""

    bound: Bound
    share: float
    largest_loss: Category | None = None
    clauses: tuple[Facts, ...]
    """What each of the sentence's clauses is made of."""


def _unknown(why: Fact) -> Judgement:
    return Judgement(bound="unknown", share=0.0, clauses=((fact("no_verdict", why=why),),))


def exposed_shares(ranks: list[RankReport]) -> dict[Category, float]:
    """Return each category's share of the wall time, over all ranks and steps; empty without steps."""
    steps = [step for rank in ranks for step in rank.steps]
    wall_ns = sum(step.wall_ns for step in steps)
    if not wall_ns:
        return {}
    return {category: time_ns / wall_ns for category, time_ns in exposed_sums(steps).items()}


def classify_bottleneck(
    ranks: list[RankReport],
    loading: DataLoading | None,
    compared: CrossRankSummary | None = None,
    efficiency: Efficiency | None = None,
    cost: ProfilerCost | None = None,
    pipelines: Sequence[Pipeline] = (),
) -> Judgement:
    """Return where the run's time goes, with the evidence (metrics.md section 10).

    Stragglers come first if a step could be noticeably shorter without their delays, by at least half of the exposed
    communication and of the largest loss; in a pipeline also if that is more than the bubble.
    """
    shares = exposed_shares(ranks)
    if not shares:
        return _unknown(fact("zero_duration"))
    profiler = _profiler_share(ranks, cost)
    loss = _largest_loss(shares, profiler)
    bubble = find_bubble(pipelines, len(ranks), compared) if loss == "communication" else None
    late = [row.rank for row in compared.stragglers] if compared else []
    has_heavy_stage = bubble is not None and explains_stragglers(pipelines, late)
    if compared and not has_heavy_stage and (lost := _lost_to_stragglers(compared, shares, loss, ranks, cost, bubble)):
        return lost
    bubble = _if_largest(bubble, shares)
    bounding = _bounding_category(shares, min(1.0, _most_of_profiler(cost) / _mean_wall(ranks)))
    if bubble is not None:
        return _bubble_verdict(bubble, shares, is_compute_bound=bounding == "compute")
    idle, idle_details = _describe_idle(ranks, loading)
    found = idle_details if loss == "overhead" else _loss_details(loss, ranks, loading, efficiency, compared)
    details = (fact("in_brackets", parts=found),) if found else ()
    about_idle = [] if _compiles(ranks) else _profiler_clauses(loss, shares, profiler, cost, _mean_wall(ranks))
    about_loss = [(_loss_clause(loss, shares, idle), *details)] if loss and loss != bounding else []
    clauses = [
        (_share_clause(bounding, shares, idle), *(details if bounding == loss else ())),
        *(about_loss + about_idle if loss == "overhead" else about_idle + about_loss),
    ]
    return Judgement(
        bound=_BOUNDS[bounding] if bounding else "none",
        share=shares[bounding] if bounding else shares[loss] if loss else 0.0,
        largest_loss=loss,
        clauses=tuple(clauses),
    )


def _if_largest(bubble: Bubble | None, shares: dict[Category, float]) -> Bubble | None:
    """Return the bubble of the pipelines if it alone is the largest loss; None if it is not."""
    others = [share for category, share in shares.items() if category not in ("compute", "communication")]
    is_largest = bubble is not None and bubble.is_most and bubble.share >= max(others, default=0.0)
    return bubble if is_largest else None


def _lost_to_stragglers(
    compared: CrossRankSummary,
    shares: dict[Category, float],
    loss: Category | None,
    ranks: list[RankReport],
    cost: ProfilerCost | None,
    bubble: Bubble | None,
) -> Judgement | None:
    """Return the verdict that stragglers are the bottleneck, if fixing them could save enough.

    Of what ranks wait for in a pipeline, half may be its bubble, which is the loss only if it is more than the gain.
    """
    gain = compared.stragglers_gain_ns / _mean_wall(ranks)
    largest = shares[loss] if loss else 0.0
    enough = max(shares["communication"], largest) / 2
    if bubble is not None:
        enough = min(enough, max([bubble.share, *(shares[name] / 2 for name in _LOSSES if name != "communication")]))
    if not compared.stragglers or gain < max(_MIN_GAIN, enough):
        return None
    costs = {"gain_ns": compared.stragglers_gain_ns, "profiler_ns": (cost.added_ns if cost else None) or 0}
    clause = (fact("stragglers", late=compared.stragglers, **costs),)
    return Judgement(bound="imbalance", share=min(gain, 1.0), largest_loss=loss, clauses=(clause,))


def _bubble_verdict(bubble: Bubble, shares: dict[Category, float], *, is_compute_bound: bool) -> Judgement:
    """Return the verdict where the largest loss is the bubble of pipelines."""
    details = fact("in_brackets", parts=bubble.details)
    if bubble.share >= _MIN_BOUND_SHARE:
        clause = (fact("bound", bound="bubble", share=bubble.share, what=fact("bubble")), details)
        return Judgement(bound="bubble", share=bubble.share, largest_loss="communication", clauses=(clause,))
    compute = (_share_clause("compute" if is_compute_bound else None, shares, fact("idle_time")),)
    return Judgement(
        bound="compute" if is_compute_bound else "none",
        share=shares["compute"] if is_compute_bound else bubble.share,
        largest_loss="communication",
        clauses=(compute, (fact("largest_loss_is_bubble", share=bubble.share), details)),
    )


def _profiler_share(ranks: list[RankReport], cost: ProfilerCost | None) -> float:
    """Return the share of the recorded step that the profiler takes; 0 if unknown or not measurable."""
    added_ns = cost.added_ns if cost else None
    return min(1.0, added_ns / _mean_wall(ranks)) if added_ns else 0.0


def _most_of_profiler(cost: ProfilerCost | None) -> float:
    """Return what the profiler adds per step (ns), or may add at most where that is not measurable; 0 if unknown."""
    if cost is None:
        return 0.0
    if cost.added_ns is not None:
        return cost.added_ns
    if cost.interval_ns is not None:
        return max(0, cost.interval_ns[1])
    return max(0, (cost.recorded_step_ns or 0) - (cost.plain_step_ns or 0)) if cost.plain_step_ns else 0.0


def _largest_loss(shares: dict[Category, float], profiler: float) -> Category | None:
    """Return the category other than compute that takes most, without the profiler; None if none would be shown."""
    # The profiler works on the host: what it adds may all be idle time.
    judged = {name: shares[name] - (profiler if name == "overhead" else 0) for name in _LOSSES}
    loss = max(judged, key=lambda name: judged[name])
    return loss if judged[loss] >= _MIN_SHOWN_SHARE else None


def _bounding_category(shares: dict[Category, float], profiler: float) -> Category | None:
    """Return the category that takes nearly the whole step even if all that the profiler adds were part of it."""
    if not shares["compute"]:  # nothing computes in no step: it was not recorded
        return None
    least = _MIN_BOUND_SHARE * (1 - profiler)
    return next((name for name in CATEGORIES if 0 < least <= shares[name] - profiler), None)


def with_clauses(verdict: Judgement, clauses: Iterable[Facts]) -> Judgement:
    """Return the verdict with further clauses, unless it is unknown."""
    if verdict.bound == "unknown":
        return verdict
    return replace(verdict, clauses=(*verdict.clauses, *clauses))


def add_caveats(verdict: Judgement, findings: Collection[Finding], traces: int) -> Judgement:
    """Return the verdict with its caveats, or an unknown one without traces, device activity, or one job.

    Args:
        verdict: result of `classify_bottleneck`.
        findings: all findings of the run.
        traces: number of traces.
    """
    codes = Counter(finding.code for finding in findings)
    if not traces:
        return _unknown(fact("nothing_read", reason=next((f.message for f in findings if f.code == "no_traces"), None)))
    lost = codes["no_device_events"]
    if lost >= traces:
        return _unknown(fact("no_device_activity"))
    if codes["duplicate_rank"]:
        return _unknown(fact("several_jobs"))
    caveats = [fact("traces_without_device", count=lost, traces=traces)] if lost else []
    caveats += [fact(code) for code in _CAVEATS if code in codes]
    return replace(verdict, clauses=(*verdict.clauses, *((one,) for one in caveats)))


def _wait_share(efficiency: Efficiency | None, compared: CrossRankSummary | None) -> Facts:
    """Return the share of exposed communication spent waiting for other ranks, if known for most of it."""
    if efficiency is None:
        return ()
    exposed_ns = efficiency.wait_ns + efficiency.transfer_ns
    if not exposed_ns or efficiency.unmatched_ns > MAJORITY * exposed_ns:
        return ()
    once = one_off_causes(compared, efficiency.wait_ns) if compared else []
    share = efficiency.wait_ns / exposed_ns
    # Waiting for ranks without a trace counts as transfer.
    if efficiency.parallel is None and share < _MIN_SHOWN_SHARE:
        return ()
    waiting = fact("waiting_share", share=share, partial=efficiency.parallel is None)
    return waiting, fact("other_ranks"), *((fact("mostly_for_single_delays", once=once),) if once else ())


def _mean_wall(ranks: list[RankReport]) -> float:
    walls = [step.wall_ns for rank in ranks for step in rank.steps]
    return sum(walls) / len(walls)


def _share_clause(bounding: Category | None, shares: dict[Category, float], idle: _Label) -> Fact:
    if bounding is None:
        return fact("compute_share", share=shares["compute"]) if shares["compute"] else fact("no_compute")
    what = _label(bounding, idle)
    return fact("bound", bound="copy" if bounding == "memcpy" else _BOUNDS[bounding], share=shares[bounding], what=what)


def _label(category: Category, idle: _Label) -> _Label:
    return idle if category == "overhead" else fact(f"{category}_time")


def _describe_idle(ranks: list[RankReport], loading: DataLoading | None) -> tuple[_Label, list[Fact]]:
    """Return what idle time is called, and the cause of most of it; one of them names what it may be."""
    # Of another loader than torch's nothing is in the trace: waiting for it looks idle.
    doubt = [] if loading else [fact("unmarked_loading")]
    possible = [fact("any_idle_cause"), *doubt]
    top = _top_idle_cause(ranks)
    if top is None:
        return (fact("idle_time"), fact("in_brackets", parts=possible)), []
    cause, share = top
    if cause not in _MAY_BE_LOADING or (cause == _LAUNCHING and share >= 1 - _MIN_SHOWN_SHARE):
        doubt = []
    if cause == "unknown":
        what = (fact(cause), fact("possibly", what=possible))
        return fact("idle_time"), [fact("share_of_it", share=share, what=what)]
    return [fact("idle_time"), *doubt], [fact("share_of_it", share=share, what=fact(cause))]


def _loss_clause(loss: Category, shares: dict[Category, float], idle: _Label) -> Fact:
    # How much of idle time is the profiler's is not known: where that decides, idle time is not compared.
    other = shares["overhead"] > shares[loss]
    return fact("largest_loss", other=other, what=_label(loss, idle), share=shares[loss])


def _loss_details(
    loss: Category | None,
    ranks: list[RankReport],
    loading: DataLoading | None,
    efficiency: Efficiency | None,
    compared: CrossRankSummary | None,
) -> list[Facts]:
    if loss == "communication":
        return [part for part in (_top_collective(ranks), _wait_share(efficiency, compared)) if part]
    if loss == "data_loading" and loading:
        where = () if loading.max_rank is None else (fact("on_rank", rank=loading.max_rank),)
        why = main_cause(ranks)
        return [(fact("slowest_load", ns=loading.max_ns, where=where),), *([(why[1],)] if why else [])]
    return []


def _top_idle_cause(ranks: list[RankReport]) -> tuple[Cause, float] | None:
    """Return the cause of most of the idle time, and its share of it; None if none is."""
    steps = [step for rank in ranks for step in rank.steps]
    total_ns = sum(step.exposed_ns.overhead for step in steps)
    by_cause = {cause: sum(getattr(step.idle_ns, cause) for step in steps) for cause in CAUSES}
    cause = max(CAUSES, key=lambda name: by_cause[name])
    if by_cause[cause] < MAJORITY * total_ns or not total_ns:
        return None
    return cause, by_cause[cause] / total_ns


def _compiles(ranks: list[RankReport]) -> bool:
    """Return whether most of the idle time is code being compiled or loaded, and so not the profiler's."""
    top = _top_idle_cause(ranks)
    return top is not None and top[0] == "compilation"


def _profiler_clauses(
    loss: Category | None, shares: dict[Category, float], profiler: float, cost: ProfilerCost | None, wall_ns: float
) -> list[Facts]:
    """Return what idle time may owe to the profiler, where idle time would otherwise be the largest loss."""
    idle = shares["overhead"]
    if cost is None or idle < max(_MIN_SHOWN_SHARE, *(shares[name] for name in _LOSSES)):
        return []
    if not profiler:
        # Where another category takes as much, that is the loss, and "it" is not idle time.
        return _possible_profiler_clauses(idle, wall_ns, cost) if loss == "overhead" else []
    adds = fact("profiler_adds", ns=cost.added_ns, share=profiler)
    return [(adds, fact("may_be_part"))] if loss == "overhead" else [(fact("is_idle_but", share=idle), adds)]


def _possible_profiler_clauses(idle: float, wall_ns: float, cost: ProfilerCost) -> list[Facts]:
    """Return that idle time may be the profiler's, where its cost is not measurable and may be most of it."""
    most_ns = _most_of_profiler(cost)
    if most_ns < MAJORITY * idle * wall_ns:
        return []
    part = fact("all") if most_ns >= idle * wall_ns else fact("up_to_per_step", ns=most_ns)
    low, high = cost.interval_ns or (0, 0)
    known = fact("per_step_between", low_ns=low, high_ns=high) if low > 0 else fact("as_noise")
    return [(fact("may_be_profiler", part=part, known=known),)]


def _top_collective(ranks: list[RankReport]) -> Facts:
    """Return the dimension with the most exposed communication, or, where that is unknown, the operator.

    Some exposed communication is in no collective: calls that issue them, or wait for them. With a single rank that is
    nearly all, and nothing is returned.
    """
    rows = [row for rank in ranks for row in rank.collectives]
    in_rows = sum(row.exposed_ns for row in rows)
    if not in_rows:
        return ()
    total = max(in_rows, sum(step.exposed_ns.communication for rank in ranks for step in rank.steps))
    of_dimension = _exposed_by(rows, lambda row: row.dimension)
    dimension = max(of_dimension, key=lambda name: of_dimension[name])
    if dimension is not None:
        share = of_dimension[dimension] / total
        where = fact("in_dimension", dimension=dimension)
        return (fact("share_of_it", share=share, what=where),) if share >= _MIN_SHOWN_SHARE else ()
    of_operator = _exposed_by(rows, lambda row: row.operator)
    operator = max(of_operator, key=lambda name: of_operator[name])
    if operator == UNKNOWN_OPERATOR:  # kernels whose names do not tell it
        return ()
    return (fact("share_of_it", share=of_operator[operator] / total, what=fact("named", name=operator or "")),)


def one_off_causes(compared: CrossRankSummary, waited_ns: float) -> list[OneOffStraggler]:
    """Return the one-off delays if they explain most of the exposed waiting (ns, summed over ranks); else none."""
    others = len(compared.rank_waits) - 1
    explained_ns = sum(
        (len(one.delays) or others - len(one.with_ranks)) * one.lag_ns for one in compared.one_off_stragglers
    )
    return compared.one_off_stragglers if explained_ns > MAJORITY * waited_ns else []


def _exposed_by(rows: Iterable[CollectiveStat], key: Callable[[CollectiveStat], str | None]) -> dict[str | None, int]:
    exposed: dict[str | None, int] = defaultdict(int)
    for row in rows:
        exposed[key(row)] += row.exposed_ns
    return exposed
