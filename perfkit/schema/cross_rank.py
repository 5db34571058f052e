"""What the ranks of a run say together: collectives that are matched, waiting, clocks, stragglers."""

from typing import Literal

from msgspec import Struct

from perfkit.schema.common import Category


class MatchedCollectiveStat(Struct, frozen=True, kw_only=True):
    """Matched collectives of one operator, group and size, over all ranks."""

    operator: str
    group: str | None
    group_size: int | None
    bytes: int | None
    dtype: str | None
    count: int
    """Collectives, each on several ranks."""
    wait_ns: float | None
    """Mean waiting of a rank in one; None where it is not n-to-n."""
    transfer_ns: float | None
    """Median over the collectives of the shortest duration over ranks."""
    algbw: float | None
    """Bytes a second, size / transfer, as nccl-tests has it; None where the size is not known."""
    busbw: float | None
    """`algbw` times the factor of the operator and the group's size."""
    ddp_bucket: bool = False
    """Whether DDP's reducer issued them: all-reduces of buckets of gradients."""


class RankWait(Struct, frozen=True, kw_only=True):
    """How long a rank waited for others in matched collectives; the one that others wait for waits least."""

    rank: int
    wait_ns: int
    """Exposed or hidden, over the measured steps."""
    exposed_wait_ns: int
    transfer_ns: int = 0
    """The rest of its time in collectives, matched or not."""


class HostClock(Struct, frozen=True, kw_only=True):
    """A host's clock as against the reference's, by the ends of collectives that ranks of both took part in.

    An instant `t_ns` of this clock is `t_ns + offset_ns + drift * (t_ns - at_ns)` by the reference's.
    """

    host: str | None
    """None where the traces do not say: then the clock is one rank's."""
    ranks: list[int]
    offset_ns: int | None = None
    """None where no collective leads to the reference's host."""
    at_ns: int = 0
    """Where on this clock the offset holds, if it drifts."""
    drift: float = 0.0
    """Nanoseconds a nanosecond; 0 where none stands out from the residual."""
    residual_ns: int | None = None
    """Median absolute deviation of the ends after alignment; of the reference's host that of its own ranks' ends."""
    collectives: int = 0
    """Pairs of ends that it comes from."""


Evidence = Literal["waiting", "own_time"]


class Straggler(Struct, frozen=True, kw_only=True):
    """The rank that the others wait for, step after step."""

    rank: int
    evidence: Evidence
    """`waiting`: it waits least in matched collectives. `own_time`: without enough of those, the rank whose steps are
    longest without exposed communication."""
    lag_ns: int
    """A step, in the median: by how much it waits less than the other ranks (by how much longer it takes by itself)."""
    noise_ns: int
    """By how much that varies from step to step (median absolute deviation)."""
    share: float
    """Of the median step."""
    category: Category | None
    """Where its steps take more than the other ranks'; None where no part of them does."""
    category_ns: int
    """How much more, a step in the median."""
    wait_ns: int
    """How much more exposed communication the others have, a step in the median."""
    steps_last: int
    """Steps in which it was the last ..."""
    steps: int
    """... of so many that all ranks recorded."""

    @property
    def delays_others(self) -> bool:
        """Whether the others' exposed communication shows that waiting for the rank costs them time."""
        return 2 * self.wait_ns >= self.lag_ns


class OneOffStraggler(Struct, frozen=True, kw_only=True):
    """A step in which one rank kept the others waiting, though it does not do so in general."""

    rank: int
    step: int
    lag_ns: int
    """By how much it waited less than the other ranks in that step."""
    category: Category | None
    category_ns: int


class BandwidthFit(Struct, frozen=True, kw_only=True):
    """Latency and bandwidth of one operator in one group: t = alpha + factor * S / beta (metrics.md section 5)."""

    operator: str
    group: str | None
    group_size: int | None
    sizes: int
    """Distinct message sizes."""
    alpha_ns: float | None
    beta: float | None
    """Bytes a second, to be compared with busbw; None where the time does not grow with the size."""
    error: float | None
    """Root mean square of the relative error over the sizes."""
    reason: str | None
    """Why there is no fit."""


class CrossRankSummary(Struct, frozen=True, kw_only=True):
    """What comparing ranks tells of their collectives (metrics.md section 5)."""

    collectives: list[MatchedCollectiveStat]
    """By the time of all ranks in them, largest first."""
    rank_waits: list[RankWait]
    matched: int
    """Collectives of ranks that were matched with another rank's."""
    unmatched: int
    straggler: Straggler | None = None
    """None where no rank stands out."""
    one_off_stragglers: list[OneOffStraggler] = []
    """Steps in which a rank was late for once, the longest first."""
    clocks: list[HostClock] = []
    """The reference's host first."""
    bandwidth_fits: list[BandwidthFit] = []
