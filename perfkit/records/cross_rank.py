"""Records of the cross-rank analysis: matched collectives, waiting, clocks, stragglers."""

from collections.abc import Sequence
from statistics import fmean
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from perfkit.records.common import Category
from perfkit.records.per_rank.loading import SlowSample, SlowWorker, WaitCause
from perfkit.records.samples import CodeLocation

FEWEST_COMPARED_STEPS: Final = 3
"""Fewer steps are no evidence that a rank is late, or that none is."""


class MatchedCollectiveStat(Struct, frozen=True, kw_only=True):
    """Matched collectives of one operator, group and size, over all ranks."""

    operator: str
    """`send_recv` is a send with its receive."""
    group: str | None
    group_size: int | None
    """The world size if the trace does not contain it and all ranks of the world take part."""
    bytes: int | None
    dtype: str | None
    count: int
    """Number of collectives; each runs on several ranks."""
    wait_ns: float | None
    """Mean waiting time per rank and collective, or per receive; None if unknown, as for one-to-n."""
    transfer_ns: float | None
    """Median over the collectives of the shortest duration over ranks; of a receive, of the rest of its duration."""
    algbw: float | None
    """Bytes per second, size / transfer, as in nccl-tests; None if the size is unknown."""
    busbw: float | None
    """`algbw` times the factor for the operator and group size, as in nccl-tests."""
    ddp_bucket: bool = False
    """Whether DDP's reducer issued them: all-reduces of buckets of gradients."""
    dimension: str | None = None
    """Dimension of parallelism that they serve: dp, shard, tp, pp …, several joined by `+`; None if unknown."""


class RankWait(Struct, frozen=True, kw_only=True):
    """How long a rank waited for others in matched collectives and receives."""

    rank: int
    wait_ns: int
    """Exposed or overlapped, summed over the measured steps."""
    exposed_wait_ns: int
    transfer_ns: int = 0
    """The rest of its time in collectives, matched or not."""


class HostClock(Struct, frozen=True, kw_only=True):
    """A host's clock as against the reference's, by the collectives, else messages, that ranks of both took part in.

    An instant `t_ns` of this clock is `t_ns + offset_ns + drift * (t_ns - at_ns)` by the reference's.
    """

    host: str | None
    """None if the traces do not contain it; then the clock is one rank's."""
    ranks: list[int]
    offset_ns: int | None = None
    """None if no chain of collectives, or of messages in both directions, leads to the reference host."""
    at_ns: int = 0
    """Instant of this clock at which the offset holds exactly, if it drifts."""
    drift: float = 0.0
    """ns per ns; 0 if no drift stands out from the residual."""
    residual_ns: int | None = None
    """Median absolute deviation of the ends after alignment; for the reference host, that of its own ranks' ends."""
    collectives: int = 0
    """Number of pairs of ends that the estimate uses."""


class LateLoading(Struct, frozen=True, kw_only=True):
    """What a rank that is late in data loading waits for longer than the others (metrics.md section 24)."""

    cause: WaitCause
    worker: SlowWorker | None = None
    """None for other causes than a slow worker."""
    sample: SlowSample | None = None
    """The slowest; None for other causes than slow samples, and if none was timed by itself."""
    more_samples: int = 0
    """How many others were slow."""


class CategoryLag(Struct, frozen=True, kw_only=True):
    """How much longer a rank takes than the others in a category."""

    category: Category
    lag_ns: int
    """Median over the steps in which it is late."""


LateFactor = Literal["runs", "size", "pace", "time"]
"""What of the time of work is more: how often it runs, how much each run works on (blocks, elements), how long each
takes for as much; `time` where it is not known which of the last two."""
LateGroup = Literal["all", "compute_bound", "memory_bound", "few", "launches"]


class LateWork(Struct, frozen=True, kw_only=True):
    """Why a rank's own work takes longer than the others': the one factor of its time that explains it."""

    factor: LateFactor
    of: LateGroup
    """The kernels (without a device: operators) that it is true of; `launches`: the host's calls that launch them."""
    name: str | None = None
    """Of few kernels or operators the name; of two or three how their names begin, and `*`."""
    on_device: bool
    own: float
    """The factor: runs, size or time (ns) of these per step; of launches also that of a call (ns, the median)."""
    usual: float
    """The same of the ranks that are not late; 0 if only the late rank runs it."""

    @property
    def times(self) -> float:
        """How many times the others'."""
        return self.own / self.usual if self.usual else 0.0


