"""`sweep.json`: the points of a sweep and their states; and what a sweep found. A change bumps the version."""

from typing import Final, Literal

from msgspec import Struct

SWEEP_VERSION: Final = 2
SWEEP_ANSWER_VERSION: Final = 1
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
    """The kinds of series it belongs to; the smallest world size can belong to both. Empty for a script whose batch the
    sweep does not set: what it trains on in a step decides."""
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


class SweepConfiguration(Struct, frozen=True, kw_only=True):
    """The completed repeats of one configuration on one number of ranks."""

    name: str
    """The options that differ within the sweep: `2 ranks, hdf5`, `2 ranks, compile=true`."""
    ranks: int
    runs: list[str]
    """Names of the run folders."""
    samples_per_s: float
    """Of all ranks together, median over runs; of steps without the profiler where there are any."""
    slowest_samples_per_s: float
    """Of the slowest run."""
    fastest_samples_per_s: float
    """Of the fastest run."""
    step_ns: float
    """Median over runs (see `Throughput`)."""
    samples_per_step: int
    """Of all ranks together."""


class SweepAnswer(Struct, frozen=True, kw_only=True):
    """What a sweep found: output of `perfkit sweep --json`."""

    schema_version: int = SWEEP_ANSWER_VERSION
    folder: str
    points: list[SweepPoint]
    """Those that this call asked for."""
    configurations: list[SweepConfiguration]
    """The fastest first."""
    sentences: list[str]
    """Which is fastest, compared with what, and why as far as it is known."""
    commands: list[str]
    """What shows more."""
