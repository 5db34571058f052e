"""`run.json`: what a run says of itself. A change to it bumps `MANIFEST_VERSION`."""

from typing import Annotated, Any, Final, Literal, get_args

from msgspec import Meta, Struct

from perfkit.phases import Phase

MANIFEST_VERSION: Final = 2


class Injection(Struct, frozen=True, kw_only=True):
    """A delay put into one phase of every step on purpose, to teach and to test with."""

    phase: Phase
    delay_ns: Annotated[int, Meta(gt=0)]
    rank: Annotated[int, Meta(ge=0)] | None = None
    """The rank that is delayed; every rank if None."""


StepKind = Literal["cold", "plain", "warmup", "active"]
"""`cold`: the first step (allocations, DDP's first buckets) or one that follows the writing of a trace; `plain`:
timed without the profiler; `warmup`: profiler on, nothing kept; `active`: recorded."""


class RankRecord(Struct, frozen=True, kw_only=True):
    """One rank's own record: where it ran and how long each of its steps took by its own clock."""

    rank: int
    local_rank: int
    node_rank: int
    host: str
    device: str
    device_name: str
    threads: int
    """CPU threads of torch's intra-op pool."""
    node_cores: int | None = None
    """Cores that all ranks of its host may run on, together; None where that is not known."""
    step_wall_ns: list[int]
    """Duration of each completed step, from asking for the batch to the end of the optimizer: on a CPU the host's wall
    time, on an accelerator the time between two events in its own queue."""
    load_ns: list[int]
    """Host time spent waiting for each step's batch."""
    loss: list[float | None]
    """Loss of each completed step; None where it was not finite, or not to be had from a device after a failure."""


class World(Struct, frozen=True, kw_only=True):
    """How the ranks were laid out."""

    world_size: int
    nodes: int
    launcher: str
    local_world_sizes: list[int]
    """Ranks a node, by node rank."""


FileKind = Literal["trace", "key_averages", "python_profile", "memory_snapshot", "nccl_log"]
FILE_KINDS: Final[tuple[FileKind, ...]] = get_args(FileKind)


class TraceFile(Struct, frozen=True, kw_only=True):
    """A file that the run wrote and checked; `path` is relative to the run folder."""

    path: str
    rank: int
    cycle: int
    bytes: int
    kind: FileKind


class Throughput(Struct, frozen=True, kw_only=True):
    """Rates over the warm steps that were not recorded, else over the recorded ones (`measured_on` says which)."""

    samples_per_s: float
    tokens_per_s: float | None
    flops_per_s: float | None
    """Model FLOP/s of the whole run (metrics.md section 8)."""
    mfu: float | None
    mfu_reason: str | None
    """Why there is no MFU."""
    read_bytes_per_s: float | None
    """Bytes of samples delivered per second of waiting for them, summed over ranks. None where the waiting is not the
    reading: with loader workers, which read ahead, and with an injected delay of the loading."""
    measured_on: Literal["plain", "active"]
    step_ns: int
    """Median over those steps of the largest wall time over ranks."""


class Failure(Struct, frozen=True, kw_only=True):
    """The first failure of a run."""

    rank: int
    message: str


class Compiled(Struct, frozen=True, kw_only=True):
    """What `torch.compile` made of the model."""

    graphs: int
    """Compiled graphs of the rank with the fewest; with 0 the model ran as if it had not been asked to compile."""
    steps: list[int]
    """Steps in which something was compiled, on any rank."""


class FileBandwidth(Struct, frozen=True, kw_only=True):
    """How fast the file of the samples can be read: large blocks one after the other by one process, rank 0's.

    Measured right after the last step, from the file's beginning, as the run has left it in the page cache.
    """

    bytes_per_s: float
    read_bytes: int
    """What was read for it."""
    wall_ns: int
    """How long that took; of a short file that lies in the page cache, the median of several times."""
    cached_share: float | None
    """Share of it that was in the page cache before; None where the system does not say."""


class RunManifest(Struct, frozen=True, kw_only=True):
    """`run.json`."""

    schema_version: int = MANIFEST_VERSION
    run: str
    state: Literal["running", "completed", "failed"]
    failure: Failure | None = None
    workload: str
    source: str
    """Input source: memory, hdf5, safetensors, or what the user's own loop calls it."""
    started_at: str
    """ISO 8601, UTC."""
    finished_at: str | None = None
    config: dict[str, Any]
    """The effective configuration, every option by its name."""
    versions: dict[str, str]
    commit: str | None = None
    """The git commit that the working directory was at; what was not committed there is not known."""
    backend: str | None
    device: str
    world: World
    parameters: int | None = None
    parameter_checksum: str | None = None
    """SHA-256 over the parameters after the last step, the same on all ranks (checked)."""
    compiled: Compiled | None = None
    """None where compiling was not asked for."""
    batch_size: int | None = None
    """Samples a rank and step: those of all its micro-steps."""
    sample_bytes: int | None = None
    tokens_per_sample: int | None = None
    flops_per_token: float | None = None
    injections: list[Injection] = []
    step_kinds: list[StepKind] = []
    """One a step, the same on all ranks; of a failed run as far as `ranks` go."""
    ranks: list[RankRecord] = []
    throughput: Throughput | None = None
    file_bandwidth: FileBandwidth | None = None
    """None where the samples come from no file of perfkit's, or it could not be read (then `unknown` says why)."""
    unknown: dict[str, str] = {}
    """Fields here and in `ranks` that cannot be known of this run, and why: they are None, or an empty list."""
    files: list[TraceFile] = []
