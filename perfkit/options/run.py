"""General options of `perfkit run`: names, types, defaults and invalid combinations.

Every field is a command-line option and a key of the TOML file. `data.DataOptions`, the source's `Config` and
the workload's `Config` add theirs.
"""

from typing import Annotated, Final, Literal

from msgspec import Meta

from perfkit.accelerators import device_backends, device_types
from perfkit.base.parsing import parse_duration
from perfkit.errors import UsageError
from perfkit.options.help_groups import COMMON, PARALLELISM, RANKS, RECORDING, TRAINING
from perfkit.options.mesh import MeshLayout, lay_out, parse_mesh
from perfkit.options.recording import EXTENT, LOCATES, SUPERVISES, TIMEOUT, CommandOptions
from perfkit.options.schedule import Schedule, default_steps
from perfkit.options.trace_ranks import check_ranks_exist, is_light
from perfkit.phases import INJECTABLE
from perfkit.records.manifest import Injection

Precision = Literal["float32", "bfloat16", "float16"]
PipelineName = Literal["none", "gpipe", "1f1b", "interleaved", "zero-bubble", "zbv"]
NcclLevel = Literal["version", "warn", "info", "trace"]
_Count = Annotated[int, Meta(ge=1)]


DEFAULT_EVAL_BATCHES: Final = 8


