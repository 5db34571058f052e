"""Options of `perfkit input`: names, types, defaults, invalid combinations, and the samples. Without torch."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import numpy as np
from msgspec import Meta, Struct

from perfkit.base.parsing import parse_duration, parse_names, parse_numbers, parse_size
from perfkit.errors import UsageError
from perfkit.options.help_groups import COMMON
from perfkit.options.recording import TIMEOUT
from perfkit.options.run import RunConfig
from perfkit.records.benchmark import InputSeries
from perfkit_workloads.base import Arrays, DataSpec, Field, generate_blocks
from perfkit_workloads.data import SOURCES, DataOptions
from perfkit_workloads.data.source import Source

READS: Final = ("per-sample", "batched")
_DEFAULTS: Final = DataOptions()
_Count = Annotated[int, Meta(ge=1)]


class InputConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the benchmark, checked on construction."""

    source: Annotated[
        str, COMMON, Meta(description="Sources, separated by commas; those of installed packages too.")
    ] = "memory,hdf5,safetensors,pt,bin"
    read: Annotated[
        str, COMMON, Meta(description="One read per sample, or one per batch, or both: per-sample,batched.")
    ] = "per-sample,batched"
    num_workers: Annotated[
        str, COMMON, Meta(description="Worker processes per rank that load batches ahead; several numbers: 0,2.")
    ] = "0"
    files: Annotated[
        int,
        Meta(ge=1, le=65536, description="Files that the samples are divided among; each rank reads its own."),
    ] = 1
    preload: Annotated[bool, Meta(description="Read the files into memory first.")] = False
    readers: Annotated[
        _Count | None, Meta(description="Ranks that read, and send the others their batches [default: all ranks].")
    ] = None
    samples: Annotated[int, Meta(ge=1, description="Samples in the data set.")] = 4096
    sample_size: Annotated[str, Meta(description="Size of a sample in memory: bytes, 16K, 1M (powers of 1024).")] = (
        "16K"
    )
    batch_size: Annotated[int, Meta(ge=1, description="Samples per load.")] = 32
    prefetch: Annotated[int, Meta(ge=1, description="Batches that each worker loads ahead.")] = _DEFAULTS.prefetch
    worker_start: Annotated[Literal["fork", "spawn", "forkserver"], Meta(description="How workers are started.")] = (
        _DEFAULTS.worker_start
    )
    step: Annotated[
        str | None,
        Meta(
            description="Also measure with a sleep of this length after each load, such as 20ms, in place of a "
            "training step: shows how much of the load it hides [default: off]."
        ),
    ] = None
    cold: Annotated[bool, Meta(description="Also measure with the files dropped from the page cache.")] = True
    repeats: Annotated[int, Meta(ge=1, le=1000, description="Passes over the samples of each measurement.")] = 3
    data_dir: Annotated[
        str, COMMON, Meta(description="Folder of the sample files, on the storage to be measured; they are kept.")
    ] = "traces/.data"
    seed: Annotated[int, Meta(ge=0, description="Seed of samples and shuffling.")] = 0
    timeout: Annotated[
        str, Meta(description=f"{TIMEOUT}: at start-up once torch is imported, and when they wait for each other.")
    ] = "10m"
    threads: Annotated[_Count | None, Meta(description="CPU threads per rank [default: cores / local ranks].")] = None

    def __post_init__(self) -> None:
        """Check values and combinations.

        Raises:
            UsageError: One is invalid; the message names the options.
        """
        _ = self.run_config, self.sources, self.reads, self.sample_bytes, self.step_ns
        if not any(self.workers):
            for option in ("prefetch", "worker_start"):
                if getattr(self, option) != getattr(_DEFAULTS, option):
                    raise UsageError(f"{option} has no effect without workers: set num_workers too")

    @property
    def sources(self) -> list[str]:
        """The sources to measure.

        Raises:
            UsageError: One is unknown.
        """
        return parse_names(self.source, SOURCES.names(), "--source")

    @property
    def reads(self) -> list[str]:
        """The ways to read.

        Raises:
            UsageError: One is unknown.
        """
        return parse_names(self.read, READS, "--read")

    @property
    def workers(self) -> list[int]:
        """Numbers of workers.

        Raises:
            UsageError: One is not a number from 0 to 1024.
        """
        return parse_numbers(self.num_workers, "--num-workers", "0,2", least=0, most=1024)

    @property
    def sample_bytes(self) -> int:
        """Bytes of a sample in memory."""
        return parse_size(self.sample_size, "--sample-size")

    @property
    def step_ns(self) -> int | None:
        """Length of a training step; None if it is not to be measured."""
        return None if self.step is None else parse_duration(self.step, "--step")

    @property
    def run_config(self) -> RunConfig:
        """The options that a training run has as well, for joining the process group."""
        return RunConfig(device="cpu", timeout=self.timeout, threads=self.threads, profile=False, trace_dir=".")

    def check_world(self, world_size: int) -> None:
        """Refuse options that do not fit the number of ranks.

        Raises:
            UsageError: The message contains what to change.
        """
        problem = DataOptions(source="hdf5", files=self.files, readers=self.readers).find_world_problem(
            world_size, world_size, self.samples
        )
        if problem:
            raise UsageError(problem)
        each = self.samples // self.files * (self.files // world_size) if self.files > 1 else self.samples // world_size
        if each < self.batch_size:
            raise UsageError(
                f"--batch-size {self.batch_size} exceeds the {each} samples per rank: choose more --samples"
            )

    def plan_series(self, sources: Mapping[str, Source[Any]]) -> list[InputSeries]:
        """Return what is measured. Memory, and other sources without files, are read undivided.

        Args:
            sources: By name.
        """
        return [
            InputSeries(
                source=name,
                read=read,
                num_workers=workers,
                files=self.files if source.has_files else 1,
                preload=self.preload and source.has_files,
                readers=self.readers,
                layout=_layout(source),
            )
            for name, source in sources.items()
            for read in self.reads
            for workers in self.workers
        ]

    def options_of(self, series: InputSeries) -> DataOptions:
        """Return how a series is read, as a training run has it."""
        ahead: dict[str, Any] = {"prefetch": self.prefetch, "worker_start": self.worker_start}
        return DataOptions(
            source=series.source,
            read="per-sample" if series.read == "per-sample" else "batched",
            data_dir=self.data_dir,
            files=series.files,
            preload=series.preload,
            readers=series.readers,
            num_workers=series.num_workers,
            **(ahead if series.num_workers else {}),
        )


