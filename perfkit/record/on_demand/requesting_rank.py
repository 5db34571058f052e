"""Asks for captures when a condition holds, on any rank: the first one asks, and all record the same steps."""

import contextlib
import logging
import os
import threading
from pathlib import Path
from typing import Final

from perfkit.errors import PerfkitError
from perfkit.options.conditions import SHORTEST_PERIOD, CaptureRules
from perfkit.record.messages import one_line
from perfkit.record.on_demand.mailbox import Request, finished_captures
from perfkit.record.on_demand.requester import agree, ask
from perfkit.record.on_demand.step_ring import LightStep
from perfkit.record.on_demand.triggers import Firing, Trigger
from perfkit.record.own_threads import start_own_thread

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
