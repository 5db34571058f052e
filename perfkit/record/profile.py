"""`perfkit.profile`, `perfkit.start` and `perfkit.monitor`: record a training loop of the user's own."""

import functools
import inspect
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Concatenate, Final, ParamSpec, TypeVar, get_type_hints

import torch
import torch.distributed as dist
from msgspec import Meta
from msgspec.structs import asdict, fields, replace
from torch import nn

from perfkit.base.formatting import shell_word
from perfkit.errors import LaunchEnvironmentError, UsageError
from perfkit.options.recording import RECORDED_FOR, SCHEDULE, Detail, Monitor, RecordingOptions, TraceRanks
from perfkit.options.schedule import DEFAULT_SCHEDULE, Schedule
from perfkit.options.trace_ranks import check_ranks_exist, check_trace_ranks, is_light, refuse_stages
from perfkit.record.distributed.known_launchers import find_launcher
from perfkit.record.distributed.launcher_env import RankInfo, detect_rank
from perfkit.record.distributed.rank_group import ProcessRankGroup
from perfkit.record.distributed.topology import Topology, device_in_use, discover_topology
from perfkit.record.messages import print_status, print_warning
from perfkit.record.process_stat import process_identity
from perfkit.record.recording.cycle_recorder import MOVED
from perfkit.record.recording.manifest_writer import RunDescription, open_run
from perfkit.record.recording.profiler_options import ProfilerOptions
from perfkit.record.recording.recording import Recording
from perfkit.record.recording.throughput import StepWork
from perfkit.record.run_listeners import FollowedRun, ManifestListener, listen, watch_steps
from perfkit.records.common import UNNAMED

P = ParamSpec("P")
T = TypeVar("T")

_ELSEWHERE: Final = ("workload", "source", "model", "work", "device", "options")
_MOST_STEPS: Final = 10_000
"""Steps of a loop without a schedule that the manifest has: it is kept in memory, and the step log has all."""


class MonitoredLoop(RecordingOptions, frozen=True, kw_only=True):
    """Options of `perfkit.monitor`."""

    workload: Annotated[str, Meta(description="Name of the workload in reports.")] = UNNAMED
    source: Annotated[str, Meta(description="Name of the input source in reports.")] = UNNAMED
    model: Annotated[
        nn.Module | None,
        Meta(
            description="With or without DDP; for the number and the checksum of the parameters in the manifest, which "
            "must be the same on all ranks."
        ),
    ] = None
    work: Annotated[StepWork | None, Meta(description="Samples per step and so on, for rates in the manifest.")] = None
    device: Annotated[
        str | torch.device | None,
        Meta(
            description="Where the model is; by default that of `model`, else the current accelerator if it is already "
            "in use."
        ),
    ] = None

    def __post_init__(self) -> None:
        if self.on_hang not in ("report", "end"):
            raise UsageError(f"on_hang={self.on_hang!r}: choose from report, end")
        self.check_recording()

    @property
    def plan(self) -> Schedule | None:
        """The schedule; None if no trace is recorded."""
        return None

    @property
    def recorded(self) -> ProfilerOptions:
        return ProfilerOptions()

    def is_light(self, _topology: Topology, _rank: int) -> bool:
        """Return whether a rank leaves a light trace."""
        return False

    def describe(self) -> dict[str, Any]:
        """Return the schedule and every option that is not as by default, without what other fields of a manifest have.

        What level of detail and `options` ask for is by the names that options of the command line have.
        """
        given = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in _ELSEWHERE}
        by_default = {field.name: field.default for field in fields(self) if field.name != "schedule"}
        recorded = {name: True for name, is_on in asdict(self.recorded).items() if is_on}
        changed = {name: value for name, value in given.items() if value != by_default.get(name)}
        return ({"monitor": True} if self.is_monitored else {}) | changed | recorded


