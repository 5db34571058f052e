"""One rank's whole life, from joining the others to the last line of the manifest.

The model is wrapped in DDP on one rank too, so that a run on one rank is the same program as a run on many, and what a
comparison of the two shows is communication.
"""

import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DistributedSampler

from perfkit.analysis.per_run.compile_check import compile_findings
from perfkit.analysis.per_run.oversubscription_check import oversubscription
from perfkit.capture.distributed.nccl_log import collect_log
from perfkit.capture.distributed.process_group import locate, process_group
from perfkit.capture.distributed.rank_group import RankGroup
from perfkit.capture.distributed.topology import Topology
from perfkit.capture.lifecycle.failure_guard import FailureGuard
from perfkit.capture.lifecycle.parent_watch import exit_with_parent
from perfkit.capture.lifecycle.watchdog import Watchdog, process_identity
from perfkit.capture.recording.manifest_writer import (
    RunDescription,
    StepMeasurements,
    checksum_on_all_ranks,
    manifest_fields_after_failure,
    open_run,
    rank_record,
    write_completed_manifest,
)
from perfkit.capture.recording.session import ProfilerOptions, Session
from perfkit.capture.recording.side_profilers import Recorder, check_recorders, make_recorders
from perfkit.capture.recording.throughput import StepWork
from perfkit.capture.training.file_bandwidth import measure_file_bandwidth
from perfkit.capture.training.job import Job
from perfkit.capture.training.progress import progress
from perfkit.capture.training.trainer import Input, Trainer
from perfkit.errors import UsageError
from perfkit.schema.manifest import Compiled, FileBandwidth, StepKind
from workloads.base import DataSpec
from workloads.data.loader import make_loader


def run_rank(job: Job, debug: bool = False) -> None:
    """Run one rank of `job`; all ranks call it.

    Raises:
        PerfkitError: Alone. Of several ranks the first that fails prints the error, and all end their processes.
    """
    exit_with_parent()
    info, mpi = locate()
    with (
        FailureGuard(info.rank, info.world_size, debug) as guard,
        process_group(job.run, info, mpi) as (team, layout),
    ):
        _check_options(job, team)
        team.run_on_all(lambda: check_recorders(job.run))
        _warn_of_threads(team, layout)
        folder = open_run(team, layout, _subject(job), job.trace_dir, job.run.name)
        guard.folder, guard.current_activity = folder, lambda: team.current_activity
        witness = Watchdog(info.rank, team.all_gather(process_identity()), folder)
        if job.run.nccl_debug is not None:
            team.run_on_all(lambda: collect_log(job.trace_dir, folder, info.rank))
        _train(job, team, layout, folder, guard)
        witness.dismiss()
    if info.rank == 0:
        sys.stdout.write(f"{folder}: done; to see where the time went: perfkit analyze {folder}\n")


def _check_options(job: Job, team: RankGroup) -> None:
    """Refuse ranks with different options: they would wait for each other forever.

    Raises:
        UsageError: On the ranks that differ from rank 0; the message names the options.
    """
    reference = team.broadcast(job.effective)

    def check() -> None:
        differing = [name for name, value in job.effective.items() if reference.get(name) != value]
        if differing:
            flags = ", ".join("--" + name.replace("_", "-") for name in differing)
            raise UsageError(f"options differ from rank 0 ({flags}): start all ranks with the same options")

    team.run_on_all(check)


def _subject(job: Job) -> RunDescription:
    return RunDescription(
        workload=job.workload.name,
        source=job.data.source,
        source_package=job.source.package,
        config=job.effective,
        injections=job.run.injections,
    )


def _warn_of_threads(team: RankGroup, layout: Topology) -> None:
    """Say before the run that its ranks use more threads than there are cores."""
    nothing = StepMeasurements(kinds=[], wall_ns=[], load_ns=[], loss=[])
    records = team.all_gather(rank_record(team.rank, layout, nothing))
    for finding in oversubscription(records) if team.rank == 0 else ():
        sys.stderr.write(f"perfkit: warning: {finding.message}\n")


def _warn_of_compiling(compiled: Compiled, kinds: list[StepKind]) -> None:
    for finding in compile_findings(compiled, kinds):
        sys.stderr.write(f"perfkit: warning: {finding.message}\n")