class RunConfig(CommandOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """General options of a run, checked on construction."""

    preset: Annotated[str | None, TRAINING, COMMON, Meta(description="Named set of options of the workload.")] = None
    config: Annotated[
        str | None, TRAINING, LOCATES, Meta(description="TOML file with options; the command line takes precedence.")
    ] = None
    steps: Annotated[
        _Count | None,
        TRAINING,
        COMMON,
        EXTENT,
        Meta(description="Training steps [default: the schedule, then cold and 3 warm steps without the profiler]."),
    ] = None
    epochs: Annotated[
        _Count | None, TRAINING, EXTENT, Meta(description="Passes over the data set, instead of --steps.")
    ] = None
    batch_size: Annotated[
        int,
        TRAINING,
        COMMON,
        EXTENT,
        Meta(ge=1, description="Samples per rank and micro-step; ranks of tp, cp and pp share them."),
    ] = 32
    accumulate: Annotated[
        int,
        TRAINING,
        Meta(ge=1, description="Micro-steps per step: gradients accumulate over them and are all-reduced once."),
    ] = 1
    mesh: Annotated[
        str | None,
        PARALLELISM,
        COMMON,
        Meta(description="Mesh of the ranks, for example pp=2,dp=2,tp=2 [default: dp = all ranks]."),
    ] = None
    dp: Annotated[
        str,
        PARALLELISM,
        COMMON,
        Meta(
            description="What data-parallel ranks shard: nothing (ddp), optimizer state (zero1), also "
            "gradients (zero2), also parameters (zero3; hsdp: within the groups of `shard`); deepspeed: see --zero."
        ),
    ] = "ddp"
    prefetch_layers: Annotated[
        _Count | None,
        PARALLELISM,
        Meta(
            description="With zero2, zero3 and hsdp: layers whose parameters are gathered before the layer that needs "
            "them first computes [default: torch's own order, in backward one layer]."
        ),
    ] = None
    zero: Annotated[
        Annotated[int, Meta(ge=0, le=3)] | None,
        PARALLELISM,
        Meta(description="ZeRO stage of --dp deepspeed, from 0 to 3 [default: that of --ds-config, or 0]."),
    ] = None
    ds_config: Annotated[
        str | None,
        PARALLELISM,
        Meta(
            description="DeepSpeed's JSON configuration; fields that are missing or 'auto' are set from the options. "
            "Its optimizer and scheduler replace the workload's."
        ),
    ] = None
    sequence_parallel: Annotated[
        bool,
        PARALLELISM,
        Meta(description="With tensor parallelism (tp in --mesh): also split the operations between matrix products."),
    ] = False
    loss_parallel: Annotated[
        bool,
        PARALLELISM,
        Meta(description="With tensor parallelism: also compute the loss from the split output of the model."),
    ] = False
    pp_schedule: Annotated[
        PipelineName | None,
        PARALLELISM,
        Meta(
            description="Schedule of the pipeline (pp in --mesh); none: no micro-batches, so that one stage computes "
            "at a time [default: 1f1b]."
        ),
    ] = None
    micro_batches: Annotated[
        _Count | None,
        PARALLELISM,
        Meta(description="Micro-batches per batch in the pipeline [default: twice its ranks]."),
    ] = None
    precision: Annotated[
        Precision, TRAINING, Meta(description="Precision of the forward pass; float16 uses loss scaling.")
    ] = "float32"
    checkpoint_activations: Annotated[
        bool, TRAINING, Meta(description="Recompute activations in the backward pass instead of storing them.")
    ] = False
    compile: Annotated[
        bool, TRAINING, Meta(description="Compile the model with torch.compile; needs a C++ compiler.")
    ] = False
    bucket_cap_mb: Annotated[
        Annotated[float, Meta(gt=0)] | None,
        PARALLELISM,
        Meta(description="Size of DDP's gradient buckets in MiB [default: 25; the first bucket 1]."),
    ] = None
    static_graph: Annotated[bool, PARALLELISM, Meta(description="Tell DDP that every step runs the same graph.")] = (
        False
    )
    find_unused: Annotated[
        bool, PARALLELISM, Meta(description="Let DDP search for unused parameters in each step.")
    ] = False
    overlap: Annotated[
        bool, PARALLELISM, Meta(description="All-reduce gradients during the backward pass, not only after it.")
    ] = True
    seed: Annotated[int, TRAINING, Meta(ge=0, description="Seed of data, model and shuffling.")] = 0
    device: Annotated[str, RANKS, Meta(description="Device to train on.")] = "auto"
    backend: Annotated[str, RANKS, Meta(description="Communication backend; auto selects it by the device.")] = "auto"
    eval_interval: Annotated[
        _Count | None,
        TRAINING,
        Meta(description="Evaluate after every N steps, on training and validation samples, and print both losses."),
    ] = None
    eval_batches: Annotated[int, TRAINING, Meta(ge=1, description="Batches per rank and part in each evaluation.")] = (
        DEFAULT_EVAL_BATCHES
    )
    checkpoint_interval: Annotated[
        _Count | None,
        TRAINING,
        Meta(description="Write model and optimizer into the run's folder after every N steps."),
    ] = None
    timeout: Annotated[
        str,
        RANKS,
        SUPERVISES,
        Meta(
            description=f"{TIMEOUT}: at start-up once torch is "
            "imported, in every collective, and for a rank that writes its trace without progress."
        ),
    ] = "10m"
    threads: Annotated[
        _Count | None, RANKS, Meta(description="CPU threads per rank [default: cores / local ranks].")
    ] = None
    memory_snapshot: Annotated[
        bool, RECORDING, Meta(description="Record torch's memory history (CUDA only; slows every step).")
    ] = False
    nccl_debug: Annotated[
        NcclLevel | None, RECORDING, Meta(description="Level of NCCL's log, one file per rank [default: no log].")
    ] = None
    inject: Annotated[
        tuple[str, ...],
        RECORDING,
        Meta(description="Inject a delay, for example rank=1,phase=backward,delay=60ms; repeatable."),
    ] = ()
    peak_tflops: Annotated[
        Annotated[float, Meta(gt=0)] | None,
        RECORDING,
        EXTENT,
        Meta(description="Peak TFLOP/s of one device, for MFU [default: a table of devices]."),
    ] = None
    device_table: Annotated[
        str | None,
        RECORDING,
        EXTENT,
        Meta(description="TOML file with peaks of devices, for MFU; overrides the built-in table (`perfkit peaks`)."),
    ] = None

    def __post_init__(self) -> None:
        if self.steps is not None and self.epochs is not None:
            raise UsageError("--steps and --epochs exclude each other: use one of them")
        if self.name is not None and ("/" in self.name or self.name.startswith(".")):
            raise UsageError(f"--name {self.name}: must be a folder name without '/' or a leading dot")
        for option, choices in choices_by_accelerator().items():
            if getattr(self, option) not in choices:
                raise UsageError(f"--{option} {getattr(self, option)}: choose from {', '.join(choices)}")
        _ = self.injections
        if self.mesh is not None:
            parse_mesh(self.mesh)
        self._refuse_training_options()
        if self.plan is not None and self.steps is not None:
            check_steps(self.steps, self.plan)
        self.check_command(with_profiler=("memory_snapshot",))

    def _refuse_training_options(self) -> None:
        if self.eval_interval is None and self.eval_batches != DEFAULT_EVAL_BATCHES:
            raise UsageError("--eval-batches has no effect without --eval-interval: set it too")
        if self.static_graph and self.find_unused:
            raise UsageError("--static-graph detects unused parameters itself: remove --find-unused")
        for name in ("static_graph", "find_unused"):
            if getattr(self, name) and not self.overlap:
                flag = name.replace("_", "-")
                raise UsageError(f"--{flag} has no effect with --no-overlap: remove one of them")
        if self.compile and self.bucket_cap_mb is not None and self.bucket_cap_mb < 1:
            raise UsageError(
                f"--bucket-cap-mb {self.bucket_cap_mb:g}: with --compile torch needs buckets of at least 1 MiB"
            )

    @property
    def injections(self) -> tuple[Injection, ...]:
        return tuple(parse_injection(text) for text in self.inject)

    def total_steps(self, batches_per_epoch: int, *, prepared: int = 0) -> int:
        """Return the number of training steps.

        A step takes `accumulate` batches, possibly from two epochs; batches left over at the end are not trained on.

        Args:
            prepared: Batches that loader workers prepare ahead.

        Raises:
            UsageError: The epochs are too short for the schedule, or for one step.
        """
        if self.epochs is None:
            return self.steps or default_steps(self.plan, prepared=-(-prepared // self.accumulate))
        steps = self.epochs * batches_per_epoch // self.accumulate
        if steps == 0:
            raise UsageError(
                f"--epochs {self.epochs} of {batches_per_epoch} batches are fewer than the --accumulate "
                f"{self.accumulate} of one step: use more epochs, or smaller batches"
            )
        if self.plan is not None:
            check_steps(steps, self.plan)
        return steps

    def check_world(self, world_size: int) -> None:
        """Refuse a mesh of another number of ranks, and injections into ranks that do not exist."""
        mesh = self.layout(world_size).sizes
        check_ranks_exist(self.trace_ranks, world_size)
        is_light(self.trace_ranks, self.detail, rank=0, local_rank=0, mesh=mesh)
        for text, injection in zip(self.inject, self.injections, strict=True):
            if injection.rank is not None and injection.rank >= world_size:
                raise UsageError(f"--inject {text}: this run has ranks 0 to {world_size - 1}")

    def layout(self, world_size: int) -> MeshLayout:
        """Return the mesh of `world_size` ranks."""
        return lay_out(self.mesh, world_size)

    def check_place(self, device_type: str, backend: str) -> None:
        """Refuse options that the device or the backend does not support."""
        if self.nccl_debug is not None and backend != "nccl":
            raise UsageError(f"--nccl-debug needs the backend nccl; this run uses {backend}: remove it")
        if self.memory_snapshot and device_type != "cuda":
            raise UsageError(f"--memory-snapshot needs a CUDA device; this run uses {device_type}: remove it")


def choices_by_accelerator() -> dict[str, tuple[str, ...]]:
    return {"device": ("auto", *device_types(), "cpu"), "backend": ("auto", *device_backends(), "gloo", "mpi")}


def check_steps(steps: int, schedule: Schedule) -> None:
    """Refuse a run that would end before its first recorded step."""
    needed = schedule.first_recorded + 1
    if steps < needed:
        raise UsageError(
            f"{steps} step{' is' if steps == 1 else 's are'} too few for the schedule, which takes {needed} until one "
            "is recorded: use more steps, a shorter --schedule or --no-profile"
        )


def parse_injection(text: str) -> Injection:
    """Parse `rank=1,phase=backward,delay=60ms`; without a rank every rank is delayed.

    Raises:
        UsageError: A key is missing, unknown or given twice, or its value is out of range.
    """
    pairs = [part.partition("=")[::2] for part in text.split(",")]
    given = {key.strip(): value.strip() for key, value in pairs}
    if len(given) != len(pairs) or not {"phase", "delay"} <= given.keys() <= {"rank", "phase", "delay"}:
        raise UsageError(f"--inject {text}: write it as rank=1,phase=backward,delay=60ms")
    phase = next((name for name in INJECTABLE if name == given["phase"]), None)
    if phase is None:
        raise UsageError(f"--inject {text}: phase must be one of {', '.join(INJECTABLE)}")
    rank = given.get("rank")
    if rank is not None and not rank.isdecimal():
        raise UsageError(f"--inject {text}: rank must be a number from 0")
    delay_ns = parse_duration(given["delay"], f"--inject {text}")
    if delay_ns == 0:
        raise UsageError(f"--inject {text}: the delay must be longer than zero")
    return Injection(phase=phase, delay_ns=delay_ns, rank=None if rank is None else int(rank))
