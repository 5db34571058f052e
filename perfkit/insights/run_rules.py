"""Insight rules over one run, as an ordered table.

A rule reports only what was measured: an exposed share of the step, and a rank, load or collective that the report
names. The potential saving is an upper bound, the exposed time itself, unless the run has a prediction of the change.
"""

from typing import Final

from perfkit.analysis.cross_rank.straggler_sentences import name_ranks, take_turns
from perfkit.analysis.per_run.bubble_verdict import late_besides_stages
from perfkit.insights.collective_rules import BUFFERS, TINY, reported_ns, unreported
from perfkit.insights.copy_rules import COPIES
from perfkit.insights.dimension_advice import reduce_transfer, spans_hosts
from perfkit.insights.expert_rules import EXPERTS
from perfkit.insights.idle import (
    IdlePart,
    Remedy,
    change_of,
    describe,
    evidence,
    fewer_launches,
    largest_cause,
    remedy,
    saving_ns,
)
from perfkit.insights.input_rule import INPUT
from perfkit.insights.pause_rules import pauses_beside
from perfkit.insights.pipeline_rules import BUBBLE, HEAVY_STAGE, TRANSFERS
from perfkit.insights.roofline_rules import ROOFLINE_RULES
from perfkit.insights.rule import InsightDraft, Rule
from perfkit.insights.run_context import (
    DimensionTime,
    RunContext,
    besides_stragglers,
    exposed_without_stragglers,
    stragglers_of,
)
from perfkit.insights.sharding_rules import SHARDING_RULES
from perfkit.insights.waiting import MIN_SHARE, PAUSE_WAIT, cause_of_waiting, last_arrivals_of, waited_for
from perfkit.scaling.points import oversubscribed as shared_cores
from perfkit.schema.rank import ONE_TO_N, UNKNOWN_OPERATOR
from perfkit.schema.report import BESIDES_STEPS
from perfkit.util.formatting import duration, escape_unprintable, format_percent, size, whole_percent
from perfkit.whatif.changes import free_transfers

_MIN_IDLE_SHARE: Final = 0.1
"""The same for idle time, of which every step has some."""
_MAJORITY: Final = 0.5
_SEND: Final = "send"
_MIN_REASON: Final = 0.1
"""Smallest share of communication that is named among the reasons why its waiting is unknown."""


def _oversubscribed(context: RunContext) -> InsightDraft | None:
    shared = shared_cores(context.run.hosts)
    if shared is None:
        return None
    host = next(host for host in context.run.hosts if shared_cores([host]))
    fall, evidence = "", {"ranks": float(host.ranks), "threads": float(host.threads), "cores": float(host.cores or 0)}
    if context.place is not None and context.place[2].efficiency.value < context.place[1].efficiency.value:
        series, before, point = context.place
        fall = (
            f": efficiency drops from {format_percent(before.efficiency.value)} "
            f"to {format_percent(point.efficiency.value)} ({series.kind} scaling)"
        )
        evidence |= {"efficiency_before": before.efficiency.value, "efficiency": point.efficiency.value}
    return InsightDraft(
        f"{escape_unprintable(host.host)} is oversubscribed, {shared}{fall}; "
        "waiting and idle time in this run may come from it",
        evidence,
        f"use at most {ranks_of(host.cores or 0)} on {escape_unprintable(host.host)}, or more hosts"
        if host.ranks > (host.cores or 0)
        else f"use {_with_threads(context, max(1, (host.cores or 1) // host.ranks))}",
        None,
    )


def _with_threads(context: RunContext, threads: int) -> str:
    """Return how to have so many threads: scripts and loops of one's own have no option for it."""
    if "threads" in (context.run.config or {}):
        return f"--threads {threads}"
    return f"torch.set_num_threads({threads}) or OMP_NUM_THREADS={threads}"


def _waiting(context: RunContext) -> InsightDraft | None:
    # What the verdict is about is worth a recommendation, however little ranks wait on average.
    is_verdict = context.run.verdict.bound == "imbalance"
    parts = _communication(context, 0.0 if is_verdict else MIN_SHARE)
    slow = stragglers_of(context.run)
    if context.waits_in_bubbles():
        return _waiting_in_bubbles(context)
    if parts is None and not (is_verdict and slow):
        return None
    if parts is None:  # what the others wait in is not matched: how much is waiting is unknown, not for whom
        cause = cause_of_waiting(context, slow, 0.0)
        cost = _cost_sentence(context, context.exposed_ns["communication"])
        return cause._replace(sentence=f"{cost}, part of it waiting for {cause.sentence}")
    wait_ns, exposed_ns = parts
    if wait_ns < _MAJORITY * exposed_ns and not is_verdict:
        return None
    # Without a known straggler, the first collective's waiting may be the ranks' start-up skew.
    if not slow and context.has("start_skew") and last_arrivals_of(context, MIN_SHARE) is None:
        return None
    if not slow and (most := _longest(context, "wait_ns")) is not None and "pp" in most.parts:
        return None  # a pipeline waits by construction
    partial = context.run.is_partial
    # With ranks missing, transfers are an upper bound: a missing rank may have been later.
    part = f"{'at least ' if partial else ''}{whole_percent(wait_ns / exposed_ns)} of it waiting for"
    cause = cause_of_waiting(context, slow, wait_ns)
    evidence = {"exposed_share": context.share(exposed_ns), "wait_share": wait_ns / exposed_ns, "wait_ns": wait_ns}
    return cause._replace(
        sentence=f"{_cost_sentence(context, exposed_ns)}, {part} {cause.sentence}", evidence=evidence | cause.evidence
    )