def _train(job: Job, team: RankGroup, layout: Topology, folder: Path, guard: FailureGuard) -> None:
    device = torch.device(layout.device)
    spec = job.workload.data_spec(job.run.seed)
    path = _prepare_data(job, team, layout, spec)
    data = team.run_on_all(lambda: _open_input(job, team, spec, path))
    recorders = make_recorders(job.run, team.rank)
    model = _build(job, team, device)
    trainer = Trainer(job.workload, job.run, team, model, data.steps)
    session = _session(job, team, device, folder, recorders)
    work = StepWork(
        batch_size=job.run.batch_size * job.run.accumulate,
        sample_bytes=spec.sample_bytes,
        tokens_per_sample=job.workload.tokens_per_sample,
        flops_per_token=job.workload.flops_per_token(model),
        matmul_dtype=None if job.run.precision == "float32" else job.run.precision,
        loads_ahead=job.data.num_workers > 0,
    )
    guard.stop = session.discard
    guard.known = lambda: manifest_fields_after_failure(
        team.rank, layout, session.measurements(wait=False), work, model
    )
    with progress(data.steps, visible=team.rank == 0) as show:
        trainer.train(data, session, show)
    session.finish()
    speed = _file_speed(team, path)
    compiled = None if trainer.compiled is None else trainer.compiled.result(team)
    if team.rank == 0 and compiled is not None:
        _warn_of_compiling(compiled, session.kinds)
    write_completed_manifest(
        team,
        layout,
        folder,
        session.measurements(),
        work=work,
        model=model,
        peak_tflops=job.run.peak_tflops,
        compiled=compiled,
        file_speed=speed,
    )


def _file_speed(team: RankGroup, path: Path | None) -> FileBandwidth | str | None:
    """Let rank 0 measure how fast the samples' file can be read; the others wait for it without a limit.

    Returns:
        The speed, or why it is not known: a run that is trained does not fail for it. None on the other ranks, and
        where there is no file.
    """
    team.current_activity = "the end of the run"

    def measure() -> FileBandwidth | str | None:
        try:
            return None if path is None else measure_file_bandwidth(path)
        except OSError as error:
            return f"{path}: cannot be read again ({error.strerror or error})"

    return team.run_on(team.rank == 0, measure)


def _prepare_data(job: Job, team: RankGroup, layout: Topology, spec: DataSpec) -> Path | None:
    """Write the data set once; first rank 0, then one rank of every other node.

    Where the nodes share the folder, the others find rank 0's file and take it.
    """

    def prepare() -> Path | None:
        return job.source.prepare(job.workload, spec, job.data)

    path = team.run_on(team.rank == 0, prepare)
    elsewhere = team.run_on(layout.local_rank == 0 and layout.node_rank > 0, prepare)
    own = layout.node_rank, path or elsewhere
    return next((found for node, found in team.all_gather(own) if found and node == own[0]), None)


def _open_input(job: Job, team: RankGroup, spec: DataSpec, path: Path | None) -> Input:
    dataset = job.source.dataset(job.workload, spec, path, job.data)
    sampler: DistributedSampler[Any] = DistributedSampler(
        dataset,
        num_replicas=team.world_size,
        rank=team.rank,
        shuffle=True,
        seed=job.run.seed,
        drop_last=True,
    )
    loader = make_loader(dataset, sampler, job.data, job.run.batch_size)
    steps = job.run.total_steps(len(loader))
    return Input(loader=loader, sampler=sampler, steps=steps)


def _build(job: Job, team: RankGroup, device: torch.device) -> nn.Module:
    """Build the same model on every rank, and check that it is the same; then let the ranks' dropouts differ."""
    torch.manual_seed(job.run.seed)
    model = job.workload.build().to(device)
    checksum_on_all_ranks(team, model.state_dict().values(), "before the first step")
    torch.manual_seed(job.run.seed + 1 + team.rank)
    return model


def _session(job: Job, team: RankGroup, device: torch.device, folder: Path, recorders: list[Recorder]) -> Session:
    options = ProfilerOptions(**{name: getattr(job.run, name) for name in ProfilerOptions.__struct_fields__})
    return Session(
        team,
        device,
        folder,
        job.run.plan,
        options=options,
        workload=job.workload.name,
        source=job.data.source,
        injections=job.run.injections,
        recorders=recorders,
    )
