"""One capture on one rank: a warm-up step, the planned steps, and what is left in the capture's folder."""

import statistics
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import msgspec

from perfkit.base.atomic_write import atomic_write
from perfkit.options.schedule import Schedule
from perfkit.record.distributed.topology import Topology
from perfkit.record.on_demand.mailbox import Done, Plan, Slot
from perfkit.record.recording.manifest_writer import rank_record
from perfkit.record.recording.recording import Recording
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


T = TypeVar("T")


class _Alone:
    """A rank that waits for no other (implements `RankGroup`): a capture must not keep a run waiting."""

    current_activity = ""

    def __init__(self, rank: int, world_size: int) -> None:
        self.rank = rank
        self.world_size = world_size

    def barrier(self) -> None:
        """Do nothing."""

    def run_on_all(self, action: Callable[[], T]) -> T:
        """Run `action` on this rank only."""
        return action()


class RankCapture:
    """Records the steps of a plan on this rank, from the beginning of the step before them."""

    def __init__(self, run: Recording, topology: Topology, slot: Slot, plan: Plan, earlier: list[LightStep]) -> None:
        self.slot = slot
        self._topology = topology
        self._plan = plan
        self._earlier = earlier
        warmup_step = plan.first_step - 1
        self.recording = run.beside(
            _Alone(run.rank, run.world_size),
            slot.folder,
            Schedule(skip_first=warmup_step, wait=0, warmup=1, active=plan.steps),
            warmup_step,
        )
        """Records the steps, as `Recording.step`, `end` and `discard` tell it."""
        self.recording.begin()

    @property
    def is_over(self) -> bool:
        """Whether all planned steps are recorded, and the trace is written."""
        return self.recording.steps >= self._plan.first_step + self._plan.steps

    def leave(self) -> Done:
        """Return what was recorded, after the files beside the trace are written."""
        rank, measured = self.recording.rank, self.recording.measurements(wait=False)
        recorded = max(0, min(self.recording.steps - self._plan.first_step, self._plan.steps))
        write_earlier_steps(self.slot.folder / f"rank{rank}.earlier_steps.json", rank, self._earlier)
        return Done(
            identifier=self._plan.identifier,
            record=rank_record(rank, self._topology, measured),
            kinds=measured.kinds,
            steps=recorded,
            problem=None if self.is_over else f"the run ended after {recorded} of {self._plan.steps} steps",
        )
