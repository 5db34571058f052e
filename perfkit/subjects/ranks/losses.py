"""What it costs that ranks share cores, or wait for each other."""

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from perfkit.engine.ledger.bubble import late_besides_stages
from perfkit.engine.losses.communication import longest_dimension, split_communication
from perfkit.engine.losses.context import MIN_SHARE, LossContext, stragglers_of
from perfkit.engine.losses.loss import Loss, Rules
from perfkit.engine.runs.manifest_checks import shared_cores
from perfkit.records.aggregate import MAJORITY
from perfkit.records.facts import Facts, fact
from perfkit.subjects.ranks.waiting import cause_of_waiting, last_arrivals_of, single_delays


def oversubscribed(context: LossContext) -> Loss | None:
    """Ranks that share cores: all else may follow from that."""
    shared = shared_cores(context.run.hosts)
    if shared is None:
        return None
    host = next(host for host in context.run.hosts if shared_cores([host]))
    fall: Facts = ()
    evidence = {"ranks": float(host.ranks), "threads": float(host.threads), "cores": float(host.cores or 0)}
    if context.in_series is not None and context.in_series[2].efficiency.value < context.in_series[1].efficiency.value:
        _, before, point = context.in_series
        now = {"before": before.efficiency.value, "after": point.efficiency.value}
        fall = (fact("efficiency_drops", **now),)
        evidence |= {"efficiency_before": before.efficiency.value, "efficiency": point.efficiency.value}
    threads = max(1, (host.cores or 1) // host.ranks)
    return Loss(
        cause="oversubscribed",
        facts=(fact("oversubscribed", host=host.host, shared=shared, fall=fall),),
        evidence=evidence,
        # Scripts and loops of one's own have no option for threads.
        remedy=(fact("fewer_ranks", ranks=host.cores or 0, host=host.host),)
        if host.ranks > (host.cores or 0)
        else (fact("use_threads", threads=threads, own="threads" in (context.run.config or {})),),
        per_step_ns=None,
        explains_all=True,
    )


def waiting(context: LossContext) -> Loss | None:
    """Waiting for other ranks."""
    # What late ranks cost is worth a recommendation, however little ranks wait on average.
    row = context.ledger.of("late_ranks")
    is_large = row is not None and row.share >= MIN_SHARE
    parts = split_communication(context, 0.0 if is_large else MIN_SHARE)
    slow = stragglers_of(context.run)
    if context.waits_in_bubbles():
        return _waiting_in_bubbles(context)
    if not slow and parts is not None and _waits_for_changing(context, parts[0]):
        return None
    if parts is None and not (is_large and slow):
        return None
    if parts is None:  # what the others wait in is not matched: how much is waiting is unknown, not for whom
        cause = cause_of_waiting(context, slow, 0.0)
        return _of_waiting(cause)
    wait_ns, exposed_ns = parts
    if wait_ns < MAJORITY * exposed_ns and not is_large:
        return None
    # Without a known straggler, the first collective's waiting may be the ranks' start-up skew.
    if not slow and context.has("start_skew") and last_arrivals_of(context) is None:
        return None
    if not slow and (most := longest_dimension(context, "wait_ns")) is not None and "pp" in most.parts:
        return None  # a pipeline waits by construction
    evidence = {"exposed_share": context.share(exposed_ns), "wait_share": wait_ns / exposed_ns, "wait_ns": wait_ns}
    return _of_waiting(cause_of_waiting(context, slow, wait_ns), evidence)


def _waits_for_changing(context: LossContext, wait_ns: float) -> bool:
    """Return whether most waiting (mean over ranks) is for what others do, each in some steps: its row has that."""
    others = 1 - 1 / len(context.run.ranks)
    done_ns = sum(row.ns for row in context.ledger.rows if row.on_changing_ranks)
    return done_ns * others >= MAJORITY * wait_ns > 0


def _of_waiting(cause: Loss | None, evidence: Mapping[str, float] | None = None) -> Loss | None:
    if cause is None or cause.blames is not None:  # it names ranks, and has a size of its own
        return cause
    return replace(
        cause, facts=(fact("ranks_wait"), *cause.facts), evidence={**(evidence or {}), **cause.evidence}, blames="rank"
    )


def _waiting_in_bubbles(context: LossContext) -> Loss | None:
    """Return the loss for late ranks of a pipeline, whose bubble has its own rule; None where stages explain them."""
    run = context.run
    across, slow = run.cross_rank, late_besides_stages(run.pipelines, run.cross_rank)
    if across is None or not slow or context.share(across.stragglers_gain_ns or 0) < MIN_SHARE:
        return None
    return _of_waiting(cause_of_waiting(context, slow, 0.0))


LOSSES: Final[Rules] = {"oversubscribed": oversubscribed, "waiting": waiting, "single_delays": single_delays}
