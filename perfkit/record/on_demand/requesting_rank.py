"""Asks for captures when a condition of `--capture-when` holds, on any rank: the first asks, all record the same steps.

A condition fires when it begins to hold, and again only after it has not held for `CALM_STEPS` steps. What it asks for
are coming steps, not the one that fired it. A stall that comes every N steps is caught nevertheless: three stalls at
equal distances tell when the next one is due. It fires at each of them until it has been asked for.
"""

import contextlib
import logging
import os
import statistics
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from perfkit.errors import PerfkitError
from perfkit.options.conditions import SHORTEST_PERIOD, CaptureRules, Condition
from perfkit.record.messages import one_line
from perfkit.record.on_demand.mailbox import Request, finished_captures
from perfkit.record.on_demand.rank_capture import LightStep
from perfkit.record.on_demand.requester import agree, ask
from perfkit.record.own_threads import start_own_thread

CALM_STEPS: Final = 10
_REMEMBERED: Final = 64
_NEEDED: Final = 20
"""Steps before a median is known."""
_RENEWED_EVERY: Final = 16
"""A median takes longer than a step may cost: it is renewed after so many steps."""
_LOADER_STEPS: Final = 10
"""The loader's share is that of so many steps: a single batch may always come late."""
_STALLS: Final = 64
_SHORTEST_PERIOD: Final = 20
_SPREAD: Final = 1.15
"""Steps of one kind differ in duration by less than this factor."""


_MOST_BETWEEN: Final = 2
"""Steps that are as long between the first and the last of three, the one in the middle included."""


class Firing(NamedTuple):
    """A condition that has begun to hold."""

    condition: Condition
    reason: str
    first_step: int | None = None
    """The step to begin with, if the next one of its kind is due; None: as early as possible."""
    period: int | None = None
    asked: Callable[[], None] = lambda: None
    """Called once a capture has been asked for, from another thread: while another is in progress, none can be."""


class Periods:
    """The long steps, and the periods among them."""

    def __init__(self) -> None:
        self._stalls: deque[tuple[int, int]] = deque(maxlen=_STALLS)
        self._known: list[tuple[int, int]] = []

    def find(self, step: int, step_ns: int) -> int | None:
        """Note a long step; returns the period of three equally long steps of which it is the last.

        Hardly another step between them may be as long: among many, some have equal distances by chance.
        """
        alike = {
            other for other, other_ns in self._stalls if step_ns < _SPREAD * other_ns and other_ns < _SPREAD * step_ns
        }
        self._stalls.append((step, step_ns))
        for other in sorted(alike, reverse=True):
            period = step - other
            if period >= _SHORTEST_PERIOD and 2 * other - step in alike:
                between = sum(step - 2 * period < one < step for one in alike)
                return period if between <= _MOST_BETWEEN else None
        return None

    def expect(self, step: int, period: int) -> None:
        """Remember that a stall at `step` and every `period` steps has been asked for."""
        self._known.append((step % period, period))

    def is_known(self, step: int) -> bool:
        """Return whether what happens at `step` belongs to what has been asked for before."""
        return any(step % period == phase for phase, period in self._known)


class Trigger:
    """One condition on one rank.

    Raises:
        ValueError: It is another.
    """

    def __init__(self, condition: Condition) -> None:
        self.condition = condition
        reasons = {"step": self._step_reason, "loader": self._loader_reason, "every": self._every_reason}
        if condition.kind not in reasons:
            raise ValueError(f"a rank's own steps do not show {condition.text!r}")
        self._reason = reasons[condition.kind]
        """Returns why the condition holds; None if it does not."""
        self._durations_ns: deque[int] = deque(maxlen=_REMEMBERED)
        self._loads_ns: deque[tuple[int, int]] = deque(maxlen=_LOADER_STEPS)
        self._usual_ns = 0.0
        self._seen = 0
        self._calm = CALM_STEPS
        self._periods = Periods()

    def step_ended(self, step: int, step_ns: int, load_ns: int | None) -> Firing | None:
        reason = self._reason(step, step_ns, load_ns)
        if reason is None:
            self._calm += 1
            return None
        began, self._calm = self._calm >= CALM_STEPS, 0
        period = None
        if self.condition.kind == "step":
            period = self._periods.find(step, step_ns)
            if self._periods.is_known(step):
                return None
        if period is None:
            return Firing(self.condition, reason) if began else None
        reason = f"{reason}, like steps {step - 2 * period} and {step - period}"
        return Firing(self.condition, reason, step + period - 1, period)

    def asked(self, first_step: int | None, period: int | None) -> None:
        """Note that this rank or another has asked for the stall that follows `first_step`; it does not fire again."""
        if first_step is not None and period:
            self._periods.expect(first_step + 1, period)

    def _every_reason(self, step: int, _step_ns: int, _load_ns: int | None) -> str | None:
        return f"step {step}" if step and step % int(self.condition.limit) == 0 else None

    def _step_reason(self, step: int, step_ns: int, _load_ns: int | None) -> str | None:
        usual_ns = self._usual_ns
        self._durations_ns.append(step_ns)
        self._seen += 1
        if self._seen >= _NEEDED and (self._seen - _NEEDED) % _RENEWED_EVERY == 0:
            self._usual_ns = statistics.median(self._durations_ns)
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


