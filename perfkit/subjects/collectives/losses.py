"""What collectives cost: transfers, and exposed communication that may be waiting as well."""

from typing import Final

from perfkit.engine.losses.communication import (
    communication_cost,
    longest_dimension,
    split_communication,
    waited_for_late_ns,
)
from perfkit.engine.losses.context import MIN_COMMON_SHARE, MIN_SHARE, LossContext, stragglers_of
from perfkit.engine.losses.dimensions import reduce_transfer, spans_hosts
from perfkit.engine.losses.loss import Loss, Rules
from perfkit.engine.whatif.changes import free_transfers
from perfkit.records.aggregate import MAJORITY
from perfkit.records.facts import Facts, fact
from perfkit.records.rank import ONE_TO_N, UNKNOWN_OPERATOR
from perfkit.subjects.collectives.avoidable import broadcast_buffers, reported_ns, tiny_collectives, unreported

_SEND: Final = "send"


def transfer(context: LossContext) -> Loss | None:
    """Transfers, and what cannot be told from waiting."""
    exposed_ns = context.exposed_ns["communication"]
    if context.share(exposed_ns) < MIN_SHARE or (context.run.world_size < 2 and not context.run.is_partial):
        return None
    parts = split_communication(context)
    if parts is None or context.run.is_partial:
        return (
            _unsplit_communication(context, exposed_ns) if parts is None or parts[0] < MAJORITY * exposed_ns else None
        )
    one = longest_dimension(context, "transfer_ns", but="pp")
    if (
        one is None
        or spans_hosts(one)
        or one.transfer_ns <= MAJORITY * one.exposed_ns
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
    evidence = {"exposed_share": context.share(exposed_ns), "transfer_ns": rest_ns}
    if most and most.busbw:
        evidence["busbw"] = most.busbw
    of = (fact("of_dimension", dimension=one.name or "unknown"),) if len(context.dimensions()) > 1 else ()
    largest = most is not None and most.bytes and most.transfer_ns
    return Loss(
        cause="transfer",
        code=most.operator if most else None,
        facts=(
            *communication_cost(context, exposed_ns),
            fact("transfer", share=rest_ns / exposed_ns, other=reported > 0, of=of),
            *((fact("dominated_by", operator=most.operator, bytes=most.bytes),) if most and largest else ()),
        ),
        evidence=evidence,
        remedy=reduce_transfer(context, one) or _COMPARE_BANDWIDTH,
        per_step_ns=rest_ns,
        change=None if reported else free_transfers(one.name),
    )


_COMPARE_BANDWIDTH: Final[Facts] = (fact("compare_bandwidth"),)
"""True of any transfer, whatever it serves."""


def tensor_parallel_hosts(context: LossContext) -> Loss | None:
    """Tensor parallelism across hosts."""
    one = next((one for one in context.dimensions() if spans_hosts(one)), None)
    if one is None or context.share(one.exposed_ns) < MIN_SHARE:
        return None
    is_alone = max((host.ranks for host in context.run.hosts), default=0) == 1
    return Loss(
        cause="tensor_parallel_hosts",
        facts=(fact("tensor_parallel_hosts", share=context.share(one.exposed_ns)),),
        evidence={"exposed_share": context.share(one.exposed_ns), "transfer_ns": one.transfer_ns},
        remedy=(fact("another_dimension" if is_alone else "stay_on_a_host"),),
        per_step_ns=one.transfer_ns,
    )


def _unsplit_communication(context: LossContext, exposed_ns: float) -> Loss | None:
    """Return the loss for communication that cannot be split, because ranks or matches are missing."""
    partial = context.run.is_partial
    most = longest_dimension(context, "exposed_ns")
    # The bubble, and tensor parallelism across hosts, have their own rules.
    if not partial and most is not None and ("pp" in most.parts or spans_hosts(most)):
        return None
    # Their delays have advice of their own.
    for_late_ns = min(waited_for_late_ns(context, stragglers_of(context.run)), exposed_ns)
    rest_ns = exposed_ns - sum(reported_ns(context, one.name) for one in context.dimensions()) - for_late_ns
    if not partial and context.share(rest_ns) < MIN_SHARE:
        return None
    unreported_ns = {one: one.exposed_ns - reported_ns(context, one.name) for one in context.dimensions()}
    about = max(unreported_ns, key=lambda one: unreported_ns[one], default=None)
    late = [row.rank for row in stragglers_of(context.run)] if for_late_ns else []
    advice = reduce_transfer(context, about) if about is not None else ()
    if advice and about is not None and not partial:  # it concerns the transfers of that dimension alone
        rest_ns = min(rest_ns, unreported_ns[about])
    waiting = (fact("waiting_up_to", ns=for_late_ns, ranks=late),) if late else ()
    return Loss(
        cause="communication",
        facts=(
            *communication_cost(context, exposed_ns),
            *waiting,
            fact("unknown_waiting", rest=bool(late)),
            *_why_unsplit(context),
        ),
        evidence={"exposed_share": context.share(exposed_ns), "exposed_ns": exposed_ns},
        remedy=(fact("analyse_all"),) if partial else advice or _COMPARE_BANDWIDTH,
        per_step_ns=max(0.0, rest_ns),
        only_finds_out=partial,
    )


def _why_unsplit(context: LossContext) -> Facts:
    """Return why waiting cannot be told from transfer."""
    missing = context.run.world_size - len(context.run.ranks)
    if missing > 0:
        return (fact("missing_ranks", count=missing),)
    if context.run.is_partial:
        return (fact("unknown_world_size"),)
    efficiency = context.run.efficiency
    communication_ns = efficiency.wait_ns + efficiency.transfer_ns if efficiency else 0
    if efficiency is None or not communication_ns:
        return (fact("not_comparable"),)
    rows = [row for rank in context.run.ranks for row in rank.collectives]
    rows_ns = sum(row.exposed_ns for row in rows)
    total_ns = max(communication_ns, rows_ns)  # collectives at the same time count in both rows
    one_to_n_ns = sum(row.exposed_ns for row in rows if row.operator in ONE_TO_N)
    sends_ns = sum(row.exposed_ns for row in rows if row.operator == _SEND)
    unknown_ns = sum(row.exposed_ns for row in rows if row.operator == UNKNOWN_OPERATOR)
    calls_ns = total_ns - rows_ns
    reasons = {
        "in_one_to_n": one_to_n_ns,
        "in_sends": sends_ns,
        "in_calls": calls_ns,
        "in_unknown_kernels": unknown_ns,
        "in_unmatched": efficiency.unmatched_ns - one_to_n_ns - sends_ns - unknown_ns - calls_ns,
    }
    largest = max(reasons, key=lambda reason: reasons[reason])
    if reasons[largest] > MAJORITY * total_ns:
        return (fact("most_of_it_is"), fact(largest))
    shares = sorted(((lasted / total_ns, reason) for reason, lasted in reasons.items()), reverse=True)
    named = [
        (fact("share_of_it_is", share=share), fact(reason)) for share, reason in shares if share >= MIN_COMMON_SHARE
    ]
    return tuple(part for pair in named for part in (fact("and"), *pair))[1:]


LOSSES: Final[Rules] = {
    "transfer": transfer,
    "tensor_parallel_hosts": tensor_parallel_hosts,
    "tiny_collectives": tiny_collectives,
    "broadcast_buffers": broadcast_buffers,
}