def _waiting_in_bubbles(context: RunContext) -> InsightDraft | None:
    """Return the draft for late ranks of a pipeline, whose bubble has its own rule; None where stages explain them."""
    run = context.run
    across, late = run.cross_rank, late_besides_stages(run.pipelines, run.cross_rank)
    slow = [row for row in stragglers_of(run) if row.rank in late]
    if across is None or not slow or context.share(across.stragglers_gain_ns) < MIN_SHARE:
        return None
    cause = cause_of_waiting(context, slow, 0.0)
    cost = _cost_sentence(context, context.exposed_ns["communication"])
    return cause._replace(sentence=f"{cost}, part of it waiting for {cause.sentence}")


def _communication(context: RunContext, least: float = MIN_SHARE) -> tuple[float, float] | None:
    """Return waiting and total exposed communication per step; None if less than a share, or mostly unmatched."""
    efficiency = context.run.efficiency
    exposed_ns = context.exposed_ns["communication"]
    if efficiency is None or context.share(exposed_ns) < least:
        return None
    whole = efficiency.wait_ns + efficiency.transfer_ns
    if not whole or efficiency.unmatched_ns > _MAJORITY * whole:
        return None
    return exposed_ns * efficiency.wait_ns / whole, exposed_ns


def _cost_sentence(context: RunContext, exposed_ns: float) -> str:
    taken = whole_percent(context.share(exposed_ns))
    at = "" if context.has("world_size_unknown") else f" at {ranks_of(context.run.world_size)}"
    return f"exposed communication takes {taken} of the step{at}"


def _transfer(context: RunContext) -> InsightDraft | None:
    exposed_ns = context.exposed_ns["communication"]
    if context.share(exposed_ns) < MIN_SHARE or (context.run.world_size < 2 and not context.run.is_partial):
        return None
    parts = _communication(context)
    if parts is None or context.run.is_partial:
        return (
            _unsplit_communication(context, exposed_ns) if parts is None or parts[0] < _MAJORITY * exposed_ns else None
        )
    one = _longest(context, "transfer_ns", but="pp")
    if (
        one is None
        or spans_hosts(one)
        or one.transfer_ns <= _MAJORITY * one.exposed_ns
        or context.share(one.transfer_ns - (reported := reported_ns(context, one.name))) < MIN_SHARE
    ):
        return None
    rest_ns = one.transfer_ns - reported
    rows = context.run.cross_rank.collectives if context.run.cross_rank else []
    most = max(
        (row for row in unreported(context, rows) if row.dimension == one.name),
        key=lambda row: row.count * (row.transfer_ns or 0),
        default=None,
    )
    if reported and most is None:  # nothing else was transferred: the rest is what those took at other times
        return None
    what = (
        f", dominated by {escape_unprintable(most.operator)} of {size(most.bytes)}"
        if most and most.bytes and most.transfer_ns
        else ""
    )
    evidence = {"exposed_share": context.share(exposed_ns), "transfer_ns": rest_ns}
    if most and most.busbw:
        evidence["busbw"] = most.busbw
    of = f" of dimension {escape_unprintable(one.name or 'unknown')}" if len(context.dimensions()) > 1 else ""
    share, other = whole_percent(rest_ns / exposed_ns), "other " if reported else ""
    sentence = f"{_cost_sentence(context, exposed_ns)}, {share} of it {other}data transfer{of}{what}"
    advice = reduce_transfer(context, one) or _COMPARE_BANDWIDTH
    return InsightDraft(sentence, evidence, advice, rest_ns, None if reported else free_transfers(one.name))


_COMPARE_BANDWIDTH: Final = (
    "compare the bus bandwidth with that of the network, and see whether transfers could overlap with computation"
)
"""True of any transfer, whatever it serves."""


