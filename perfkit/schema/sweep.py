"""`sweep.json`: the points of a sweep and their states. A change to it bumps `SWEEP_VERSION`."""

from typing import Final, Literal

from msgspec import Struct

SWEEP_VERSION: Final = 2
ScalingKind = Literal["strong", "weak"]
"""What stays constant as ranks are added: the global batch (strong) or the batch per rank (weak)."""
PointState = Literal["planned", "completed", "failed"]


class SweepPoint(Struct, frozen=True, kw_only=True):
    """One run of a sweep, executed or planned."""

    run: str
    """Name of its run folder, next to `sweep.json`; a run that fails early leaves none."""
    key: str
    """Hexadecimal; identifies the repeats of one workload, world size and configuration."""
    ranks: int
    repeat: int
    scaling: list[ScalingKind]
    """The kinds of series it belongs to; the smallest world size can belong to both."""
    arguments: list[str]
    """Arguments of `perfkit run`."""
    state: PointState = "planned"
    reason: str | None = None
    """Why it failed, in one line."""
    wall_ns: int | None = None
    """Wall time of its processes, start-up included; None unless `perfkit sweep` itself ran it to its end."""


class Sweep(Struct, frozen=True, kw_only=True):
    """`sweep.json`: every point requested by any call of `perfkit sweep` on this folder."""

    schema_version: int = SWEEP_VERSION
    points: list[SweepPoint]
