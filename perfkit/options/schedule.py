"""The profiling schedule, such as `wait=1,warmup=1,active=3`, as in `torch.profiler.schedule`.

Of several warm-up steps all are recorded, too: a run that ends early leaves what there is.
"""

from typing import Annotated, Final, Literal, Self

import msgspec
from msgspec import Meta, Struct

from perfkit.base.validation import plain_message
from perfkit.errors import UsageError
from perfkit.records.manifest import StepKind

State = Literal["plain", "warmup", "active"]

PLAIN_STEPS_AFTER = 3
"""Warm unprofiled steps that a run adds after its schedule: its step time."""


class Schedule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`skip_first` plain steps, then `repeat` cycles of `wait` plain, `warmup` and `active` steps.

    The defaults are those of workloads, scripts and loops alike; docs/detail.md has the measurement.
    """

    wait: Annotated[int, Meta(ge=0)] = 1
    warmup: Annotated[int, Meta(ge=0)] = 7
    active: Annotated[int, Meta(ge=1)] = 10
    repeat: Annotated[int, Meta(ge=1)] = 1
    skip_first: Annotated[int, Meta(ge=0)] = 0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `key=number,…`; missing keys have their defaults.

        Raises:
            UsageError: A key is unknown or given twice, or a number is out of range.
        """
        try:
            return msgspec.convert(_pairs(text), cls, strict=False)
        except msgspec.ValidationError as error:
            raise UsageError(f"--schedule {text}: {plain_message(str(error))}") from error

    @property
    def cycle_steps(self) -> int:
        return self.wait + self.warmup + self.active

    @property
    def steps(self) -> int:
        """Steps up to the end of the last cycle."""
        return self.skip_first + self.repeat * self.cycle_steps

    @property
    def first_recorded(self) -> int:
        """The first step that can leave a trace."""
        return self.skip_first + self.wait + (self.warmup if self.warmup < 2 else 0)

    def records(self, step: int) -> bool:
        """Return whether `step` is recorded: an active one, or one of several warm-up steps."""
        state = self.state(step)
        return state == "active" or (state == "warmup" and self.warmup > 1)

    def first_kept(self, first: int, last: int) -> int:
        """Return the first step that counts of those recorded from `first` to `last`, of one cycle.

        That is the first active one; of a run that ends within the cycle, the later half counts, at least three steps.
        """
        active = self.skip_first + self.cycle(first) * self.cycle_steps + self.wait + self.warmup
        return active if self.ends_cycle(last) else max(first, min(active, (first + last) // 2, last - 2))

    def state(self, step: int) -> State:
        """Return the state of the profiler in `step` (from 0)."""
        if not self.skip_first <= step < self.steps:
            return "plain"
        position = (step - self.skip_first) % self.cycle_steps
        if position < self.wait:
            return "plain"
        return "warmup" if position < self.wait + self.warmup else "active"

    def cycle(self, step: int) -> int:
        """Return the cycle (from 0) that `step` belongs to."""
        return max(0, step - self.skip_first) // self.cycle_steps

    def ends_cycle(self, step: int) -> bool:
        """Return whether `step` is the last of its cycle: the trace is written after it."""
        inside = self.skip_first <= step < self.steps
        return inside and (step - self.skip_first + 1) % self.cycle_steps == 0


DEFAULT_SCHEDULE: Final = "wait=1,warmup=7,active=10,repeat=1,skip_first=0"
SCRIPT_SCHEDULE: Final = "wait=0,warmup=7,active=10,repeat=1,skip_first=0"
"""The same steps, counted from the end of a script's first one."""


def step_kind(schedule: Schedule | None, step: int, *, prepared: int = 0) -> StepKind:
    """Return the kind of `step`; without a schedule nothing is recorded.

    The state of the profiler takes precedence: a warm-up or active step is never `cold`, not even as the first step.

    Args:
        prepared: steps whose batches loader workers may prepare while a trace is written: they wait for none, as they
            would in a run without the profiler.
    """
    state: State = "plain" if schedule is None else schedule.state(step)
    before = range(max(0, step - 1 - prepared), step)
    after_export = schedule is not None and any(schedule.ends_cycle(earlier) for earlier in before)
    if state == "plain" and (step == 0 or after_export):
        return "cold"
    return state


def default_steps(schedule: Schedule | None, *, prepared: int = 0) -> int:
    """Return the default number of steps: those of the schedule, and some without the profiler (see `step_kind`)."""
    cold = 1 + prepared
    return (schedule.steps if schedule else 0) + cold + PLAIN_STEPS_AFTER


def _pairs(text: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = part.partition("=")
        key = key.strip().replace("-", "_")
        if not equals or not key:
            raise UsageError(f"--schedule {text}: '{part.strip()}' is not of the form key=number")
        if key in pairs:
            raise UsageError(f"--schedule {text}: {key} is given twice")
        pairs[key] = value.strip()
    return pairs