def _layout(source: Source[Any]) -> dict[str, bool | int | float | str | None]:
    """Return the options of a source that are not its defaults."""
    defaults = type(source.config)()
    names = type(source.config).__struct_fields__
    return {name: value for name in names if (value := getattr(source.config, name)) != getattr(defaults, name)}


ITEM_BYTES: Final = 4
VOCABULARY: Final = 50257
"""That of GPT-2: its ids need 16 bits, and hardly compress."""


def describe_samples(samples: int, sample_bytes: int, seed: int) -> DataSpec:
    """Return the description of samples of `sample_bytes`, rounded down to whole tokens of four bytes."""
    return DataSpec(
        workload="input",
        fields=(Field(name="tokens", shape=(max(1, sample_bytes // ITEM_BYTES),), dtype="int32"),),
        samples=samples,
        seed=seed,
        parameters={"vocab_size": VOCABULARY},
    )


class RandomTokens:
    """Generates uniformly distributed token ids."""

    def generate(self, spec: DataSpec, start: int, stop: int) -> Arrays:
        """Return samples [start, stop)."""
        (field,) = spec.fields

        def block(number: int) -> Arrays:
            random = np.random.default_rng((spec.seed, number))
            return {field.name: random.integers(0, VOCABULARY, (spec.block_samples, *field.shape), np.int32)}

        return generate_blocks(spec, start, stop, block)
