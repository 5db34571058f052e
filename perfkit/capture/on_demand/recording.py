"""One capture on one rank: a warm-up step, the planned steps, and what is left in the capture's folder."""

from collections.abc import Callable, Mapping
from typing import TypeVar

import torch
from msgspec import Struct

from perfkit.capture.distributed.topology import Topology
from perfkit.capture.on_demand.mailbox import Done, Plan, Slot
from perfkit.capture.on_demand.step_ring import LightStep, write_earlier_steps
from perfkit.capture.recording.manifest_writer import rank_record
from perfkit.capture.recording.session import ProfilerOptions, Session
from perfkit.capture.schedule import Schedule

T = TypeVar("T")


class CapturedRank(Struct, frozen=True, kw_only=True):
    """The rank that records, and how."""

    rank: int
    world_size: int
    topology: Topology
    device: torch.device
    options: ProfilerOptions
    workload: str
    source: str
    mesh: Mapping[str, int] = {}


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
    """Records the steps of a plan on this rank, from the beginning of the step before them.

    Args:
        place: The rank.
        slot: The capture.
        plan: Which steps.
        earlier: The steps before.
        run: What times the run's own steps: notes its pauses, and its pipeline.
    """

    def __init__(self, place: CapturedRank, slot: Slot, plan: Plan, earlier: list[LightStep], run: Session) -> None:
        self.slot = slot
        self._place = place
        self._plan = plan
        self._earlier = earlier
        warmup_step = plan.first_step - 1
        self._session = Session(
            _Alone(place.rank, place.world_size),
            place.device,
            slot.folder,
            Schedule(skip_first=warmup_step, wait=0, warmup=1, active=plan.steps),
            options=place.options,
            workload=place.workload,
            source=place.source,
            mesh=place.mesh,
            first_step=warmup_step,
        )
        self._session.pauses = run.pauses
        self._session.pipeline = run.pipeline
        self._session.start()

    @property
    def annotates(self) -> bool:
        """Whether the step in progress is recorded, and not a warm-up."""
        return self._session.recording

    @property
    def is_over(self) -> bool:
        """Whether all planned steps are recorded, and the trace is written."""
        return self._session.steps >= self._plan.first_step + self._plan.steps

    def step(self) -> None:
        """End a step; after the last one the trace is written.

        Raises:
            StoreError: It cannot be written.
        """
        self._session.step()

    def leave(self) -> Done:
        """Return what was recorded, after the files beside the trace are written.

        Raises:
            StoreError: One cannot be written.
        """
        place, measured = self._place, self._session.measurements(wait=False)
        recorded = max(0, min(self._session.steps - self._plan.first_step, self._plan.steps))
        write_earlier_steps(self.slot.folder / f"rank{place.rank}.earlier_steps.json", place.rank, self._earlier)
        return Done(
            record=rank_record(place.rank, place.topology, measured),
            kinds=measured.kinds,
            steps=recorded,
            problem=None if self.is_over else f"the run ended after {recorded} of {self._plan.steps} steps",
        )

    def finish(self) -> None:
        """End early, because the run ends: write the steps that have ended.

        Raises:
            StoreError: The trace cannot be written.
        """
        self._session.finish()

    def discard(self) -> None:
        """Stop, and write nothing."""
        self._session.discard()
