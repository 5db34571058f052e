"""Creates a run's folder, and writes its manifest from "running" to "completed" or "failed"."""

import contextlib
import hashlib
import importlib.metadata
import platform
import re
import subprocess
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
import torch
import torch.distributed as dist
from msgspec import Struct
from torch import Tensor, nn

from perfkit._version import __version__
from perfkit.accelerators import accelerators
from perfkit.errors import RunError
from perfkit.record.distributed.rank_group import ProcessRankGroup
from perfkit.record.distributed.topology import Topology
from perfkit.record.lifecycle.launched_runs import note_run
from perfkit.record.recording.throughput import StepWork, find_peak, measure_throughput
from perfkit.records.manifest import (
    Compiled,
    ExpertLoad,
    FileBandwidth,
    Injection,
    MeshDimension,
    RankMemory,
    RankRecord,
    RunManifest,
    StepKind,
    Throughput,
)
from perfkit.records.per_run.pauses import EarlierPauses, RecordedPause
from perfkit.storage.run_folder import create_run_folder, list_files, read_manifest, write_manifest


class StepMeasurements(Struct, frozen=True, kw_only=True):
    """What one rank has measured: one entry per step."""

    kinds: list[StepKind]
    wall_ns: list[int]
    load_ns: list[int]
    loss: list[float | None]
    writing_ns: int = 0
    trace_bytes: int = 0
    pauses: list[RecordedPause] = []
    """Beside the steps; the last ones."""
    earlier_pauses: list[EarlierPauses] = []
    omitted: int = 0
    """How many more steps have ended, which are only in the step log."""

    @property
    def unknown(self) -> dict[str, str]:
        """Fields of the manifest that do not have all steps, and why."""
        if not self.omitted:
            return {}
        kept, steps = len(self.kinds), len(self.kinds) + self.omitted
        reason = f"of {steps} steps the first {kept}; what was recorded of the others is in rank<R>.steps"
        return dict.fromkeys(("step_kinds", "step_wall_ns", "load_ns", "loss"), reason)


class MeasuredAtEnd(Struct, frozen=True, kw_only=True):
    """What a rank of a workload has measured after its last step, and what peaks it is to be compared with."""

    checksum: str | None = None
    """Of the parameters of what is no plain model."""
    memory: RankMemory | None = None
    experts: list[ExpertLoad] = []
    compiled: Compiled | None = None
    file_bandwidth: FileBandwidth | None = None
    """Read bandwidth of the samples' file, on rank 0."""
    unknown: dict[str, str] = {}
    """Fields of the manifest that stay empty, and why, on rank 0."""
    cold_steps: int | None = None
    """As in the manifest, on rank 0."""
    peak_tflops: float | None = None
    device_table: str | None = None


class RunDescription(Struct, frozen=True, kw_only=True):
    """What is run: name, options, and what cannot be known."""

    workload: str
    source: str
    source_package: str | None = None
    """Distribution that reads the samples."""
    packages: tuple[str, ...] = ()
    """Further distributions that train."""
    config: dict[str, Any]
    injections: tuple[Injection, ...] = ()
    mesh: tuple[MeshDimension, ...] = ()
    """Outermost dimension first; empty if unknown."""
    unknown: dict[str, str] = {}
    """Fields of the manifest that stay empty, and why."""


def utc_now() -> datetime:
    return datetime.now(UTC)


def open_run(
    ranks: ProcessRankGroup, topology: Topology, description: RunDescription, trace_dir: Path, name: str | None
) -> Path:
    """Create the run's folder with a manifest in state "running" and return it; called by every rank.

    Args:
        name: Name of the run; None derives one from workload, source, ranks and time.

    Raises:
        StoreError: The folder cannot be created or written.
    """
    made = ranks.run_on(
        ranks.rank == 0, lambda: str(create_run(ranks.world_size, topology, description, trace_dir, name))
    )
    return Path(ranks.broadcast(made))


def create_run(
    world_size: int, topology: Topology, description: RunDescription, trace_dir: Path, name: str | None
) -> Path:
    """Create the run's folder as `open_run` does; called by one rank."""
    started = utc_now()
    ranks_label = "1rank" if world_size == 1 else f"{world_size}ranks"
    default_name = f"{description.workload}-{description.source}-{ranks_label}-{started:%Y%m%dT%H%M%SZ}"
    folder = create_run_folder(trace_dir, name or default_name)
    note_run(folder)
    device_type = topology.device.partition(":")[0]
    running = RunManifest(
        run=folder.name,
        state="running",
        workload=description.workload,
        source=description.source,
        started_at=started.isoformat(timespec="seconds"),
        config=description.config,
        versions=versions((description.source_package, *description.packages), device_type),
        commit=current_commit(),
        backend=topology.backend,
        device=device_type,
        world=topology.world,
        injections=list(description.injections),
        mesh=list(description.mesh),
        unknown=description.unknown,
    )
    write_manifest(folder, running)
    return folder


