"""`perfkit.profile` and `perfkit.monitor`: record a training loop of the user's own."""

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import torch
import torch.distributed as dist
from msgspec import Struct
from torch import nn

from perfkit.capture.conditions import DEFAULT_BYTES, DEFAULT_CAPTURES, CaptureRules
from perfkit.capture.distributed.device_in_use import device_in_use
from perfkit.capture.distributed.known_launchers import find_launcher
from perfkit.capture.distributed.launcher_env import RankInfo, detect_rank
from perfkit.capture.distributed.rank_group import ProcessRankGroup
from perfkit.capture.distributed.topology import Topology, discover_topology
from perfkit.capture.durations import parse_hang_after
from perfkit.capture.failed_loop import MarkFailed
from perfkit.capture.hangs.report import OnHang
from perfkit.capture.hangs.run_watch import watch_run
from perfkit.capture.hangs.step_watch import StepWatch
from perfkit.capture.hangs.worker_stacks import remove_requests
from perfkit.capture.lifecycle.watchdog import process_identity
from perfkit.capture.messages import print_status, print_warning
from perfkit.capture.on_demand.agent import CaptureAgent
from perfkit.capture.recording.cycle_recorder import MOVED
from perfkit.capture.recording.manifest_writer import (
    RunDescription,
    open_run,
    write_completed_manifest,
)
from perfkit.capture.recording.profiler_options import ProfilerOptions
from perfkit.capture.recording.session import Session
from perfkit.capture.recording.throughput import StepWork
from perfkit.capture.schedule import DEFAULT_SCHEDULE, Schedule
from perfkit.capture.shared_options import RECORDED_FOR, DetailName, monitor_limit, require_metrics, require_otlp
from perfkit.errors import LaunchEnvironmentError, UsageError
from perfkit.schema.common import UNNAMED
from perfkit.util.formatting import shell_word

_MOST_STEPS: Final = 10_000
"""Steps of a loop without a schedule that the manifest has: it is kept in memory, and the step log has all."""


@contextmanager
def profile(
    folder: str | Path,
    *,
    schedule: str = DEFAULT_SCHEDULE,
    workload: str = UNNAMED,
    source: str = UNNAMED,
    model: nn.Module | None = None,
    work: StepWork | None = None,
    device: str | torch.device | None = None,
    options: ProfilerOptions | None = None,
    detail: DetailName = "time",
    monitor: bool = False,
    monitor_bytes: str | None = None,
    metrics_port: int | None = None,
    otlp: bool = False,
    capture_when: Sequence[str] = (),
    captures: int = DEFAULT_CAPTURES,
    capture_bytes: str = DEFAULT_BYTES,
    hang_after: str | None = None,
    on_hang: OnHang = "report",
) -> Iterator[Session]:
    """Record your own training loop; every rank calls it, with or without a process group.

    ::

        with perfkit.profile("traces/mine", model=model) as prof:
            for batch in prof.batches(loader):
                with prof.phase("forward"):
                    loss = ...
                ...
                prof.step(loss)

    Args:
        folder: The run's folder; `mine-2`, `mine-3`, … if it exists already. `prof.folder` is the one that is used.
        schedule: Which steps are recorded, `wait=1,warmup=1,active=3,repeat=1,skip_first=0`.
        workload: Name of the workload in reports.
        source: Name of the input source in reports.
        model: With or without DDP; for the number and the checksum of the parameters in the manifest, which must be
            the same on all ranks.
        work: Samples per step and so on, for rates in the manifest.
        device: Where the model is; by default that of `model`, else the current accelerator if it is already in use.
        options: What to record besides operators.
        detail: `why` also records what it takes to name causes (Python functions and modules, shapes, allocations).
        monitor: Also write a record of every step of the whole run, as `perfkit.monitor` does.
        monitor_bytes: With `monitor`: size of each rank's file beyond which older steps are summed up, `64MiB`.
        metrics_port: With `monitor`: answer Prometheus on this port of each host's loopback (extra `metrics`).
        otlp: With `monitor`: send the newest figures to OpenTelemetry's collector, by default on loopback (extra
            `otel`).
        capture_when: Also record the steps after one in which a condition begins to hold: `step > 1.5x median`,
            `loader wait > 30 %`, `rank late > 20 %` (with `monitor`), `every=10000`. `perfkit capture FOLDER` asks for
            coming steps at any time.
        captures: How many captures conditions may ask for.
        capture_bytes: Size of all captures beyond which conditions ask for no more.
        hang_after: If no step ends for so long, such as `90s`, every rank writes what it does, and who waits for whom
            is printed; the first step may take ten times as long. By default 20 times the median step and at least 5
            minutes, and 30 minutes in the first step; then a single rank is not watched.
        on_hang: `report`, or `end`: also end all ranks, if one was found to keep the others waiting.

    Raises:
        UsageError: The schedule, a condition, a size or a duration is invalid.
        LaunchEnvironmentError: A launcher has started several ranks, and they have no process group.
        StoreError: The folder or a trace cannot be written.
        RunError: The ranks' parameters differ at the end.
    """
    loop = _Loop(
        folder=Path(folder),
        plan=Schedule.parse(schedule),
        options=_with_detail(options or ProfilerOptions(), detail),
        workload=workload,
        source=source,
        model=model,
        work=work,
        device=device,
        monitor_limit=monitor_limit(monitor, monitor_bytes),
        metrics_port=metrics_port,
        otlp=otlp,
        config={"schedule": schedule},
        rules=CaptureRules.parse(capture_when, captures, capture_bytes),
        hang_after_s=parse_hang_after(hang_after),
        on_hang=_checked(on_hang),
    )
    with _recorded(loop) as session:
        yield session