class Straggler(Struct, frozen=True, kw_only=True):
    """A rank that takes longer than the others in its own time, beyond chance (metrics.md section 5)."""

    rank: int
    category: Category
    """Category in which it takes longer; of several, the one with the largest lag."""
    phase: str | None = None
    """Phase of the step in which it takes longer by about the lag, such as `forward`; None if perfkit has annotated no
    phases, or none fits."""
    loading: LateLoading | None = None
    """None if it is late in something else, if the traces do not contain how batches were fetched, or if no cause
    explains half of the lag."""
    code: CodeLocation | None = None
    """The function in which the rank, which was sampled, is longer than the others by half of the lag or more."""
    work: LateWork | None = None
    """Why it computes or launches for longer; None if it is late in something else, or no factor explains it."""
    host: str | None = None
    """Its host, if all ranks of this are late alike, and no others."""
    lag_ns: int
    """How much longer, in all categories: median over the steps in which it is late."""
    also: list[CategoryLag] = []
    """Other categories in which it takes longer, with a median of 3 % of the step or more; largest first. Of a rank
    that is late in every n-th step: in most steps."""
    first_step: int | None = None
    """It delays the others from this step on, and not before, though it may be slower then: prefetching hides that.

    None otherwise.
    """
    last_step: int | None = None
    """It delays them up to this step, and not later; None otherwise."""
    share: float
    """Lag as a share of the mean step."""
    every: int = 1
    """It is late in every n-th step; 1: in all or at no regular distance, see `steps_late`."""
    in_turns: bool = False
    """Whether other ranks are late in the steps between, after each step or for several in a row."""
    one_at_a_time: bool = False
    """Whether in each step exactly one of several late ranks is late, among those that it was compared with."""
    gain_ns: int | None = None
    """By how much the mean step gets shorter in the replay of its steps if this rank alone is as fast as the others; 0
    if another rank is as late or none waits for it, None if unknown."""
    steps_late: int
    """Number of steps in which it is late; all where the others are few, or hardly differ (metrics.md section 5)."""
    steps_last: int
    """In how many of these its own time was the longest of all ranks'."""
    steps: int
    """Number of steps that all ranks recorded."""
    delays: list[int] = []
    """The ranks that it can delay, if collectives do not link it with all others; else empty."""

    @property
    def in_category_ns(self) -> int:
        """How much longer in `category`."""
        return self.lag_ns - sum(one.lag_ns for one in self.also)


def take_turns(stragglers: Sequence[Straggler]) -> bool:
    """Return whether exactly one of them is late in each step, in turns: those of two stages may take turns apart."""
    if len(stragglers) < 2 or not all(row.in_turns and row.one_at_a_time for row in stragglers):
        return False
    # Each stage with late ranks adds all of its steps.
    return sum(row.steps_late for row in stragglers) == stragglers[0].steps


def same_work(stragglers: Sequence[Straggler]) -> LateWork | None:
    """Return the mean of what late ranks do more of, or more slowly; None if they differ."""
    works = [row.work for row in stragglers if row.work is not None]
    same = {(one.factor, one.of, one.name, round(one.times, 1)) for one in works}
    if not works or len(works) < len(stragglers) or len(same) > 1:
        return None
    return replace(works[0], own=fmean(one.own for one in works), usual=fmean(one.usual for one in works))


class OneOffStraggler(Struct, frozen=True, kw_only=True):
    """A step in which a rank, or several, delayed the others although they usually do not."""

    rank: int
    """Of several the one with the longest own time."""
    with_ranks: list[int] = []
    """Other ranks that are late in the same step: fixing one of them alone saves next to nothing."""
    step: int
    is_first: bool = False
    """Whether not all ranks recorded the step with the number before it: the profiler may have started in this one."""
    lag_ns: int
    """How much longer their own times were than any other rank's in that step, as far as others waited for them."""
    category: Category | None
    """Category in which each takes longer; None if they do in several, or none explains the lag."""
    category_ns: int
    delays: list[int] = []
    """The ranks that it can delay, if collectives do not link it with all others; else empty."""


def all_ranks(once: Sequence[OneOffStraggler]) -> list[int]:
    """Return the ranks that are late in single steps."""
    return sorted({rank for one in once for rank in (one.rank, *one.with_ranks)})


def steps_of(once: Sequence[OneOffStraggler]) -> list[int]:
    """Return these steps."""
    return sorted({one.step for one in once})


class EarlyRank(Struct, frozen=True, kw_only=True):
    """A rank that computes for less time than the others that are not late, beyond chance, and waits for them."""

    rank: int
    lead_ns: int
    """How much less: median over steps, or mean if that is smaller."""