def _tensor_parallel_hosts(context: RunContext) -> InsightDraft | None:
    one = next((one for one in context.dimensions() if spans_hosts(one)), None)
    if one is None or context.share(one.exposed_ns) < MIN_SHARE:
        return None
    return InsightDraft(
        f"tensor-parallel groups span hosts; their communication, a part of every layer, is exposed for "
        f"{whole_percent(context.share(one.exposed_ns))} of the step",
        {"exposed_share": context.share(one.exposed_ns), "transfer_ns": one.transfer_ns},
        _stay_on_a_host(context),
        one.transfer_ns,
    )


def _stay_on_a_host(context: RunContext) -> str:
    if max((host.ranks for host in context.run.hosts), default=0) == 1:
        return "use another dimension, such as pp or sharding: with one rank per host, these groups always span hosts"
    return (
        "keep each tensor-parallel group on one host: make it the innermost dimension of the mesh, of a size that "
        "divides the ranks of a host"
    )


def _longest(context: RunContext, field: str, but: str = "") -> DimensionTime | None:
    """Return the dimension with the most exposed time of a kind; None without any."""
    found = [one for one in context.dimensions() if but not in one.parts]
    return max(found, key=lambda one: float(getattr(one, field)), default=None)


def _unsplit_communication(context: RunContext, exposed_ns: float) -> InsightDraft | None:
    """Return the draft for communication that cannot be split, because ranks or matches are missing."""
    partial, why = context.run.is_partial, _why_unsplit(context)
    most = _longest(context, "exposed_ns")
    # The bubble, and tensor parallelism across hosts, have their own rules.
    if not partial and most is not None and ("pp" in most.parts or spans_hosts(most)):
        return None
    for_late_ns = _waited_for_late_ns(context)
    rest_ns = exposed_ns - sum(reported_ns(context, one.name) for one in context.dimensions()) - for_late_ns
    if not partial and context.share(rest_ns) < MIN_SHARE:
        return None
    unreported_ns = {one: one.exposed_ns - reported_ns(context, one.name) for one in context.dimensions()}
    about = max(unreported_ns, key=lambda one: unreported_ns[one], default=None)
    who = name_ranks(stragglers_of(context.run)) if for_late_ns else ""
    waiting = f", up to {duration(for_late_ns)} of it waiting for {who}" if who else ""
    advice = reduce_transfer(context, about) if about is not None else None
    if advice is not None and about is not None and not partial:  # it concerns the transfers of that dimension alone
        rest_ns = min(rest_ns, unreported_ns[about])
    return InsightDraft(
        f"{_cost_sentence(context, exposed_ns)}{waiting}; how much of {'the rest' if waiting else 'it'} is waiting is "
        f"unknown: {why}",
        {"exposed_share": context.share(exposed_ns), "exposed_ns": exposed_ns},
        "analyse the traces of all ranks" if partial else advice or _COMPARE_BANDWIDTH,
        max(0.0, rest_ns),
        only_finds_out=partial,
    )


def _waited_for_late_ns(context: RunContext) -> float:
    """Return what the mean rank waits per step for late ranks (ns): their delays have advice of their own."""
    late, across = stragglers_of(context.run), context.run.cross_rank
    if not late or across is None:
        return 0.0
    # Late ranks that take turns wait for each other, too; else those that are late do not wait.
    waiting = 1.0 if take_turns(late) else 1 - len(late) / len(context.run.ranks)
    return min(across.stragglers_gain_ns * waiting, context.exposed_ns["communication"])


def _why_unsplit(context: RunContext) -> str:
    """Return why waiting cannot be told from transfer."""
    missing = context.run.world_size - len(context.run.ranks)
    if missing > 0:
        return "1 rank has no trace" if missing == 1 else f"{missing} ranks have no trace"
    if context.run.is_partial:
        return "the traces do not tell the number of ranks, of which some may have none"
    efficiency = context.run.efficiency
    communication_ns = efficiency.wait_ns + efficiency.transfer_ns if efficiency else 0
    if efficiency is None or not communication_ns:
        return "the ranks cannot be compared"
    rows = [row for rank in context.run.ranks for row in rank.collectives]
    rows_ns = sum(row.exposed_ns for row in rows)
    total_ns = max(communication_ns, rows_ns)  # collectives at the same time count in both rows
    one_to_n_ns = sum(row.exposed_ns for row in rows if row.operator in ONE_TO_N)
    sends_ns = sum(row.exposed_ns for row in rows if row.operator == _SEND)
    unknown_ns = sum(row.exposed_ns for row in rows if row.operator == UNKNOWN_OPERATOR)
    calls_ns = total_ns - rows_ns
    reasons = {
        "in broadcasts and the like, in which not all ranks wait for all others": one_to_n_ns,
        "in sends, which may last until the other rank receives": sends_ns,
        "in calls that issue collectives or wait for them, outside of the collectives themselves": calls_ns,
        "in kernels that do not tell which collective they run": unknown_ns,
        "in collectives without a counterpart on another rank": (
            efficiency.unmatched_ns - one_to_n_ns - sends_ns - unknown_ns - calls_ns
        ),
    }
    largest = max(reasons, key=lambda reason: reasons[reason])
    if reasons[largest] > _MAJORITY * total_ns:
        return f"most of it is {largest}"
    shares = sorted(((lasted / total_ns, reason) for reason, lasted in reasons.items()), reverse=True)
    return " and ".join(f"{whole_percent(share)} of it is {reason}" for share, reason in shares if share >= _MIN_REASON)