@contextmanager
def monitor(
    folder: str | Path,
    *,
    workload: str = UNNAMED,
    source: str = UNNAMED,
    model: nn.Module | None = None,
    work: StepWork | None = None,
    device: str | torch.device | None = None,
    monitor_bytes: str | None = None,
    metrics_port: int | None = None,
    otlp: bool = False,
    capture_when: Sequence[str] = (),
    captures: int = DEFAULT_CAPTURES,
    capture_bytes: str = DEFAULT_BYTES,
    hang_after: str | None = None,
    on_hang: OnHang = "report",
) -> Iterator[Session]:
    """Write a record of every step of your own training loop, without a trace; every rank calls it.

    ::

        with perfkit.monitor("traces/mine") as mon:
            for batch in loader:
                ...
                mon.step(loss)

    Args:
        folder: The run's folder; `mine-2`, `mine-3`, … if it exists already.
        workload: Name of the workload in reports.
        source: Name of the input source in reports.
        model: As for `perfkit.profile`.
        work: As for `perfkit.profile`.
        device: As for `perfkit.profile`.
        monitor_bytes: Size of each rank's file beyond which older steps are summed up, `64MiB`.
        metrics_port: As for `perfkit.profile`.
        otlp: As for `perfkit.profile`.
        capture_when: As for `perfkit.profile`: what asks for a trace of coming steps.
        captures: As for `perfkit.profile`.
        capture_bytes: As for `perfkit.profile`.
        hang_after: As for `perfkit.profile`.
        on_hang: As for `perfkit.profile`.

    Raises:
        UsageError: A condition, a size or a duration is invalid.
        LaunchEnvironmentError: A launcher has started several ranks, and they have no process group.
        StoreError: The folder cannot be written.
        RunError: The ranks' parameters differ at the end.
    """
    loop = _Loop(
        folder=Path(folder),
        plan=None,
        options=ProfilerOptions(),
        workload=workload,
        source=source,
        model=model,
        work=work,
        device=device,
        monitor_limit=monitor_limit(True, monitor_bytes),
        metrics_port=metrics_port,
        otlp=otlp,
        config={},
        rules=CaptureRules.parse(capture_when, captures, capture_bytes),
        hang_after_s=parse_hang_after(hang_after),
        on_hang=_checked(on_hang),
    )
    with _recorded(loop) as session:
        yield session


class _Loop(Struct, frozen=True, kw_only=True):
    """What is recorded of a loop, and how."""

    folder: Path
    plan: Schedule | None
    options: ProfilerOptions
    workload: str
    source: str
    model: nn.Module | None
    work: StepWork | None
    device: str | torch.device | None
    monitor_limit: int | None
    metrics_port: int | None
    otlp: bool
    config: dict[str, Any]
    rules: CaptureRules
    hang_after_s: float | None
    on_hang: OnHang


@contextmanager
def _recorded(loop: _Loop) -> Iterator[Session]:
    _require_process_group()
    model_device = _find_device(loop.device, loop.model)
    loop.rules.require_monitor(loop.monitor_limit is not None)
    require_metrics(loop.metrics_port, loop.monitor_limit is not None)
    require_otlp(loop.otlp, loop.monitor_limit is not None)
    ranks = ProcessRankGroup(model_device)
    loop.rules.refuse_unseen_waits(ranks.world_size, model_device.type)
    topology = discover_topology(ranks, _rank_info(ranks), model_device, torch.get_num_threads())
    description = RunDescription(workload=loop.workload, source=loop.source, config=_describe(loop))
    run_folder = open_run(ranks, topology, description, loop.folder.parent, loop.folder.name)
    session = _make_session(loop, ranks, topology, model_device, run_folder)
    agent = CaptureAgent(session, topology, loop.plan, loop.rules)
    hangs = _watch_steps(loop, ranks, session, agent)

    def after_step() -> None:
        agent.follow()
        if hangs is not None:
            hangs.step_ended()

    session.after_step = after_step
    with MarkFailed(session, ranks, topology, loop.work, loop.model, agent, hangs):
        session.start()
        agent.start()
        if hangs is not None:
            hangs.start()
        yield session
        if session.is_forked:
            return
        if hangs is not None:
            hangs.stop()
        agent.close()
        session.finish()
        if ranks.rank == 0:
            remove_requests(run_folder)
        write_completed_manifest(ranks, topology, run_folder, session.measurements(), work=loop.work, model=loop.model)
    ranks.close()
    if ranks.rank == 0:
        _report_outcome(session, loop.plan)