class LastArrivals(Struct, frozen=True, kw_only=True):
    """Ranks that join collectives last, in too few steps to say that they do so beyond chance (metrics.md section 5).

    What is before is not counted: as long as a rank is late that was late in the first collective, it may have started
    recording late.
    """

    ranks: list[int]
    collectives: int
    """Number of n-to-n collectives after the start."""
    late: int
    """Number of these that the ranks join last."""
    operators: list[str]
    """Operators of these."""
    exposed_wait_ns: int
    """How long the ranks wait in these, summed over ranks."""
    start_wait_ns: int
    """The same for the collectives at the start."""
    lag_ns: int
    """How long the others wait for them, their median; of the collective in which it is longest."""
    category: Category | None = None
    """Category in which they take longer by about the lag; None if none is, or several are."""
    annotation: str | None = None
    """The one annotation on the host in which they take so much longer; None if none or several are."""


class BandwidthFit(Struct, frozen=True, kw_only=True):
    """Latency and bandwidth of one operator in one group: t = alpha + factor * S / beta (metrics.md section 5)."""

    operator: str
    group: str | None
    group_size: int | None
    sizes: int
    """Number of distinct message sizes."""
    alpha_ns: float | None
    beta: float | None
    """Bytes per second, comparable with busbw; None if the time does not grow with the size."""
    error: float | None
    """RMS relative error over the sizes."""
    reason: str | None
    """Why there is no fit."""


class SlowTransfers(Struct, frozen=True, kw_only=True):
    """Transfers that take longer than comparable ones, beyond chance (metrics.md section 5).

    With `steps` all between hosts in these steps; with two `hosts` what is between them, with one what it has with
    others; with several `ranks` what is among them, with one what it has with other hosts.
    """

    ranks: list[int] = []
    hosts: list[str] = []
    steps: list[int] = []
    ratio: float
    """How many times as long as the others."""
    gain_ns: int | None = None
    """By how much the mean step gets shorter in the replay without this; None if unknown."""


class BandwidthShare(Struct, frozen=True, kw_only=True):
    """Matched collectives of a run against the same in a benchmark (`perfkit analyze --collectives`)."""

    operator: str
    dimension: str | None
    group_size: int | None
    bytes: int
    dtype: str | None
    count: int
    transfer_ns: float
    """As in `MatchedCollectiveStat`."""
    measured_ns: float
    """Time in the benchmark, interpolated between two measured sizes."""
    share: float
    """`measured_ns` / `transfer_ns`: share of the measured bandwidth that the run reached."""


class CrossRankSummary(Struct, frozen=True, kw_only=True):
    """Result of the cross-rank analysis (metrics.md section 5)."""

    collectives: list[MatchedCollectiveStat]
    """By total time of all ranks, largest first."""
    rank_waits: list[RankWait]
    matched: int
    """Number of per-rank collectives matched with another rank's."""
    unmatched: int
    compared_steps: int = 0
    """Number of steps in which ranks were compared: those that all recorded; 0 if they cannot be compared."""
    compared: list[list[int]] = []
    """Ranks that were compared with each other only: those of a group, or of a stage; empty if all were."""
    stragglers: list[Straggler] = []
    """Largest lag first; empty if no rank is late beyond chance."""
    stragglers_gain_ns: int | None = None
    """The same if none of them is late; None without any, too."""
    one_off_stragglers: list[OneOffStraggler] = []
    """Steps with a one-off delay, largest lag first; three at most."""
    one_off_gain_ns: int | None = None
    """By how much the mean step gets shorter in the replay if their ranks are as fast as the others in these steps,
    after that without stragglers; None if unknown."""
    early_ranks: list[EarlyRank] = []
    """Largest lead first; empty unless most of the waiting is theirs."""
    last_arrivals: LastArrivals | None = None
    """Only with fewer steps than stragglers can be found in; None if most of the waiting is not for the
    same ranks."""
    clocks: list[HostClock] = []
    """The reference host first."""
    bandwidth_fits: list[BandwidthFit] = []
    slow_transfers: list[SlowTransfers] = []
    """What the network makes slow, largest ratio first."""
    slow_transfers_gain_ns: int | None = None
    """By how much the mean step gets shorter without all of it; None if unknown."""

    @property
    def lateness_known(self) -> bool:
        """Whether there was enough to tell that a rank is late, or that none is."""
        return self.compared_steps >= FEWEST_COMPARED_STEPS

    @property
    def waits_known(self) -> bool:
        """Whether any collective tells how long ranks waited in it: a broadcast does not."""
        return any(row.wait_ns is not None for row in self.collectives)
