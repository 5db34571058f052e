"""The ledger of a run's step: where its time goes, without rest (metrics.md section 10)."""

from typing import Literal

from msgspec import Struct

from perfkit.records.cross_rank import LateWork, SlowTransfers
from perfkit.records.per_rank.idle import Cause
from perfkit.records.samples import CodeLocation

LedgerCause = (
    Literal["compute", "late_ranks", "slow_network", "bubble", "communication", "memcpy", "data_loading", "unrecorded"]
    | Cause
)
"""What a row is about: `compute` is no loss; `late_ranks` is what the others wait for them, `bubble` that of pipelines;
`slow_network` is what transfers cost that take longer than comparable ones;
`unrecorded` is by how much the run's mean step is longer than recorded ones, and than steps like these;
the others are categories, and causes of idle time as on the critical path (`launch_bound` with host operators)."""


class LedgerRow(Struct, frozen=True, kw_only=True):
    """A part of the step."""

    cause: LedgerCause
    ns: int
    """Per step."""
    share: float
    """Of the step, 0 to 1."""
    ranks: list[int] = []
    """The late ranks; empty for the other rows."""
    late: Literal["always", "at_times", "in_turns", "once"] | None = None
    """In which steps they are late; None for the other rows."""
    steps: list[int] = []
    """The single steps that they are late in, or that are congested; empty if it is in more."""
    late_in: LedgerCause | None = None
    """What they take longer in, mostly; None if they differ."""
    work: LateWork | None = None
    """What they do more of, or more slowly, if that is known, and the same for each."""
    host: str | None = None
    """The host of which they are all ranks; None if they are not."""
    on_changing_ranks: bool = False
    """Whether what it is named after runs on each rank in some steps only, and in most steps on one of them."""
    phase: str | None = None
    """The phase in which a single rank is late; None if unknown."""
    name: str | None = None
    """What takes most of it: an operator, kernel, collective, function or annotation; None if the traces name
    nothing."""
    slow: SlowTransfers | None = None
    """The slowest transfers; None for the other rows."""
    code: CodeLocation | None = None
    """The line of the program that most of it is at; None if nothing was sampled there."""


class StepTime(Struct, frozen=True, kw_only=True):
    """The step time of a run (metrics.md section 7)."""

    mean_ns: float
    """Mean over steps of the wall time, on the slowest rank."""
    is_profiled: bool
    """Whether it is that of recorded steps, because no others are known."""
    profiled_ns: float
    """The same of the recorded steps."""
    steps: int
    """Number of steps that `mean_ns` is of."""
    long_steps: int = 0
    """How many of them take more than 1.5 times the longest recorded one: no recorded step shows what is in them."""
    long_ns: int = 0
    """What these take, summed."""

    @property
    def typical_ns(self) -> float:
        """The mean of the steps that recorded ones stand for; that of recorded ones if there are no such steps."""
        others = self.steps - self.long_steps
        return (self.mean_ns * self.steps - self.long_ns) / others if others else self.profiled_ns


class Ledger(Struct, frozen=True, kw_only=True):
    """The mean step of a run, divided into what takes its time on the critical path."""

    step_ns: int
    """The mean step; the rows add up to it."""
    is_profiled: bool
    """As in `StepTime`."""
    from_path: bool
    """Whether it is of the critical path; else, without a graph of the steps, of the mean over ranks."""
    rows: list[LedgerRow]
    """Largest first."""

    def of(self, cause: LedgerCause) -> LedgerRow | None:
        """Return the row of a cause, of several the largest that is not in single steps; None without one."""
        rows = [row for row in self.rows if row.cause == cause]
        return min(rows, key=lambda row: bool(row.steps), default=None)

    @property
    def losses(self) -> list[LedgerRow]:
        """All rows but that of compute, largest first."""
        return [row for row in self.rows if row.cause != "compute"]