def _describe(loop: _Loop) -> dict[str, Any]:
    """Return what the manifest has of the options."""
    recorded = [name for name in loop.options.__struct_fields__ if getattr(loop.options, name)]
    config = loop.config | ({"profiler_options": recorded} if recorded else {})
    return config if loop.monitor_limit is None else config | {"monitor": True, "monitor_bytes": loop.monitor_limit}


def _make_session(
    loop: _Loop, ranks: ProcessRankGroup, topology: Topology, device: torch.device, folder: Path
) -> Session:
    session = Session(
        ranks,
        device,
        folder,
        loop.plan,
        options=loop.options,
        workload=loop.workload,
        source=loop.source,
        monitor_limit=loop.monitor_limit,
        most_steps=_MOST_STEPS if loop.plan is None else None,
    )
    if session.monitor is not None and topology.local_rank == 0:
        samples = None if loop.work is None else loop.work.samples_per_rank(ranks.world_size)
        session.monitor.publish(loop.metrics_port, loop.otlp, folder, samples)
    return session


def _watch_steps(loop: _Loop, ranks: ProcessRankGroup, session: Session, agent: CaptureAgent) -> StepWatch | None:
    """Return what watches whether steps end; None for a single rank, unless that is wanted."""
    places = dict(enumerate(ranks.all_gather(process_identity())))
    if ranks.world_size == 1 and loop.hang_after_s is None:
        return None

    def is_busy() -> bool:
        return session.writing or agent.writing or session.pauses.in_progress

    return watch_run(session.folder, ranks.rank, places, loop.hang_after_s, loop.on_hang, is_busy)


def _checked(on_hang: OnHang) -> OnHang:
    """Return what is to follow a hang.

    Raises:
        UsageError: There is no such thing.
    """
    if on_hang not in ("report", "end"):
        raise UsageError(f"on_hang={on_hang!r}: choose from report, end")
    return on_hang


def _with_detail(options: ProfilerOptions, detail: DetailName) -> ProfilerOptions:
    """Return the options, with what a level of detail needs switched on.

    Raises:
        UsageError: There is no such level.
    """
    if detail not in RECORDED_FOR:
        raise UsageError(f"detail={detail!r}: choose from {', '.join(RECORDED_FOR)}")
    return msgspec.structs.replace(options, **dict.fromkeys(RECORDED_FOR[detail], True))


def _require_process_group() -> None:
    """Refuse to record each of several ranks as a separate run, if they have no process group."""
    launcher = find_launcher(os.environ)
    if launcher is None or (dist.is_available() and dist.is_initialized()):
        return
    try:
        world_size = detect_rank(os.environ).world_size
    except LaunchEnvironmentError:
        return  # inconsistent variables do not matter without a process group
    if world_size > 1:
        raise LaunchEnvironmentError(
            f"{launcher.name} has started {world_size} ranks, but there is no process group: call "
            "torch.distributed.init_process_group() before perfkit.profile()"
        )


def _report_outcome(session: Session, plan: Schedule | None) -> None:
    """Print where the run is, or why nothing was recorded."""
    if plan is None:
        if session.monitor is not None and not session.monitor.has_failed:
            print_status(f"{session.folder}: {session.steps} steps, in rank<R>.steps", bare=True)
        return
    if session.has_trace:
        done = f"{session.folder}: recorded; to see where the time went: perfkit analyze {shell_word(session.folder)}"
        print_status(done, bare=True)
        return
    needed = plan.skip_first + plan.wait + plan.warmup + 1
    why = f"{session.steps} steps ran, the first one to be recorded is number {needed}"
    if not session.steps:
        why = "prof.step() was never called"
    if session.has_moved:
        why = MOVED
    print_warning(f"{session.folder}: nothing was recorded: {why}")


def _find_device(device: str | torch.device | None, model: nn.Module | None) -> torch.device:
    parameter = None if model is None else next(model.parameters(), None)
    if device is not None:
        return torch.device(device)
    if parameter is not None:
        return parameter.device
    return device_in_use()


def _rank_info(ranks: ProcessRankGroup) -> RankInfo:
    """Return this process's place among the ranks, from the process group and host names.

    The process group is the user's own, and the launcher's variables may be incomplete.
    """
    launcher = find_launcher(os.environ)
    hosts = ranks.all_gather(socket.gethostname())
    neighbours = [rank for rank, host in enumerate(hosts) if host == hosts[ranks.rank]]
    return RankInfo(
        rank=ranks.rank,
        world_size=ranks.world_size,
        local_rank=neighbours.index(ranks.rank),
        local_world_size=len(neighbours),
        launcher=launcher.name if launcher else "none",
    )