def _pauses(context: RunContext) -> InsightDraft | None:
    waiting = _waiting(context)
    waited = waited_for(context) if waiting is not None and PAUSE_WAIT in waiting.evidence else None
    return pauses_beside(context, waited.phase if waited else None)


def _host(context: RunContext) -> InsightDraft | None:
    # The profiler runs on the host: the time it adds to a step is not idle time of the training.
    exposed_ns = exposed_without_stragglers(context, "overhead") - _profiler_ns(context)
    if context.share(exposed_ns) < _MIN_IDLE_SHARE:
        return None
    less = besides_stragglers(context, "overhead") + (", profiler cost excluded" if _profiler_ns(context) else "")
    idle = "the GPU is idle" if _on_gpu(context) else "no operator runs"
    if _on_gpu(context) and context.has("no_device_events"):  # of a part of the traces it is not known
        idle = "no recorded operator or kernel runs"
    part = largest_cause(context)
    if part is not None and part.cause == "compilation" and not _on_gpu(context):
        idle = "no operator but those of a compiler runs"
    why = describe(part, exposed_ns) if part else "launch gaps, Python, synchronisation"
    figures = {
        "exposed_share": context.share(exposed_ns),
        "overhead_ns": exposed_ns,
        "profiler_ns": _profiler_ns(context),
    }
    advice = remedy(part, context) if part else _reduce_idle(context)
    return InsightDraft(
        f"{idle} for {whole_percent(context.share(exposed_ns))} of the step ({duration(exposed_ns)}{less}): "
        f"{why}{_or_data(context, part)}",
        figures | (evidence(part) if part else {}),
        advice.text,
        min(exposed_ns, saving_ns(part)) if part else exposed_ns,
        change_of(part) if part and not advice.only_finds_out else None,
        "overhead",
        only_finds_out=advice.only_finds_out,
    )


def _or_data(context: RunContext, part: IdlePart | None) -> str:
    """Return what else idle time may be if no loading was recognised: the program's own loader leaves no span."""
    may_load = part is None or part.cause in ("host_work", "not_running", "unknown")
    if context.run.data_loading or not may_load or (part and part.is_program()):
        return ""
    return ", or data if your loader is not torch's"


def _profiler_ns(context: RunContext) -> float:
    """Return the time that the profiler adds to a step; 0 if unknown or not measurable."""
    cost = context.run.profiler_cost
    return float(cost.added_ns or 0) if cost else 0.0


def _reduce_idle(context: RunContext) -> Remedy:
    if context.option("compile") is None:
        return Remedy("inspect the gaps in the trace: launches, Python, synchronisation", only_finds_out=True)
    if _on_gpu(context):
        return Remedy(f"{fewer_launches(context)}: fewer launches for the same work")
    return Remedy("re-run with --pyinstrument to find the Python hotspot", only_finds_out=True)


def _on_gpu(context: RunContext) -> bool:
    return any(rank.device == "gpu" for rank in context.run.ranks)


OVERSUBSCRIBED: Final = Rule("oversubscribed", _oversubscribed, explains_all=True)
WAITING: Final = Rule("waiting", _waiting)
TRANSFER: Final = Rule("transfer", _transfer)
TENSOR_PARALLEL_HOSTS: Final = Rule("tensor_parallel_hosts", _tensor_parallel_hosts)
HOST: Final = Rule("host", _host)
RULES: Final = (
    OVERSUBSCRIBED,
    WAITING,
    TRANSFER,
    TENSOR_PARALLEL_HOSTS,
    BUBBLE,
    TRANSFERS,
    HEAVY_STAGE,
    TINY,
    BUFFERS,
    *SHARDING_RULES,
    EXPERTS,
    INPUT,
    HOST,
    COPIES,
    Rule(BESIDES_STEPS, _pauses),
    *ROOFLINE_RULES,
)
"""Evaluated on each run, in this order."""


def ranks_of(count: int) -> str:
    """Return `1 rank` or `N ranks`."""
    return "1 rank" if count == 1 else f"{count} ranks"
