"""Finds the steps at which a condition of `--capture-when` begins to hold.

A condition fires when it begins to hold, and again only after it has not held for `_CALM_STEPS` steps. What it asks for
are coming steps, not the one that fired it. A stall that comes every N steps is caught nevertheless: three stalls at
equal distances tell when the next one is due.
"""

import statistics
from collections import deque
from typing import Final, NamedTuple

from perfkit.capture.conditions import Condition

_CALM_STEPS: Final = 10
_REMEMBERED: Final = 64
_NEEDED: Final = 20
"""Steps before a median is known."""
_RENEWED_EVERY: Final = 16
"""A median takes longer than a step may cost: it is renewed after so many steps."""
_LOADER_STEPS: Final = 10
"""The loader's share is that of so many steps: a single batch may always come late."""
_ONSETS: Final = 16
_MOST_BETWEEN: Final = 4
"""Onsets after the first of three at equal distances and before the last one."""


class Firing(NamedTuple):
    """A condition that has begun to hold."""

    condition: Condition
    reason: str
    first_step: int | None = None
    """The step to begin with, if the next one of its kind is due; None: as early as possible."""
    period: int | None = None


class Periods:
    """The steps at which a condition began to hold, and the periods among them."""

    def __init__(self) -> None:
        self._onsets: deque[int] = deque(maxlen=_ONSETS)
        self._known: list[tuple[int, int]] = []

    def find(self, step: int) -> int | None:
        """Note that the condition began to hold at `step`; returns the period at which it has done so three times.

        Where it holds often, some three times have equal distances by chance: at least half of those in between must
        belong to the period.
        """
        known = [*self._onsets]
        self._onsets.append(step)
        periods = (step - other for other in known if 2 * other - step in known)
        return min(
            (one for one in periods if sum(other > step - 2 * one for other in known) <= _MOST_BETWEEN), default=None
        )

    def expect(self, step: int, period: int) -> None:
        """Remember that a stall at `step` and every `period` steps is being recorded."""
        self._known.append((step % period, period))

    def is_known(self, step: int) -> bool:
        """Return whether what happens at `step` belongs to what has been recorded before."""
        return any(step % period == phase for phase, period in self._known)


class Trigger:
    """One condition on one rank."""

    def __init__(self, condition: Condition) -> None:
        self.condition = condition
        self._durations_ns: deque[int] = deque(maxlen=_REMEMBERED)
        self._loads_ns: deque[tuple[int, int]] = deque(maxlen=_LOADER_STEPS)
        self._usual_ns = 0.0
        self._seen = 0
        self._calm = _CALM_STEPS
        self._periods = Periods()

    def step_ended(self, step: int, step_ns: int, load_ns: int | None) -> Firing | None:
        """Note a step that was not recorded; returns whether the condition has begun to hold.

        Args:
            step: Its number.
            step_ns: How long it took.
            load_ns: How long it waited for its batch; None if unknown.
        """
        reason = self._reason(step, step_ns, load_ns)
        if reason is None:
            self._calm += 1
            return None
        began, self._calm = self._calm >= _CALM_STEPS, 0
        if self.condition.kind == "every":
            return Firing(self.condition, reason)
        return self._fire(step, reason) if began else None

    def _fire(self, step: int, reason: str) -> Firing | None:
        period = self._periods.find(step)
        if self._periods.is_known(step):
            return None
        if period is None:
            return Firing(self.condition, reason)
        self._periods.expect(step, period)
        return Firing(
            self.condition, f"{reason}, like steps {step - 2 * period} and {step - period}", step + period - 1, period
        )

    def _reason(self, step: int, step_ns: int, load_ns: int | None) -> str | None:
        """Return why the condition holds; None if it does not."""
        if self.condition.kind == "every":
            return f"step {step}" if step and step % int(self.condition.limit) == 0 else None
        if self.condition.kind == "loader":
            return self._loader_reason(step, step_ns, load_ns)
        usual_ns = self._usual_ns
        self._add(step_ns)
        if not usual_ns or step_ns <= self.condition.limit * usual_ns:
            return None
        return f"step {step} took {step_ns / 1e6:.3g} ms, {step_ns / usual_ns:.1f} times the median"

    def _loader_reason(self, step: int, step_ns: int, load_ns: int | None) -> str | None:
        if load_ns is None:
            return None
        self._loads_ns.append((load_ns, step_ns))
        load, whole = (sum(part) for part in zip(*self._loads_ns, strict=True))
        if len(self._loads_ns) < _LOADER_STEPS or load <= self.condition.limit * whole:
            return None
        return f"{load / whole:.0%} of steps {step - _LOADER_STEPS + 1} to {step} waited for the loader"

    def _add(self, step_ns: int) -> None:
        self._durations_ns.append(step_ns)
        self._seen += 1
        if self._seen >= _NEEDED and (self._seen - _NEEDED) % _RENEWED_EVERY == 0:
            self._usual_ns = statistics.median(self._durations_ns)
