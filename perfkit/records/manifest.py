"""`run.json`: the manifest that a run writes. A change to it bumps `MANIFEST_VERSION`."""

from typing import Annotated, Any, Final, Literal, get_args

from msgspec import Meta, Struct

from perfkit.phases import Phase
from perfkit.records.per_run.pauses import EarlierPauses, RecordedPause

MANIFEST_VERSION: Final = 2


class Injection(Struct, frozen=True, kw_only=True):
    """An artificial delay in one phase of every step, for teaching and tests."""

    phase: Phase
    delay_ns: Annotated[int, Meta(gt=0)]
    rank: Annotated[int, Meta(ge=0)] | None = None
    """The delayed rank; every rank if None."""


StepKind = Literal["cold", "plain", "warmup", "active"]
"""`cold`: the first step (allocations, DDP's first buckets), or one after a trace was written, as many as loader
workers may have prepared batches meanwhile and one; `plain`: timed
without the profiler; `warmup`: profiler on, but the step does not count; `active`: recorded."""


class RankMemory(Struct, frozen=True, kw_only=True):
    """Bytes that one rank holds between two steps, and its gradients when the optimizer steps (metrics.md section 11).

    What it gathers for a while, activations and communication buffers are not included.
    """

    parameters_bytes: int
    gradients_bytes: int
    optimizer_bytes: int


class ReplicaCheck(Struct, frozen=True, kw_only=True):
    """What a rank of a script trained on and from, to compare with other ranks (metrics.md section 9)."""

    batches: list[str] = []
    """Hashes of what its model was given in each of its first steps, else of what its loader returned."""
    loaded: list[str] = []
    """Hashes of what its loaders returned in each of its first steps."""
    initial: list[str] = []
    """Hashes of the parameters of each optimizer before its first update."""
    updated: list[str] = []
    """The same after two updates."""
    parameters: int | None = None
    """Number of those that the optimizers update; None if they were not read."""


class RankRecord(Struct, frozen=True, kw_only=True):
    """Record of one rank: where it ran, and the duration of each of its steps by its own clock."""

    rank: int
    local_rank: int
    node_rank: int
    host: str
    device: str
    device_name: str
    threads: int
    """Threads of torch's intra-op pool on the CPU."""
    node_cores: int | None = None
    """Cores that the ranks of its host may run on, in total; None if unknown."""
    step_wall_ns: list[int]
    """Duration of each completed step, from requesting the batch to the end of the optimizer step: the host's wall time
    on a CPU, the time between two events in its stream on an accelerator."""
    load_ns: list[int]
    """Host time spent waiting for each step's batches, without the end of a pass over the data and the start of the
    next one."""
    loss: list[float | None]
    """Loss of each completed step; None if not finite, not readable from the device after a failure, or known
    to another rank only (the one with the pipeline's last stage)."""
    memory: RankMemory | None = None
    """None if not measured: `perfkit run WORKLOAD` measures it in the first step."""
    writing_ns: int = 0
    """How long it took, in no step, to stop the profiler and to write traces, until all ranks had done so."""
    trace_bytes: int = 0
    """Size of the files of its traces."""
    pauses: list[RecordedPause] = []
    """Checkpoints, evaluations and logging beside the steps, in order of time; at most the last 10,000."""
    earlier_pauses: list[EarlierPauses] = []
    """Those before, by phase."""
    check: ReplicaCheck | None = None
    """None with `--no-check-replicas`, or if it shows nothing; only of scripts."""


class MeshDimension(Struct, frozen=True, kw_only=True):
    """One dimension of the mesh of ranks."""

    name: str
    """`pp`, `replicate`, `dp`, `shard`, `ep`, `cp` or `tp`."""
    size: int
    groups: list[list[int]]
    """Ranks of each process group along it; every rank is in one."""


class ExpertLoad(Struct, frozen=True, kw_only=True):
    """Tokens that the experts of one layer got per step, the mean over all steps.

    A token that goes to two experts counts twice.
    """

    layer: int
    expert_tokens: list[float]
    """By expert, from all ranks together."""
    rank_tokens: list[float]
    """By rank: of the experts that it has."""


class World(Struct, frozen=True, kw_only=True):
    """Layout of the ranks over nodes."""

    world_size: int
    nodes: int
    launcher: str
    local_world_sizes: list[int]
    """Ranks per node, by node rank."""


SamplesFrom = Literal["told", "loader", "forward"]
"""`told`: by an option, or the script itself; `loader`: the DataLoader's batch size times the batches of a step;
`forward`: the first dimension of the input of the outermost forward passes of a step."""

FileKind = Literal[
    "trace", "key_averages", "python_profile", "memory_snapshot", "nccl_log", "earlier_steps", "step_log"
]
FILE_KINDS: Final[tuple[FileKind, ...]] = get_args(FileKind)


class TraceFile(Struct, frozen=True, kw_only=True):
    """A file that the run wrote and verified; `path` is relative to the run folder."""

    path: str
    rank: int
    cycle: int
    bytes: int
    kind: FileKind


