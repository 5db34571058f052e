"""perfkit's own metadata in the header of a trace: written when a cycle is recorded, read by the analysis.

All fields but those of a collective's identity are optional, so that headers of other versions can be read.
"""

from typing import Annotated, Final

from msgspec import Meta, Struct

from perfkit.records.per_rank.loading import RecordedFetch
from perfkit.records.per_run.pauses import RecordedPause
from perfkit.records.samples import RecordedSamples

HEADER_KEY: Final = "perfkit"
"""Key of the metadata in the trace's header."""

HEADER_VERSION: Final = 1

Whole = Annotated[int, Meta(ge=-(2**61), le=2**61)]
"""An integer that fits a column, as do sums of a few of them; a header with a larger one cannot be read."""


class RecordedCollective(Struct, frozen=True, kw_only=True):
    """One collective, as torch's flight recorder saw it issued."""

    ns: Whole
    """Absolute time of issue, by the clock of the trace."""
    op: str
    bytes: Whole | None = None
    """Message size S (metrics.md section 5)."""
    dtype: str | None = None
    group: str | None = None
    group_size: Whole | None = None
    seq: Whole | None = None


class RecordedMessage(Struct, frozen=True, kw_only=True, array_like=True):
    """One send or receive of a pipeline's step."""

    operator: str
    """send or recv."""
    peer: Whole
    """Rank on the other side."""
    stage: Whole
    """Own stage."""
    micro_batch: Whole


class RecordedStage(Struct, frozen=True, kw_only=True):
    """One of the rank's stages."""

    index: Whole
    layers: Whole
    """Number of the model's layers in it."""


class RecordedPipeline(Struct, frozen=True, kw_only=True):
    """The pipeline that the rank is part of. All its steps are alike."""

    schedule: str
    """As in `--pp-schedule`."""
    stages: Whole
    """Number of stages on all ranks."""
    micro_batches: Whole
    own: list[RecordedStage]
    messages: list[RecordedMessage] | None = None
    """Sends and receives of one step, in order of issue; None if there are too many to list."""


class RecordedTensors(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an optimizer held on one device when a step of it began; lists of address and bytes of memory blocks.

    Parameters and state that an earlier record has at the same address are left out.
    """

    ns: Whole
    """Absolute time, by the clock of the trace."""
    device: Whole = -1
    """Number of the accelerator; -1 is the host."""
    parameters: list[tuple[Whole, Whole]] = []
    gradients: list[tuple[Whole, Whole]] = []
    optimizer_state: list[tuple[Whole, Whole]] = []


class CoreUse(Struct, frozen=True, kw_only=True):
    """How busy the cores were that the rank may run on, from the warm-up steps of a cycle to its last step."""

    cores: str
    """Which cores of which machine: the same for ranks that share them."""
    count: Whole
    """How many cores."""
    window_ns: Whole
    busy_ns: Whole
    """Time in which the cores were busy, whoever it was, or were stolen by the hypervisor: summed over cores."""
    own_ns: Whole
    """CPU time of the rank and its children, such as the workers of its loaders."""


class PerfkitHeader(Struct, frozen=True, kw_only=True):
    """What perfkit's session puts into the header of a trace."""

    schema_version: int = HEADER_VERSION
    run: str | None = None
    rank: Whole | None = None
    world_size: Whole | None = None
    cycle: Whole = 0
    workload: str | None = None
    source: str | None = None
    mesh: dict[str, Whole] = {}
    """Size of each dimension of the mesh of ranks, outermost first: the last varies fastest with the rank. Empty if
    unknown, as for a script."""
    light: bool = False
    """Whether the trace has no operators but those that communicate: what idle time is due to is not in it."""
    steps: tuple[Whole, Whole] | None = None
    """First and last step that count; the trace may also contain warm-up steps before them, and the beginning of the
    next one. None if unknown."""
    collectives: list[RecordedCollective] | None = None
    """In order of issue; None if the run could not record them."""
    pipeline: RecordedPipeline | None = None
    """None without a pipeline."""
    tensors: list[RecordedTensors] | None = None
    """In order of time; None unless memory was recorded, or if there were too many tensors."""
    pauses: list[RecordedPause] | None = None
    """Pauses since recording began, in order of time; None if unknown."""
    fetches: list[RecordedFetch] | None = None
    """Batches that data loaders of torch fetched since recording began, by begin; None without any."""
    without_batch: list[tuple[Whole, Whole]] | None = None
    """When data loaders of torch were asked for a batch and had none, begin and end; None if there was no such time."""
    core_use: CoreUse | None = None
    """None if the system does not show it."""
    samples: RecordedSamples | None = None
    """What the main thread ran since recording began; None without any."""
    worker_samples: list[RecordedSamples] | None = None
    """What the main threads of the loaders' worker processes ran; None without any."""
