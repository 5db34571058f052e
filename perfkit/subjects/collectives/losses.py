"""What collectives cost: transfers, and exposed communication that may be waiting as well."""

from typing import Final

from perfkit.engine.losses.communication import (
    longest_dimension,
    split_communication,
    waited_for_late_ns,
)
from perfkit.engine.losses.context import MIN_SHARE, TINY_BYTES, LossContext, stragglers_of
from perfkit.engine.losses.dimensions import is_latency, reduce_transfer, spans_hosts
from perfkit.engine.losses.loss import Loss, Rules
from perfkit.engine.whatif.changes import HEALTHY_NETWORK, free_transfers
from perfkit.records.aggregate import MAJORITY
from perfkit.records.cross_rank import SlowTransfers
from perfkit.records.facts import Fact, Facts, fact
from perfkit.subjects.collectives.avoidable import AVOIDABLE, find_avoidable, reported_ns, unreported


def transfer(context: LossContext) -> Loss | None:
    """Transfers, and what cannot be told from waiting."""
    exposed_ns = context.exposed_ns["communication"]
    # Where ranks have no trace, what is transfer and what is waiting for them is not known.
    if context.share(exposed_ns) < MIN_SHARE or context.run.world_size < 2 or context.run.is_partial:
        return None
    parts = split_communication(context)
    if parts is None:
        return _unsplit_communication(context, exposed_ns)
    one, avoidable = longest_dimension(context, "transfer_ns", but="pp"), find_avoidable(context)
    if (
        one is None
        or spans_hosts(one)
        or one.transfer_ns <= MAJORITY * one.exposed_ns
        or context.share(one.transfer_ns - (reported := reported_ns(avoidable, one.name))) < MIN_SHARE
    ):
        return None
    rest_ns = one.transfer_ns - reported
    rows = context.run.cross_rank.collectives if context.run.cross_rank else []
    most = max(
        (row for row in unreported(avoidable, rows) if row.dimension == one.name),
        key=lambda row: row.count * (row.transfer_ns or 0),
        default=None,
    )
    if reported and most is None:  # nothing else was transferred: the rest is what those took at other times
        return None
    advice = reduce_transfer(context, one)
    if not advice and most is not None and is_latency(context, most):  # bandwidth does not tell why it takes long
        return None
    evidence = {"exposed_share": context.share(exposed_ns), "transfer_ns": rest_ns}
    if most and most.busbw:
        evidence["busbw"] = most.busbw
    of = (fact("of_dimension", dimension=one.name or "unknown"),) if len(context.dimensions()) > 1 else ()
    largest = most is not None and most.bytes and most.transfer_ns
    return Loss(
        cause="transfer",
        row="communication",
        code=most.operator if most else None,
        facts=(fact("mostly", operator=most.operator, bytes=most.bytes, of=of),) if most and largest else (),
        evidence=evidence,
        remedy=advice or _COMPARE_BANDWIDTH,
        per_step_ns=rest_ns,
        change=None if reported else free_transfers(one.name),
        blames="network",
    )


_COMPARE_BANDWIDTH: Final[Facts] = (fact("compare_bandwidth"),)
"""True of any transfer that is not latency, whatever it serves."""


def slow_network(context: LossContext) -> list[Loss]:
    """Transfers that take longer than comparable ones, by what makes them slow."""
    across = context.run.cross_rank
    is_single = across is not None and len(across.slow_transfers) == 1
    return [
        Loss(
            cause="slow_network",
            row=row,
            ranks=tuple(slow.ranks),
            steps=tuple(slow.steps),
            facts=(fact("slow_transfers", slow=slow),),
            evidence={"ratio": slow.ratio},
            remedy=(_check_network(slow),),
            per_step_ns=float(slow.gain_ns or 0),
            change=HEALTHY_NETWORK if is_single else None,
            blames="network",
        )
        for row in context.ledger.rows
        if (slow := row.slow) is not None
    ]


def _check_network(slow: SlowTransfers) -> Fact:
    if slow.steps:
        return fact("check_traffic")
    if len(slow.hosts) > 1:
        return fact("check_link", hosts=slow.hosts)
    return fact("check_card", host=slow.hosts[0]) if slow.hosts else fact("check_cards", ranks=slow.ranks)


def tensor_parallel_hosts(context: LossContext) -> Loss | None:
    """Tensor parallelism across hosts."""
    one = next((one for one in context.dimensions() if spans_hosts(one)), None)
    if one is None or context.share(one.exposed_ns) < MIN_SHARE:
        return None
    is_alone = max((host.ranks for host in context.run.hosts), default=0) == 1
    return Loss(
        cause="tensor_parallel_hosts",
        row="communication",
        facts=(fact("tensor_parallel_hosts"),),
        evidence={"exposed_share": context.share(one.exposed_ns), "transfer_ns": one.transfer_ns},
        remedy=(fact("another_dimension" if is_alone else "stay_on_a_host"),),
        per_step_ns=one.transfer_ns,
        blames="network",
    )


def _unsplit_communication(context: LossContext, exposed_ns: float) -> Loss | None:
    """Return the loss for communication that cannot be split, because matches are missing."""
    most = longest_dimension(context, "exposed_ns")
    # The bubble, and tensor parallelism across hosts, have their own rules.
    if most is not None and ("pp" in most.parts or spans_hosts(most)):
        return None
    # Their delays have advice of their own.
    for_late_ns = min(waited_for_late_ns(context, stragglers_of(context.run)), exposed_ns)
    avoidable = find_avoidable(context)
    rest_ns = exposed_ns - sum(one.loss.per_step_ns or 0.0 for one in avoidable) - for_late_ns
    if context.share(rest_ns) < MIN_SHARE:
        return None
    unreported_ns = {one: one.exposed_ns - reported_ns(avoidable, one.name) for one in context.dimensions()}
    about = max(unreported_ns, key=lambda one: unreported_ns[one], default=None)
    advice = reduce_transfer(context, about) if about is not None else ()
    if advice and about is not None:  # it concerns the transfers of that dimension alone
        rest_ns = min(rest_ns, unreported_ns[about])
    elif _mostly_tiny(context):
        return None
    return Loss(
        cause="communication",
        row="communication",
        facts=(),
        evidence={"exposed_share": context.share(exposed_ns), "exposed_ns": exposed_ns},
        remedy=advice or _COMPARE_BANDWIDTH,
        per_step_ns=max(0.0, rest_ns),
        blames="network",
    )


def _mostly_tiny(context: LossContext) -> bool:
    """Return whether most of the communication is of so few bytes that no bandwidth would tell anything."""
    rows = [row for rank in context.run.ranks for row in rank.collectives]
    tiny_ns = sum(row.exposed_ns for row in rows if row.bytes is not None and row.bytes <= TINY_BYTES)
    return tiny_ns > MAJORITY * sum(row.exposed_ns for row in rows)


LOSSES: Final[Rules] = {
    "slow_network": slow_network,
    "transfer": transfer,
    "tensor_parallel_hosts": tensor_parallel_hosts,
    **AVOIDABLE,
}