class ProfiledLoop(MonitoredLoop, frozen=True, kw_only=True):
    """Options of `perfkit.profile`."""

    schedule: Annotated[str, Meta(description=f"{SCHEDULE}: {DEFAULT_SCHEDULE}.")] = DEFAULT_SCHEDULE
    options: Annotated[ProfilerOptions | None, Meta(description="What to record besides operators.")] = None
    detail: Detail = "time"
    trace_ranks: TraceRanks = None
    monitor: Monitor = False

    def __post_init__(self) -> None:
        _ = self.plan
        if self.detail not in RECORDED_FOR:
            raise UsageError(f"detail={self.detail!r}: choose from {', '.join(RECORDED_FOR)}")
        check_trace_ranks(self.trace_ranks, self.detail)
        refuse_stages(self.trace_ranks)
        super().__post_init__()

    @property
    def is_monitored(self) -> bool:
        return self.monitor

    @property
    def plan(self) -> Schedule | None:
        return Schedule.parse(self.schedule)

    @property
    def recorded(self) -> ProfilerOptions:
        """What is recorded besides operators: what the level of detail needs, too."""
        detail = dict.fromkeys(RECORDED_FOR[self.detail], True)
        return replace(self.options or ProfilerOptions(), **detail)

    def is_light(self, topology: Topology, rank: int) -> bool:
        check_ranks_exist(self.trace_ranks, topology.world.world_size)
        return is_light(self.trace_ranks, self.detail, rank=rank, local_rank=topology.local_rank)


def _with_options(
    options: Callable[P, MonitoredLoop],
) -> Callable[[Callable[..., T]], Callable[Concatenate[str | Path, P], T]]:
    """Give a function the parameters `folder` and, by keyword, the fields of a record of options, and list those."""

    def decorate(function: Callable[..., T]) -> Callable[Concatenate[str | Path, P], T]:
        types = get_type_hints(options)
        parameters = [one.replace(annotation=types[one.name]) for one in inspect.signature(options).parameters.values()]
        folder = inspect.Parameter("folder", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=str | Path)
        signature = inspect.signature(function).replace(parameters=[folder, *parameters])

        @functools.wraps(function)
        def checked(*args: Any, **given: Any) -> T:
            signature.bind(*args, **given)
            return function(*args, **given)

        checked.__signature__ = signature  # type: ignore[attr-defined]
        hints = get_type_hints(options, include_extras=True)
        marks = {name: [one.description for one in hints[name].__metadata__ if isinstance(one, Meta)] for name in types}
        lines = [f"        {name}: {next(filter(None, own), None)}" for name, own in marks.items()]
        checked.__doc__ = (function.__doc__ or "").replace("\n\n    Raises:", "\n".join(["", *lines, "\n    Raises:"]))
        return checked

    return decorate


@_with_options(ProfiledLoop)
@contextmanager
def profile(folder: str | Path, **given: Any) -> Iterator[Recording]:
    """Record your own training loop; every rank calls it, with or without a process group.

    ::

        with perfkit.profile("traces/mine", model=model) as prof:
            for batch in prof.batches(loader):
                with prof.phase("forward"):
                    loss = ...
                ...
                prof.step(loss)

    Without `hang_after` a single rank is not watched.

    Args:
        folder: The run's folder; `mine-2`, `mine-3`, … if it exists already. `prof.folder` is the one that is used.
        **given: Options, which `help(perfkit.profile)` lists: those that `perfkit run` has by the same names, such as
            `schedule`, `detail`, `monitor`, `capture_when` and `hang_after`; and `workload`, `source`, `model`, `work`,
            `device` and `options`.

    Raises:
        UsageError: The schedule, a condition, a size or a duration is invalid.
        LaunchEnvironmentError: A launcher has started several ranks, and they have no process group.
        StoreError: The folder or a trace cannot be written.
        RunError: The ranks' parameters differ at the end.
    """
    with _recorded(Path(folder), ProfiledLoop(**given)) as recording:
        yield recording


