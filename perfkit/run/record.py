"""The record a run keeps of itself: its folder, and the manifest from "running" to "completed" or "failed"."""

import hashlib
import platform
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import torch
from msgspec import Struct
from torch import Tensor, nn

from perfkit._version import __version__
from perfkit.errors import RunError
from perfkit.model import Failure, Injection, RankRecord, RunManifest
from perfkit.run.devices import find_peak
from perfkit.run.layout import Layout
from perfkit.run.team import Team
from perfkit.run.throughput import Work, measure
from perfkit.trace.store import create_run_folder, list_files, read_manifest, write_manifest

if TYPE_CHECKING:
    from perfkit.run.session import Session


class Subject(Struct, frozen=True, kw_only=True):
    """What is run."""

    workload: str
    source: str
    config: dict[str, Any]
    injections: tuple[Injection, ...] = ()


def now() -> datetime:
    """Return the time, UTC."""
    return datetime.now(UTC)


def open_run(team: Team, layout: Layout, subject: Subject, trace_dir: Path, name: str | None) -> Path:
    """Create the run's folder with a manifest in state "running"; called by every rank.

    Args:
        team: The ranks.
        layout: Where they run.
        subject: What is run.
        trace_dir: Folder that receives the run's.
        name: Name of the run; None makes one of workload, source, ranks and time.

    Returns:
        The folder.

    Raises:
        StoreError: The folder cannot be made or written.
    """
    started = now()

    def create() -> str:
        stamp = f"{started:%Y%m%dT%H%M%SZ}"
        made = f"{subject.workload}-{subject.source}-{team.world_size}ranks-{stamp}"
        folder = create_run_folder(trace_dir, name or made)
        write_manifest(folder, _running(folder.name, layout, subject, started))
        return str(folder)

    return Path(team.share(team.only(team.rank == 0, create)))


def _running(run: str, layout: Layout, subject: Subject, started: datetime) -> RunManifest:
    return RunManifest(
        run=run,
        state="running",
        workload=subject.workload,
        source=subject.source,
        started_at=started.isoformat(timespec="seconds"),
        config=subject.config,
        versions={
            "perfkit": __version__,
            "python": platform.python_version(),
            "torch": str(torch.__version__),
        },
        backend=layout.backend,
        device=layout.device.partition(":")[0],
        world=layout.world,
        injections=list(subject.injections),
    )


def complete(
    team: Team,
    layout: Layout,
    session: "Session",
    *,
    work: Work | None = None,
    model: nn.Module | None = None,
    peak_tflops: float | None = None,
) -> RunManifest | None:
    """Gather what every rank knows and write the manifest as "completed"; called by every rank.

    Returns:
        The manifest, on rank 0.

    Raises:
        RunError: The ranks' parameters differ.
        StoreError: The manifest cannot be written.
    """
    checksum = None if model is None else agreed_checksum(team, model.parameters(), "after the last step")
    records = team.exchange(rank_record(team.rank, layout, session))

    def write() -> RunManifest:
        manifest = msgspec.structs.replace(
            read_manifest(session.folder),
            state="completed",
            finished_at=now().isoformat(timespec="seconds"),
            parameters=None if model is None else sum(p.numel() for p in model.parameters()),
            parameter_checksum=checksum,
            step_kinds=session.kinds,
            ranks=records,
            files=list_files(session.folder),
        )
        if work is not None:
            peak = find_peak(layout.device_name, matmul_dtype(model), peak_tflops)
            manifest = msgspec.structs.replace(
                manifest,
                batch_size=work.batch_size,
                sample_bytes=work.sample_bytes,
                tokens_per_sample=work.tokens_per_sample,
                flops_per_token=work.flops_per_token,
                throughput=measure(session.kinds, records, work, peak),
            )
        write_manifest(session.folder, manifest)
        return manifest

    return team.only(team.rank == 0, write)


def fail(folder: Path, failure: Failure, own: RankRecord | None) -> None:
    """Write the manifest as "failed", with what this rank knows; called by the rank that failed first.

    Raises:
        StoreError: The manifest cannot be read or written.
    """
    write_manifest(
        folder,
        msgspec.structs.replace(
            read_manifest(folder),
            state="failed",
            failure=failure,
            finished_at=now().isoformat(timespec="seconds"),
            ranks=[] if own is None else [own],
            files=list_files(folder),
        ),
    )


def rank_record(rank: int, layout: Layout, session: "Session") -> RankRecord:
    """Return one rank's own record of its steps."""
    return RankRecord(
        rank=rank,
        local_rank=layout.local_rank,
        node_rank=layout.node_rank,
        host=layout.host,
        device=layout.device,
        device_name=layout.device_name,
        threads=layout.threads,
        step_wall_ns=session.wall_ns(),
        load_ns=session.load_ns,
        loss=session.losses(),
    )


def agreed_checksum(team: Team, tensors: Iterable[Tensor], when: str) -> str:
    """Return the SHA-256 of `tensors`, the same on all ranks.

    Raises:
        RunError: It is not.
    """
    checksums = team.exchange(checksum_of(tensors))
    differing = [rank for rank, other in enumerate(checksums) if other != checksums[0]]
    if differing:
        raise RunError(
            f"the parameters {when} of rank {differing[0]} differ from those of rank 0: "
            "the ranks do not train one model; run again, and report it if it stays"
        )
    return checksums[0]


def checksum_of(tensors: Iterable[Tensor]) -> str:
    """Return the SHA-256 over the bytes of `tensors`, in order."""
    digest = hashlib.sha256()
    for tensor in tensors:
        flat = tensor.detach().cpu().contiguous().view(-1)
        digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def matmul_dtype(model: nn.Module | None) -> str:
    """Return the type that matrix products of `model` are computed in."""
    parameter = None if model is None else next(model.parameters(), None)
    dtype = torch.float32 if parameter is None else parameter.dtype
    if dtype == torch.float32 and torch.get_float32_matmul_precision() != "highest":
        return "tf32"
    return str(dtype).removeprefix("torch.")