class Throughput(Struct, frozen=True, kw_only=True):
    """Rates over the plain steps if there are any, otherwise over the recorded ones (see `measured_on`)."""

    samples_per_s: float
    tokens_per_s: float | None
    flops_per_s: float | None
    """Model FLOP/s of the whole run (metrics.md section 8)."""
    mfu: float | None
    mfu_reason: str | None
    """Why there is no MFU."""
    read_bytes_per_s: float | None
    """Bytes of samples delivered per second of waiting for them, summed over ranks. None if waiting time is not reading
    time: with loader workers, which read ahead, or with an injected loading delay."""
    measured_on: Literal["plain", "active"]
    step_ns: int
    """Mean over those steps of the wall time, on the slowest rank."""

    @property
    def samples_per_step(self) -> int:
        """Samples that all ranks train on in a step. Ranks of one mesh may share theirs."""
        return round(self.samples_per_s * self.step_ns / 1e9)


class Failure(Struct, frozen=True, kw_only=True):
    """The first failure of a run."""

    rank: int
    message: str


class Compiled(Struct, frozen=True, kw_only=True):
    """Result of `torch.compile`."""

    graphs: int
    """Number of compiled graphs on the rank with the fewest; with 0 the model ran in eager mode."""
    steps: list[int]
    """Steps in which any rank compiled something."""


class FileBandwidth(Struct, frozen=True, kw_only=True):
    """Read bandwidth of the file with the samples: sequential reads of large blocks by one process, rank 0's.

    Measured right after the last step, from the start of the file, with the page cache as the run left it.
    """

    bytes_per_s: float
    read_bytes: int
    """Bytes read for the measurement."""
    wall_ns: int
    """How long that took; for a short file in the page cache, the median of several reads."""
    cached_share: float | None
    """Share of it that was already in the page cache; None if the system does not report it."""


class CaptureRecord(Struct, frozen=True, kw_only=True):
    """A capture: coming steps that were recorded while the run was in progress, in a separate folder."""

    condition: str | None = None
    """The condition of `--capture-when` that asked for it; None if a person did."""
    reason: str | None = None
    """What the condition saw."""
    first_step: int
    """The first recorded step; `step_kinds` and the steps of `ranks` begin one before it, with a warm-up step."""
    steps: int
    """Recorded steps, as planned."""
    ranks: list[int]
    """The ranks that were to record: those that were asked and have answered."""
    asked: list[int] | None = None
    """The ranks that were asked; None: all."""
    problems: dict[int, str] = {}
    """Ranks that have recorded fewer steps, or none, and why."""


class RunManifest(Struct, frozen=True, kw_only=True):
    """`run.json`: the configuration of a run, its ranks, what was measured of its steps, and its files."""

    schema_version: int = MANIFEST_VERSION
    run: str
    state: Literal["running", "completed", "failed"]
    failure: Failure | None = None
    workload: str
    source: str
    """Input source: a name of `--source`, or one given by the user's own loop."""
    started_at: str
    """ISO 8601, UTC."""
    finished_at: str | None = None
    config: dict[str, Any]
    """The effective configuration, every option by its name."""
    versions: dict[str, str]
    commit: str | None = None
    """Git commit of the working directory; uncommitted changes are not recorded."""
    backend: str | None
    device: str
    world: World
    mesh: list[MeshDimension] = []
    """Outermost dimension first; empty if unknown, as for a script."""
    parameters: int | None = None
    parameter_checksum: str | None = None
    """SHA-256 of the parameters after the last step, verified to be the same on all ranks."""
    compiled: Compiled | None = None
    """None if compilation was not requested."""
    batch_size: int | None = None
    """Samples per rank and step, over all its micro-steps."""
    batch_size_from: SamplesFrom | None = None
    """Of a script: how `batch_size` is known. None if it is unknown, and for a workload or a user's own loop, which
    know it."""
    sample_bytes: int | None = None
    tokens_per_sample: int | None = None
    flops_per_token: float | None = None
    injections: list[Injection] = []
    step_kinds: list[StepKind] = []
    """One per step, the same on all ranks; of a failed run, up to the last step in `ranks`."""
    ranks: list[RankRecord] = []
    experts: list[ExpertLoad] = []
    """One per layer with a mixture of experts."""
    throughput: Throughput | None = None
    file_bandwidth: FileBandwidth | None = None
    """None if the samples do not come from a file of perfkit's, or it could not be read (see `unknown`)."""
    cold_steps: int | None = None
    """Steps from the first on that read a file which was not in the page cache: those of the first pass over it; 0 if
    it was there when training began. None if that is unknown, or only a part of the file was."""
    unknown: dict[str, str] = {}
    """Fields here and in `ranks` that are None or empty because they are unknown, or lack steps, with the reason."""
    files: list[TraceFile] = []
    capture: CaptureRecord | None = None
    """None unless this is a capture of a run that was in progress."""
