"""The analysis of the monitor's logs over a whole run (metrics.md section 26)."""

from typing import Literal

from msgspec import Struct

StepPart = Literal["data_loading", "forward", "backward", "optimizer", "pause", "collectives"]
"""Where in a step additional time is; `pause`: in a checkpoint, an evaluation or logging, `collectives`: while the host
waits for collectives."""


class StepTimeChange(Struct, frozen=True, kw_only=True):
    """The step time has moved, at a step or along a line: until the next change, or for good if there is none."""

    step: int
    """First step of the new level."""
    exact: bool
    """Whether it is this very step; otherwise the change is near it."""
    until_step: int | None = None
    """Step at which a gradual change ends; None for a change at once."""
    before_ns: int
    after_ns: int
    """Medians of the longest step over ranks."""
    ranks: list[int] = []
    """Ranks whose own time has changed with it, at most the first 16; empty: no single ones."""
    rank_count: int = 0
    part: StepPart | None = None
    """Where at least half of the difference is; None if unknown or nowhere."""


class PeriodicStall(Struct, frozen=True, kw_only=True):
    """Every n-th step takes longer."""

    period: int
    """In steps."""
    first_step: int
    last_step: int
    count: int
    """Steps that took longer."""
    expected: int
    """Steps from the first to the last, at the distance of the period."""
    extra_ns: int
    """Median of what they take more than usual."""
    rank: int | None = None
    """The rank that alone takes longer; None if several do, or if it is unknown."""
    part: StepPart | None = None


class SlowStep(Struct, frozen=True, kw_only=True):
    """A single step, or several in a row, that took more than twice the usual time."""

    first_step: int
    last_step: int
    wall_ns: int
    """The longest of them, with pauses, on the slowest rank."""
    usual_ns: int
    rank: int | None = None
    """The rank that alone took longer; None if several did, or if it is unknown."""
    part: StepPart | None = None


class LateRank(Struct, frozen=True, kw_only=True):
    """A rank that the others had to wait for."""

    rank: int
    late_steps: int
    """Of `steps`, those in which its own time exceeds the median of the others by at least 3 % of the median step."""
    steps: int
    """Steps that it has logged and that could be compared, from `first_step` to `last_step`."""
    lag_ns: int
    """Median of the excess, in those steps."""
    first_step: int | None = None
    """First step of the first stretch in which it is late; None if from the beginning, or now and then."""
    last_step: int | None = None
    """Last step of the last such stretch; None if to the end, or now and then."""
    part: StepPart | None = None


class EarlyEnd(Struct, frozen=True, kw_only=True):
    """A rank whose log ends before those of others."""

    rank: int
    last_step: int
    """The last that it has logged."""


class StepTimeCurve(Struct, frozen=True, kw_only=True):
    """Step time over the run, in blocks of equally many steps; over the steps and ranks of a block."""

    steps: list[int]
    """First step of each block."""
    low_ns: list[int]
    """10 % of the values are below."""
    median_ns: list[int]
    high_ns: list[int]
    """90 % of the values are below."""
    longest_ns: list[int]


class MonitorSummary(Struct, frozen=True, kw_only=True):
    """The course of a run according to the monitor's logs of its ranks."""

    ranks: int
    """Ranks with a readable log."""
    world_size: int
    first_step: int
    last_step: int
    steps: int
    rolled_up_steps: int
    """Of these steps, those that are logged together with others; of slow steps and stalls among them, few
    are found."""
    left_out_steps: int
    """Cold steps, and steps around and under the profiler, which are not compared."""
    warmup_steps: int
    """Steps at the beginning before the step time settled, which are not compared."""
    span_ns: int
    """From the beginning of the first step to the end of the last."""
    step_ns: int
    """Mean over the compared steps of the longest step over ranks; 0 if no step's time is known."""
    data_share: float | None
    """Waiting for data / step time, over all ranks and steps; None if unknown."""
    collective_share: float | None
    """Waiting for collectives / step time; None if unknown."""
    pause_ns: int | None
    """Checkpoints, evaluations and logging, summed over the run on the rank with the most; None if unknown."""
    peak_allocated_bytes: int | None
    peak_rss_bytes: int | None
    """The highest of a rank."""
    first_loss: float | None
    last_loss: float | None
    """Of those that are numbers."""
    changes: list[StepTimeChange]
    stalls: list[PeriodicStall]
    slow_steps: list[SlowStep]
    """At most the 100 that took longest, in order of the steps."""
    slow_step_count: int
    """Slow steps, without those of the stalls."""
    single_steps: int = 0
    """Compared steps that were not rolled up."""
    long_step_count: int = 0
    """Of these, steps that take more than 1.5 times the usual one, recurring or not."""
    long_step_times: float | None = None
    """Median of how many times the usual step they take; None without any."""
    late_ranks: list[LateRank]
    """At most the 64 that were late for longest, by time."""
    late_rank_count: int
    compared: bool
    """Whether there were enough steps to find any of these."""
    lateness_known: bool
    """Whether time in collectives is known on several ranks, so that ranks can be compared."""
    early_ends: list[EarlyEnd] = []
    """Ranks whose logs lack ten or more of the run's last steps, at most the first 64 to end, in this order."""
    early_end_count: int = 0
    curve: StepTimeCurve