def versions(packages: Iterable[str | None], device_type: str) -> dict[str, str]:
    result = {"perfkit": __version__, "python": platform.python_version(), "torch": str(torch.__version__)}
    for toolkit in dict.fromkeys(row.toolkit for row in accelerators() if row.toolkit):
        version = getattr(torch.version, toolkit, None)
        if version is not None:
            result[toolkit] = str(version)
    if device_type == "cuda" and dist.is_available() and dist.is_nccl_available():
        result["nccl"] = ".".join(str(part) for part in torch.cuda.nccl.version())  # type: ignore[no-untyped-call]
    for package in filter(None, packages):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):  # of a plug-in: its own module
            result[package] = importlib.metadata.version(package)
    return result


def write_completed_manifest(
    ranks: ProcessRankGroup,
    topology: Topology,
    folder: Path,
    measured: StepMeasurements,
    work: StepWork | None,
    model: nn.Module | None,
    more: MeasuredAtEnd,
) -> None:
    """Gather every rank's measurements and write the manifest as "completed"; called by every rank.

    Args:
        work: What one rank does in one step; without it there are no rates.

    Raises:
        RunError: The ranks' parameters differ.
        StoreError: The manifest cannot be written.
    """
    of_model = None if model is None else checksum_on_all_ranks(ranks, model.parameters(), "after the last step")
    records = ranks.all_gather(rank_record(ranks.rank, topology, measured, more.memory))

    def write() -> None:
        before = msgspec.structs.replace(read_manifest(folder), **manifest_fields(measured, work, model))
        manifest = msgspec.structs.replace(
            before,
            state="completed",
            finished_at=utc_now().isoformat(timespec="seconds"),
            parameter_checksum=more.checksum or of_model,
            compiled=more.compiled,
            file_bandwidth=more.file_bandwidth,
            cold_steps=more.cold_steps,
            unknown={**before.unknown, **more.unknown, **measured.unknown},
            ranks=records,
            experts=more.experts,
            files=list_files(folder),
            throughput=None if work is None else _throughput(before, records, topology, work, model, more),
        )
        write_manifest(folder, manifest)

    ranks.run_on(ranks.rank == 0, write)


def _throughput(
    manifest: RunManifest,
    records: Sequence[RankRecord],
    topology: Topology,
    work: StepWork,
    model: nn.Module | None,
    more: MeasuredAtEnd,
) -> Throughput | None:
    dtype = work.matmul_dtype or matmul_dtype(model)
    peak = find_peak(topology.device_name, dtype, more.peak_tflops, table=more.device_table, threads=topology.threads)
    delayed = any(injection.phase == "data_loading" for injection in manifest.injections)
    return measure_throughput(manifest.step_kinds, records, work, peak, reading=not (delayed or work.loads_ahead))


def manifest_fields(measured: StepMeasurements, work: StepWork | None, model: nn.Module | None) -> dict[str, Any]:
    return {
        "step_kinds": measured.kinds,
        **({} if work is None else {name: getattr(work, name) for name in _WORK_FIELDS}),
        **({} if model is None else {"parameters": sum(p.numel() for p in model.parameters())}),
    }


_WORK_FIELDS: Final = ("batch_size", "sample_bytes", "tokens_per_sample", "flops_per_token", "parameters")


def rank_record(
    rank: int, topology: Topology, measured: StepMeasurements, memory: RankMemory | None = None
) -> RankRecord:
    return RankRecord(
        rank=rank,
        local_rank=topology.local_rank,
        node_rank=topology.node_rank,
        host=topology.host,
        device=topology.device,
        device_name=topology.device_name,
        threads=topology.threads,
        node_cores=topology.node_cores,
        step_wall_ns=measured.wall_ns,
        load_ns=measured.load_ns,
        loss=measured.loss,
        memory=memory,
        writing_ns=measured.writing_ns,
        trace_bytes=measured.trace_bytes,
        pauses=measured.pauses,
        earlier_pauses=measured.earlier_pauses,
    )


def checksum_on_all_ranks(ranks: ProcessRankGroup, tensors: Iterable[Tensor], when: str) -> str:
    """Return the SHA-256 of `tensors`, which must be the same on all ranks."""
    checksums = ranks.all_gather(checksum_of(tensors))
    differing = [rank for rank, other in enumerate(checksums) if other != checksums[0]]
    if differing:
        raise RunError(
            f"the parameters {when} of rank {differing[0]} differ from those of rank 0: "
            "the ranks do not train the same model; run again, and report it if it happens again"
        )
    return checksums[0]


def checksum_of(tensors: Iterable[Tensor]) -> str:
    """Return the SHA-256 of the bytes of `tensors`, in order."""
    digest = hashlib.sha256()
    for tensor in tensors:
        flat = tensor.detach().cpu().contiguous().view(-1)
        digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def matmul_dtype(model: nn.Module | None) -> str:
    """Return the data type in which matrix products of `model` are computed."""
    parameter = None if model is None else next(model.parameters(), None)
    dtype = torch.float32 if parameter is None else parameter.dtype
    if dtype == torch.float32 and torch.get_float32_matmul_precision() != "highest":
        return "tf32"
    return str(dtype).removeprefix("torch.")


_TIMEOUT_S: Final = 5
_NAME: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}", re.ASCII)


def current_commit() -> str | None:
    """Return the commit of the working directory's repository; None if there is no repository or no git."""
    try:
        output = subprocess.run(
            ["git", "rev-parse", "--verify", "HEAD"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        ).stdout.strip()
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    return output if _NAME.fullmatch(output) else None
