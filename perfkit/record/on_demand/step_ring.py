"""Remembers how long the last steps of one rank took."""

import statistics
from collections import deque
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from perfkit.base.atomic_write import atomic_write
from perfkit.records.monitor import EarlierSteps

REMEMBERED: Final = 512
_USUAL: Final = 64


class LightStep(NamedTuple):
    """A step that was not recorded."""

    step: int
    end_ns: int
    """Unix time."""
    step_ns: int
    load_ns: int | None
    """Waiting for the batch; None if unknown."""


class StepRing:
    """The last `REMEMBERED` steps."""

    def __init__(self) -> None:
        self._steps: deque[LightStep] = deque(maxlen=REMEMBERED)
        self.add = self._steps.append

    def last(self) -> list[LightStep]:
        """Return the steps, oldest first; other threads may add steps meanwhile."""
        return list(self._steps)

    def usual_ns(self) -> int | None:
        last = [one.step_ns for one in self.last()[-_USUAL:]]
        return round(statistics.median(last)) if last else None


def write_earlier_steps(path: Path, rank: int, steps: list[LightStep]) -> None:
    """Write the steps before a capture."""
    record = EarlierSteps(
        rank=rank,
        step=[one.step for one in steps],
        end_ns=[one.end_ns for one in steps],
        step_ns=[one.step_ns for one in steps],
        load_ns=[one.load_ns for one in steps],
    )
    with atomic_write(path) as stream:
        stream.write(msgspec.json.encode(record) + b"\n")
