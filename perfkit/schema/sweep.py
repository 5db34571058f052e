"""`sweep.json`: what a set of runs says of itself. A change to it bumps `SWEEP_VERSION`."""

from typing import Final, Literal

from msgspec import Struct

SWEEP_VERSION: Final = 2
ScalingKind = Literal["strong", "weak"]
"""What stays as ranks are added: the batch of all ranks together, or that of one rank."""
PointState = Literal["planned", "completed", "failed"]


class SweepPoint(Struct, frozen=True, kw_only=True):
    """One run of a sweep, whether it has been run or not."""

    run: str
    """Name of its run folder, beside `sweep.json`; a run that fails early leaves none."""
    key: str
    """Hexadecimal; the same for the repeats of one workload, number of ranks and configuration, and for no other."""
    ranks: int
    repeat: int
    scaling: list[ScalingKind]
    """What it is a point of; the smallest number of ranks can be of both."""
    arguments: list[str]
    """What follows `perfkit run`."""
    state: PointState = "planned"
    reason: str | None = None
    """Why it failed, in one line."""
    wall_ns: int | None = None
    """How long its processes took, start-up included; None where `perfkit sweep` itself did not run it to its end."""


class Sweep(Struct, frozen=True, kw_only=True):
    """`sweep.json`: every point that a call of `perfkit sweep` on this folder has asked for."""

    schema_version: int = SWEEP_VERSION
    points: list[SweepPoint]
