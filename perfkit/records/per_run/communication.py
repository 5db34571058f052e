"""A run's communication by dimension of parallelism, and single collectives on the ranks that took part in them."""

from msgspec import Struct


class DimensionStat(Struct, frozen=True, kw_only=True):
    """The collectives, sends and receives of one dimension, summed over ranks and steps (metrics.md sections 5 and 6).

    Those of groups on one host and those of groups across hosts are separate rows.
    """

    dimension: str | None
    """dp, replicate, shard, tp, pp, cp, ep, several joined by `+`, or a name of the program's own; None if unknown."""
    across_hosts: bool | None
    """Whether its groups have members on several hosts; None if the hosts of some members are not known."""
    group_size: int | None
    """Ranks per group; None if unknown, or if its groups differ in it."""
    groups: int | None
    """Number of groups that were seen; None if nothing tells which ranks belong together."""
    calls: int
    """One that n ranks take part in counts n times."""
    bytes: int | None
    """Message sizes S, summed over calls; None if any of them is unknown."""
    total_ns: int
    exposed_ns: int
    exposed_wait_ns: int
    """The part of `exposed_ns` in which a rank waited for others."""
    exposed_transfer_ns: int
    """The rest of it."""
    wait_unknown_ns: int
    """The part of `exposed_transfer_ns` that may be waiting: nothing was matched with it, its operator cannot be split,
    or ranks without a trace take part in it, or may because its group is unknown."""
    share: float
    """Exposed / wall time, over ranks and steps."""
    busbw: float | None
    """Bytes per second on the bus, as nccl-tests defines it: of all matched collectives of known size together."""
    serialisation_lost_ns: int
    """Its part of what the run loses by waiting, `t_ideal_ns - own_ns` of `Efficiency`."""
    transfer_lost_ns: int
    """Its part of what the run loses by transfer, `t_ns - t_ideal_ns` of `Efficiency`."""


class DimensionSummary(Struct, frozen=True, kw_only=True):
    """A run's communication by dimension: what the rows and `outside` have adds up to the run's."""

    rows: list[DimensionStat]
    """Largest exposed time first."""
    rank_steps: int
    """Number of steps, summed over ranks: divide by it for means per step and rank."""
    outside_ns: int
    """Exposed communication that is in none of the rows: calls that issue collectives, or wait for them elsewhere."""
    outside_share: float
    """The same / wall time."""
    outside_lost_ns: int
    """Its part of what the run loses by transfer and waiting."""


class CollectiveOnRank(Struct, frozen=True, kw_only=True, gc=False):
    """One rank's part in a collective."""

    rank: int
    start_ns: int
    """Absolute, by the clock of the rank's host."""
    begin_ns: int | None
    """The same instant by the reference clock; None if no collective links the two."""
    duration_ns: int
    wait_ns: int | None
    """How long it waited for another rank in it (metrics.md section 5); None if that is not known."""


class LinkedCollective(Struct, frozen=True, kw_only=True):
    """A collective that several ranks were matched in, in a step whose timeline a page draws."""

    step: int | None
    operator: str
    group_size: int | None
    ranks: int
    """Number of ranks that it was found on."""
    last: int | None
    """The rank that the others waited for; None if nobody did, or if the collective does not tell."""
    on_ranks: list[CollectiveOnRank]
    """By rank; at most 8: those whose timelines are drawn, `last`, and those that waited longest."""
