"""Result of `perfkit plan`. A change to it bumps `PLAN_VERSION`."""

from typing import Final, Literal

from msgspec import Struct

from perfkit.records.display import NotebookDisplay

PLAN_VERSION: Final = 2

PlanUnit = Literal["B", "ns", "FLOP", "ratio"]


class PlanTerm(Struct, frozen=True, kw_only=True):
    """One term of a sum, with the formula that it comes from."""

    part: str
    """What it belongs to: `parameters`, `gradients`, `optimizer`, `activations`, `buffers`, `communication`, `time`."""
    name: str
    value: float
    unit: PlanUnit
    formula: str
    source: str


class MemoryNeed(Struct, frozen=True, kw_only=True):
    """Bytes of the rank that needs most (docs/plan.md)."""

    parameters_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    activations_bytes: int | None
    """What the forward pass keeps for backward, and what the loss needs, at its largest; None if unknown."""
    buffers_bytes: int
    """Parameters gathered for a while, gradients before they are reduced, and DDP's buckets, at their largest."""
    peak_bytes: int
    """The most that is held at one time: not all of the above are at their largest together."""
    peak_at: Literal["end of forward", "begin of backward", "end of backward", "optimizer"]
    reserve_bytes: int
    """What the allocator is assumed to waste."""
    host_bytes: int = 0
    """Of a host's memory, for state that its ranks offload."""
    nvme_bytes: int = 0
    """Of a host's NVMe, likewise."""

    @property
    def state_bytes(self) -> int:
        """Parameters, gradients and optimizer state."""
        return self.parameters_bytes + self.gradients_bytes + self.optimizer_bytes

    @property
    def needed_bytes(self) -> int:
        """Memory that a device must have."""
        return self.peak_bytes + self.reserve_bytes


class Traffic(Struct, frozen=True, kw_only=True):
    """Collectives, sends and receives of one rank in one step: one operator along one dimension."""

    dimension: str
    operator: str
    group_size: int
    messages: int
    bytes: int
    """Message sizes S as traces have them, summed (metrics.md section 5)."""
    sent_bytes: int
    """What a rank sends with the ring algorithm."""
    across_hosts: bool
    time_ns: float | None
    """One after another, without anything beside; None without a device."""
    exposed_ns: float | None
    """What does not overlap with compute, by assumption."""


class StepEstimate(Struct, frozen=True, kw_only=True):
    """Time of one step, and what a number of tokens costs."""

    compute_ns: float
    recompute_ns: float
    """Of activations that are computed again."""
    communication_ns: float
    exposed_ns: float
    """Communication that does not overlap."""
    bubble_ns: float
    optimizer_ns: float
    step_ns: float
    tokens_per_s: float
    mfu: float
    device_hours: float | None = None
    """Of the number of tokens asked for."""
    energy_kwh: float | None = None
    """Of the devices alone, at their full power."""


class TracedMemory(Struct, frozen=True, kw_only=True):
    """The memory of rank 0 in one step on fake tensors, by category at the peak."""

    parameters_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    activations_bytes: int
    buffers_bytes: int
    """Communication buffers and temporary tensors."""
    peak_bytes: int
    formula_peak_bytes: int | None
    """The formulas' result; None if they do not cover the activations."""
    seconds: float
    """That tracing took."""
    note: str = ""
    """What tracing does not cover, and formulas add."""


class PlannedLayout(Struct, frozen=True, kw_only=True):
    """One way to share the model between the ranks."""

    name: str
    dp: str
    mesh: dict[str, int]
    checkpointing: str
    batch_size: int
    """Samples of a rank, or of ranks that share them, per step; the same for all ranks together."""
    micro_batches: int
    memory: MemoryNeed
    fits: bool | None
    """None if the device's memory is unknown."""
    over_bytes: int | None
    """By how much it needs more than there is; negative if it fits."""
    traffic: list[Traffic]
    step: StepEstimate | None
    """None if the device's peak is unknown."""
    terms: list[PlanTerm]
    command: str | None
    """That runs it: of perfkit, or of DeepSpeed or Megatron-LM with the user's own program."""
    refused: str | None
    """Why `perfkit run` does not run it, or neither of the others a model that `perfkit run` does not have."""
    traced: TracedMemory | None = None
    sequence_parallel: bool = False
    """Whether the ranks of `tp` divide, along the sequence, what is between the matrices."""
    loss_parallel: bool = False
    """Whether the ranks of `tp` leave the logits divided along the vocabulary."""
    offload: Literal["none", "optimizer", "parameters", "nvme"] = "none"
    """What DeepSpeed keeps in the host's memory: nothing, the optimizer's state, or all state; or all on NVMe."""
    tiles: int = 1
    """Parts that each large matrix is computed in."""
    short_of: Literal["device", "host", "nvme"] = "device"
    """What `over_bytes` is more than: the memory of the device or the host, or its NVMe."""

    @property
    def described(self) -> str:
        """Its name, with checkpointing if it has any."""
        return self.name if self.checkpointing == "none" else f"{self.name}, {self.checkpointing} checkpointing"


class PlanCheck(Struct, frozen=True, kw_only=True):
    """A prediction beside what a run measured."""

    name: str
    predicted: float
    measured: float | None
    """None if the traces do not contain it."""
    unit: Literal["B", "ns", "1"]
    is_given: bool = False
    """Whether the prediction was taken from the same run, so that it proves nothing."""


class PlannedModel(Struct, frozen=True, kw_only=True):
    """What is trained."""

    name: str
    parameters: int
    layers: int | None
    width: int | None
    heads: int | None
    sequence: int | None
    vocabulary: int | None
    flops_per_token: float
    is_assumed: bool = False
    """Whether the sizes are assumed from the number of parameters."""


class PlannedDevice(Struct, frozen=True, kw_only=True):
    """What it is trained on."""

    name: str
    memory_bytes: int | None
    flops_per_s: float | None
    """Peak for the plan's precision."""
    bandwidth_bytes_per_s: float | None
    devices_per_host: int
    host_bytes_per_s: float | None
    """Bandwidth of a device's links inside its host, one direction."""
    network_bytes_per_s: float | None
    """A device's share of its host's links to others, one direction."""
    power_watts: float | None
    sources: list[str]
    host_memory_bytes: int | None = None
    """Of one host; None if unknown."""
    nvme_bytes: int | None = None
    """Of one host's own drives; None if unknown."""


class Plan(NotebookDisplay, Struct, frozen=True, kw_only=True):
    """Result of `perfkit plan`."""

    schema_version: int = PLAN_VERSION
    model: PlannedModel
    ranks: int
    global_batch: int
    """Samples of one step, over all ranks."""
    precision: str
    device: PlannedDevice | None
    layouts: list[PlannedLayout]
    """The simplest first."""
    best: int | None
    """Place in `layouts`; None if nothing fits or the device is unknown."""
    reason: str
    """Why it is the best, or why there is none."""
    decision: list[str]
    """The questions that lead to a strategy, with the answers for this model and device."""
    assumptions: list[str]
    tokens: float | None = None
    checks: list[PlanCheck] = []
    """Of `--check`: terms of one run."""
    explained: list[int] = []
    """Places in `layouts` whose terms are shown."""
