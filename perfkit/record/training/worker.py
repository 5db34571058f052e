"""Runs one rank of a workload, from joining the process group to the completed manifest.

The model is wrapped in DDP even on a single rank, so that a run on one rank is the same program as a run on many, and a
comparison of the two shows communication.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import torch
from torch import nn

from perfkit.engine.runs.manifest_checks import compile_findings, oversubscription
from perfkit.errors import UsageError
from perfkit.options.trace_ranks import is_light
from perfkit.record.benchmark_rank import check_same_options
from perfkit.record.distributed.process_group import locate, process_group
from perfkit.record.distributed.rank_group import ProcessRankGroup
from perfkit.record.distributed.topology import Topology, prepare_on_nodes
from perfkit.record.distributed.torch_environment import collect_log
from perfkit.record.hangs.worker_stacks import follow_forks
from perfkit.record.lifecycle.failure_guard import FailureGuard
from perfkit.record.lifecycle.parent_watch import exit_with_parent
from perfkit.record.lifecycle.watchdog import Watchdog
from perfkit.record.messages import print_warning
from perfkit.record.process_stat import ProcessIdentity, process_identity
from perfkit.record.recording.manifest_writer import (
    MeasuredAtEnd,
    RunDescription,
    StepMeasurements,
    checksum_on_all_ranks,
    matmul_dtype,
    open_run,
    rank_record,
)
from perfkit.record.recording.profiler_options import ProfilerOptions
from perfkit.record.recording.recording import Recording
from perfkit.record.recording.side_profilers import check_recorders, make_recorders
from perfkit.record.recording.throughput import StepWork
from perfkit.record.run_listeners import FollowedRun, ManifestListener, listen, watch_steps
from perfkit.record.step_listener import Recorder
from perfkit.record.training.between_steps import Checkpoints, Evaluation
from perfkit.record.training.file_bandwidth import is_cached, measure_file_bandwidth
from perfkit.record.training.job import Job
from perfkit.record.training.progress import progress
from perfkit.record.training.strategies import STRATEGIES
from perfkit.record.training.trainer import Input, Trainer
from perfkit.records.manifest import FileBandwidth
from perfkit.report.wording.findings import word_all
from perfkit_workloads.base import DataSpec
from perfkit_workloads.data.divided import prepare_files
from perfkit_workloads.data.opening import Place, Samples, open_input


def run_rank(job: Job, debug: bool = False) -> Path | None:
    """Run one rank of `job`; all ranks call it.

    Returns:
        The run's folder on rank 0, None on the others.

    Raises:
        PerfkitError: The run failed, with a single rank. Of several, the first that fails prints the error, and all
            exit.
    """
    exit_with_parent()
    info, mpi = locate()
    with (
        FailureGuard(info.rank, info.world_size, debug) as guard,
        process_group(job.run, info, mpi) as (ranks, topology),
    ):
        check_same_options(job.effective, ranks)
        ranks.run_on_all(lambda: _check_start(job, ranks, torch.device(topology.device)))
        ranks.run_on_all(lambda: check_recorders(job.run))
        _warn_of_oversubscription(ranks, topology)
        folder = open_run(ranks, topology, _describe_run(job, ranks.world_size), job.trace_dir, job.run.name)
        guard.folder, guard.current_activity = folder, lambda: ranks.current_activity
        processes = ranks.all_gather(process_identity())
        watchdog = Watchdog(info.rank, processes, folder)
        if job.run.nccl_debug is not None:
            ranks.run_on_all(lambda: collect_log(folder, info.rank))
        _train(job, ranks, topology, folder, guard, processes)
        watchdog.dismiss()
    return folder if info.rank == 0 else None


def _check_start(job: Job, ranks: ProcessRankGroup, device: torch.device) -> None:
    """Refuse what the strategy cannot do with these ranks and devices."""
    job.check_world(ranks.world_size)
    job.run.capture_rules.refuse_unseen_waits(ranks.world_size, device.type)
    replicas = job.run.layout(ranks.world_size).replicas
    for problem in STRATEGIES.load(job.run.dp).find_start_problems(job.run, replicas, device.type):
        raise UsageError(problem)


def _describe_run(job: Job, world_size: int) -> RunDescription:
    return RunDescription(
        workload=job.workload.name,
        source=job.data.source,
        source_package=job.source.package,
        packages=(*job.workload.PACKAGES, *STRATEGIES.load(job.run.dp).PACKAGES),
        config=job.effective,
        injections=job.run.injections,
        mesh=tuple(job.run.layout(world_size).record()),
    )


def _warn_of_oversubscription(ranks: ProcessRankGroup, topology: Topology) -> None:
    no_steps = StepMeasurements(kinds=[], wall_ns=[], load_ns=[], loss=[])
    records = ranks.all_gather(rank_record(ranks.rank, topology, no_steps))
    for finding in word_all(oversubscription(records)) if ranks.rank == 0 else ():
        print_warning(finding.message)


def _train(
    job: Job,
    ranks: ProcessRankGroup,
    topology: Topology,
    folder: Path,
    guard: FailureGuard,
    processes: Sequence[ProcessIdentity],
) -> None:
    device = torch.device(topology.device)
    spec = job.workload.data_spec(job.run.seed)
    paths = prepare_on_nodes(ranks, topology, lambda: prepare_files(job.source, job.workload, spec, job.data))
    cached = ranks.run_on(ranks.rank == 0, lambda: _is_cached(None if job.data.preload else paths[0]))
    data = ranks.run_on_all(lambda: _open_input(job, ranks, spec, paths))
    recorders = make_recorders(job.run)
    model = _build(job, ranks, device)
    work = _step_work(job, ranks, spec, model)  # of the whole model: training it may shard it
    trainer = Trainer(job.workload, job.run, ranks, model, data.steps)
    recording = _recording(job, ranks, topology, folder, recorders)
    manifest = ManifestListener(
        recording,
        ranks,
        topology,
        work,
        more=lambda: _measured_at_end(job, ranks, recording, trainer, paths[0], cached),
    )
    followed = FollowedRun(recording, topology, job.run, job.run.plan, work.samples_per_rank(ranks.world_size))
    captures = listen(followed, manifest, watch_steps(recording, job.run, processes))
    guard.stop, guard.run_failed = recording.fail, captures.run_failed
    guard.manifest_fields = manifest.fields_after_failure
    between: list[Callable[[Trainer, Recording], None]] = []
    if job.run.eval_interval:
        between.append(ranks.run_on_all(lambda: Evaluation(job.workload, job.run, ranks)).after_step)
    if job.run.checkpoint_interval:
        between.append(Checkpoints(job.run, ranks, folder).after_step)
    follow_forks()
    with progress(data.steps, recording, visible=ranks.rank == 0) as show:
        trainer.train(data, recording, show, between)
    recording.end()


def _measured_at_end(
    job: Job, ranks: ProcessRankGroup, recording: Recording, trainer: Trainer, path: Path | None, cached: bool | None
) -> MeasuredAtEnd:
    """Return what the manifest also has, measured after the last step.

    Args:
        path: the first file of samples.
        cached: whether that was in the page cache before the first step; None if unknown.
    """
    ranks.current_activity = "the end of the run"
    bandwidth = ranks.run_on(ranks.rank == 0, lambda: _file_bandwidth(path))  # the others wait without a limit
    compiled = None if trainer.compiled is None else trainer.compiled.result(ranks)
    if ranks.rank == 0 and compiled is not None:
        for finding in word_all(compile_findings(compiled, recording.kinds)):
            print_warning(finding.message)
    return MeasuredAtEnd(
        checksum=trainer.checksum(ranks),
        memory=trainer.memory,
        experts=[] if trainer.experts is None else trainer.experts.load(ranks),
        compiled=compiled,
        file_bandwidth=None if isinstance(bandwidth, str) else bandwidth,
        unknown={"file_bandwidth": bandwidth} if isinstance(bandwidth, str) else {},
        cold_steps=_cold_steps(recording, cached),
        peak_tflops=job.run.peak_tflops,
        device_table=job.run.device_table,
    )


def _step_work(job: Job, ranks: ProcessRankGroup, spec: DataSpec, model: nn.Module) -> StepWork:
    return StepWork(
        batch_size=job.run.batch_size * job.run.accumulate,
        sample_bytes=spec.sample_bytes,
        tokens_per_sample=job.workload.tokens_per_sample,
        flops_per_token=job.workload.flops_per_token(model),
        matmul_dtype=matmul_dtype(model) if job.run.precision == "float32" else job.run.precision,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        replicas=job.run.layout(ranks.world_size).replicas,
        loads_ahead=job.data.num_workers > 0,
    )


def _file_bandwidth(path: Path | None) -> FileBandwidth | str | None:
    """Return how fast the samples' file can be read, or why that is unknown, which does not fail a trained run.

    None if there is no file.
    """
    try:
        return None if path is None else measure_file_bandwidth(path)
    except OSError as error:
        return f"{path} cannot be read again ({error.strerror or error})"


def _is_cached(path: Path | None) -> bool | None:
    with suppress(OSError):  # whoever reads the samples says why they cannot be read
        return None if path is None else is_cached(path)
    return None


def _cold_steps(recording: Recording, cached: bool | None) -> int | None:
    """Return how many steps read the samples' file from storage; None if unknown."""
    if cached is not False:
        return None if cached is None else 0
    return recording.steps if recording.first_pass is None else recording.first_pass