@_with_options(MonitoredLoop)
@contextmanager
def monitor(folder: str | Path, **given: Any) -> Iterator[Recording]:
    """Write a record of every step of your own training loop, without a trace; every rank calls it.

    ::

        with perfkit.monitor("traces/mine") as mon:
            for batch in loader:
                ...
                mon.step(loss)

    Args:
        folder: The run's folder; `mine-2`, `mine-3`, … if it exists already.
        **given: Options: those of `perfkit.profile`, but for `schedule`, `detail`, `options` and `monitor`.

    Raises:
        UsageError: A condition, a size or a duration is invalid.
        LaunchEnvironmentError: A launcher has started several ranks, and they have no process group.
        StoreError: The folder cannot be written.
        RunError: The ranks' parameters differ at the end.
    """
    with _recorded(Path(folder), MonitoredLoop(**given)) as recording:
        yield recording


@_with_options(ProfiledLoop)
def start(folder: str | Path, **given: Any) -> Recording:
    """Begin to record a training loop that is not to be indented; every rank calls it, and `stop` at the end.

    ::

        prof = perfkit.start("traces/mine")
        for batch in loader:
            ...
            prof.step(loss)
        prof.stop()

    A program that ends without a call of `stop` leaves a run that is marked as failed; `perfkit.profile` needs none.

    Raises:
        UsageError: The schedule, a condition or a size is invalid.
        LaunchEnvironmentError: A launcher has started several ranks, and they have no process group.
        StoreError: The folder cannot be written.
    """
    opened = _recorded(Path(folder), ProfiledLoop(**given))
    recording = opened.__enter__()
    recording.hold(opened)
    return recording


@contextmanager
def _recorded(folder: Path, loop: MonitoredLoop) -> Iterator[Recording]:
    _require_process_group()
    parameter = None if loop.model is None else next(loop.model.parameters(), None)
    device = torch.device(loop.device or (device_in_use() if parameter is None else parameter.device))
    ranks = ProcessRankGroup(device)
    loop.capture_rules.refuse_unseen_waits(ranks.world_size, device.type)
    topology = discover_topology(ranks, _rank_info(ranks), device, torch.get_num_threads())
    description = RunDescription(workload=loop.workload, source=loop.source, config=loop.describe())
    recording = Recording(
        ranks,
        device,
        open_run(ranks, topology, description, folder.parent, folder.name),
        loop.plan,
        options=loop.recorded,
        workload=loop.workload,
        source=loop.source,
        monitor_limit=loop.monitor_limit,
        most_steps=_MOST_STEPS if loop.plan is None else None,
        sampling=loop.sampling,
        light=loop.is_light(topology, ranks.rank),
    )
    samples = None if loop.work is None else loop.work.samples_per_rank(ranks.world_size)
    processes = ranks.all_gather(process_identity())
    is_watched = ranks.world_size > 1 or loop.hang_after is not None
    listen(
        FollowedRun(recording, topology, loop, loop.plan, samples),
        ManifestListener(recording, ranks, topology, loop.work, loop.model),
        watch_steps(recording, loop, processes) if is_watched else None,
    )
    with recording:
        yield recording
    if recording.is_forked:
        return
    ranks.close()
    if ranks.rank == 0:
        _report_outcome(recording, loop.plan)


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


def _report_outcome(recording: Recording, plan: Schedule | None) -> None:
    """Print where the run is, or why nothing was recorded."""
    if plan is None:
        if recording.monitor is not None and not recording.monitor.has_failed:
            print_status(f"{recording.folder}: {recording.steps} steps, in rank<R>.steps", bare=True)
        return
    if recording.has_trace:
        done = (
            f"{recording.folder}: recorded; to see where the time went: perfkit analyze {shell_word(recording.folder)}"
        )
        print_status(done, bare=True)
        return
    why = f"{recording.steps} steps ran, the first one to be recorded is number {plan.first_recorded + 1}"
    if not recording.steps:
        why = "prof.step() was never called"
    if recording.has_moved:
        why = MOVED
    print_warning(f"{recording.folder}: nothing was recorded: {why}")


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