_LOG: Final = logging.getLogger(__name__)
STEPS: Final = 3
"""Steps of a capture that a condition asks for."""
_LEAD_NS: Final = 10 * 10**9
"""How long before a step that is due it is asked for."""


class RequestingRank:
    """The conditions of a run on one rank, and what they may still ask for."""

    def __init__(self, folder: Path, world_size: int, rules: CaptureRules) -> None:
        self._folder = folder
        self._ranks = range(world_size)
        self._triggers = [Trigger(condition) for condition in rules.conditions if condition.kind != "late"]
        self._left = rules.captures
        self._most_bytes = rules.most_bytes
        self._due: Firing | None = None
        self._quiet_until = 0
        self._step = 0
        self._asking: threading.Thread | None = None

    def step_ended(self, step: LightStep) -> None:
        self._step = step.step
        for trigger in self._triggers:
            firing = trigger.step_ended(step.step, step.step_ns, step.load_ns)
            if firing is not None and self._due is None and self._left > 0:
                self._due = firing
        due = self._due
        if due is None or (due.first_step is not None and (due.first_step - step.step) * step.step_ns > _LEAD_NS):
            return
        self._due = None
        if step.step >= self._quiet_until and self._left > 0 and not (self._asking and self._asking.is_alive()):
            self._quiet_until = step.step + SHORTEST_PERIOD
            self._asking = start_own_thread("asks", self._ask, due, step.step)

    def offer(self, firing: Firing) -> None:
        """Ask, once the step in progress has ended, for what another thread has seen, unless it is too early for it."""
        if self._due is None and self._left > 0 and self._step >= self._quiet_until:
            self._due = firing

    def note(self, request: Request) -> None:
        if request.condition is not None:
            self._left -= 1
            self._note_asked(request)
            if self._due is not None and self._due.period is not None and self._due.period == request.period:
                self._due = None

    def _note_asked(self, request: Request) -> None:
        """Note what this rank or another has asked for: the next request is made long enough after it."""
        begins = request.first_step if request.first_step is not None else request.at_step
        if begins is not None:
            self._quiet_until = max(self._quiet_until, begins + SHORTEST_PERIOD)
        for trigger in self._triggers:
            if trigger.condition.text == request.condition:
                trigger.asked(request.first_step, request.period)

    def _ask(self, firing: Firing, step: int) -> None:
        try:
            sizes = [folder_bytes(folder) for folder in finished_captures(self._folder)]
            if sum(sizes) + max(sizes, default=0) > self._most_bytes:  # with one more, as large as the largest so far
                return
            request = Request(
                steps=STEPS,
                condition=firing.condition.text,
                reason=firing.reason,
                at_step=step,
                first_step=firing.first_step,
                period=firing.period,
            )
            slot = ask(self._folder, request)
            firing.asked()
            self._note_asked(request)
            agree(slot, self._ranks)
        except (PerfkitError, OSError) as error:  # another rank has asked for the same, or the run ends
            _LOG.info("no capture for %s: %s", firing.condition.text, one_line(error))


def folder_bytes(folder: Path) -> int:
    size = 0
    with contextlib.suppress(OSError):  # somebody removes it at this moment
        for entry in os.scandir(folder):
            if entry.is_file(follow_symlinks=False):
                size += entry.stat(follow_symlinks=False).st_size
    return size