def _open_input(job: Job, ranks: ProcessRankGroup, spec: DataSpec, paths: list[Path | None]) -> Input:
    layout = job.run.layout(ranks.world_size)
    opened = open_input(
        Samples(job.source, job.workload, spec, paths, job.data),
        Place(layout.replicas, layout.replica(ranks.rank), job.run.seed, job.run.batch_size),
        job.run.timeout_delta,
    )
    prepared = job.data.num_workers * job.data.prefetch
    steps = job.run.total_steps(len(opened.loader), prepared=prepared)
    return Input(loader=opened.loader, sampler=opened.sampler, steps=steps)


def _build(job: Job, ranks: ProcessRankGroup, device: torch.device) -> nn.Module:
    """Build the same model on every rank and verify that; then seed each replica differently, for dropout."""
    torch.manual_seed(job.run.seed)
    model = job.workload.build().to(device)
    checksum_on_all_ranks(ranks, model.state_dict().values(), "before the first step")
    torch.manual_seed(job.run.seed + 1 + job.run.layout(ranks.world_size).replica(ranks.rank))
    return model


def _recording(
    job: Job, ranks: ProcessRankGroup, topology: Topology, folder: Path, recorders: list[Recorder]
) -> Recording:
    mesh = job.run.layout(ranks.world_size).sizes
    light = is_light(
        job.run.trace_ranks,
        job.run.detail,
        rank=ranks.rank,
        local_rank=topology.local_rank,
        mesh=mesh,
    )
    options = ProfilerOptions(**{name: getattr(job.run, name) for name in ProfilerOptions.__struct_fields__})
    return Recording(
        ranks,
        torch.device(topology.device),
        folder,
        job.run.plan,
        options=options,
        workload=job.workload.name,
        source=job.data.source,
        mesh=mesh,
        injections=job.run.injections,
        recorders=recorders,
        monitor_limit=job.run.monitor_limit,
        sampling=job.run.sampling,
        light=light,
    )
