"""Aggregates of records: rows summed over the cycles of a rank or the ranks of a run, and the step time.

The step time (metrics.md section 7) is the mean wall time of steps on the slowest rank. It has two sources,
which differ: the run's own clock times every step, with and without the profiler (`clock_step_times`); traces contain
the recorded steps only, and the windows of their steps (`traced_step_ns`), which are called profiled steps. Runs are
compared by steps without the profiler if all of them have some (`common_kind`).
"""

from collections.abc import Collection, Iterable, Sequence
from operator import attrgetter
from statistics import fmean
from typing import Any, Final, TypeVar

from msgspec.structs import asdict

from perfkit.records.common import CATEGORIES, Category, MeasuredOn
from perfkit.records.manifest import RankRecord, StepKind
from perfkit.records.per_rank.idle import IdleCause, IdleTime
from perfkit.records.per_rank.sharding import OTHER_LAYERS, IssuedCollectives, ParameterGathers, ShardedParameters
from perfkit.records.per_run.ledger import StepTime
from perfkit.records.rank import (
    CollectiveStat,
    DeviceTimes,
    MemoryUse,
    OperatorStat,
    PhaseStat,
    RankReport,
    StepBreakdown,
)
from perfkit.records.run import RunReport, StepTimes
from perfkit.records.samples import add_code
from perfkit.records.sums import LONGEST, add_all, add_largest, add_rows, sums_of

MOST_PHASES: Final = 100
"""Most names that are kept, because a program may put a number into each."""
MOST_LAYER_ROWS: Final = 50
"""Most rows of single layers that are kept; the rest are added up."""


MOST_IDLE_CAUSES: Final = 100
"""Most causes of idle time that are kept, besides one row per cause for all others."""
OTHER_DETAILS: Final = "(others)"
MAJORITY: Final = 0.5
"""Share from which a part is most of the whole."""
REPORTED_SHARE: Final = 0.01
"""Share of the whole from which a part is worth a row or a line."""


def add_idle_causes(rows: Iterable[IdleCause]) -> list[IdleCause]:
    """Return one row per cause, detail and context, largest time first; of many, the smaller are added by cause."""
    return add_largest(
        rows,
        attrgetter("cause", "detail", "context"),
        ("count", "total_ns"),
        lambda group: {"max_ns": max(row.max_ns for row in group), "code": add_code(row.code for row in group)},
        most=MOST_IDLE_CAUSES,
        order=lambda row: (-row.total_ns, row.cause, row.detail, row.context or ""),
        rest={"detail": OTHER_DETAILS, "context": None, "code": None},
    )


def add_idle_times(times: Iterable[IdleTime]) -> IdleTime:
    """Return the idle time of several traces or ranks."""
    listed = list(times)
    possible = (time.possible_loading for time in listed if time.possible_loading)
    return IdleTime(
        causes=add_idle_causes(row for time in listed for row in time.causes),
        has_python_frames=all(time.has_python_frames for time in listed),
        possible_loading=max(
            add_rows(possible, attrgetter("name"), ("total_ns",)), key=attrgetter("total_ns"), default=None
        ),
        **sums_of(listed, ("kernels", "short_kernels")),
    )


def merge_idle(ranks: Iterable[RankReport]) -> IdleTime:
    """Return the idle time over all ranks that have steps."""
    return add_idle_times(rank.idle for rank in ranks if rank.steps)


def add_devices(rows: Iterable[DeviceTimes]) -> list[DeviceTimes]:
    """Return the devices of several traces of a rank, one row each."""
    return add_rows(
        rows,
        attrgetter("device"),
        ("beside_ns",),
        lambda group: {"exposed_ns": add_all([row.exposed_ns for row in group])},
    )


def add_operators(rows: Iterable[OperatorStat]) -> list[OperatorStat]:
    """Return one row per name and category, largest time first."""
    added = add_rows(rows, attrgetter("name", "category"), ("count", "total_ns"), _longest_and_size)
    return sorted(added, key=lambda row: (-row.total_ns, row.name))


def _longest_and_size(rows: Sequence[OperatorStat]) -> dict[str, Any]:
    sizes = [row.size for row in rows if row.size is not None]
    return LONGEST(rows) | {"size": sum(sizes) if len(sizes) == len(rows) else None}


def longest_mean_step_ns(run: RunReport) -> float:
    """Return the mean profiled step of the rank on which it is longest (ns), without pauses; 0 without steps.

    Ranks take as long, as a rule, but where only some have pauses: the others wait for these within their steps.
    """
    return max((fmean(step.wall_ns for step in rank.steps) for rank in run.ranks if rank.steps), default=0.0)


def exposed_sums(steps: Iterable[StepBreakdown]) -> dict[Category, int]:
    """Return the exclusive time of each category, summed over steps, in nanoseconds."""
    exposed = [step.exposed_ns for step in steps]
    return {category: sum(map(attrgetter(category), exposed)) for category in CATEGORIES}


def add_phases(rows: Iterable[PhaseStat]) -> list[PhaseStat]:
    """Return one row per name, largest time first."""

    def others(group: Sequence[PhaseStat]) -> dict[str, Any]:
        known = [row.exposed_ns for row in group if row.exposed_ns is not None]
        exposed_ns = add_all(known) if len(known) == len(group) else None
        return {"max_ns": max(row.max_ns for row in group), "exposed_ns": exposed_ns}

    added = add_rows(rows, attrgetter("name"), ("count", "total_ns"), others)
    return sorted(added, key=lambda row: (-row.total_ns, row.name))[:MOST_PHASES]


def add_collectives(rows: Iterable[CollectiveStat]) -> list[CollectiveStat]:
    """Return one row per operator, group, size and type; largest exposed time first, then largest total."""
    key = attrgetter("operator", "group", "group_size", "bytes", "dtype", "ddp_bucket", "dimension")
    added = add_rows(rows, key, ("count", "total_ns", "exposed_ns"), LONGEST)
    return sorted(added, key=lambda row: (-row.exposed_ns, -row.total_ns, row.operator, row.bytes or 0))


def add_issued(rows: Iterable[IssuedCollectives]) -> list[IssuedCollectives]:
    """Return one row per dimension, operator, phase and layer; largest exposed time first, then largest total.

    Rows of layers beyond the first `MOST_LAYER_ROWS` are added up as `OTHER_LAYERS`.
    """
    sums = ("count", "bytes", "unsized", "total_ns", "exposed_ns")
    return _add_with_layers(rows, ("dimension", "operator", "phase", "layer"), sums)


def add_gathers(rows: Iterable[ParameterGathers]) -> list[ParameterGathers]:
    """Return one row per phase and layer, as `add_issued`."""
    key = ("phase", "layer")
    return _add_with_layers(rows, key, [name for name in ParameterGathers.__struct_fields__ if name not in key])


_Row = TypeVar("_Row", IssuedCollectives, ParameterGathers)


def _add_with_layers(rows: Iterable[_Row], key: Sequence[str], sums: Sequence[str]) -> list[_Row]:
    return add_largest(
        rows, attrgetter(*key), sums, most=MOST_LAYER_ROWS, order=_by_exposed, rest={"layer": OTHER_LAYERS}
    )


def _by_exposed(row: IssuedCollectives | ParameterGathers) -> tuple[object, ...]:
    operator = row.operator if isinstance(row, IssuedCollectives) else ""
    return -row.exposed_ns, -row.total_ns, row.phase or "", row.layer or "", operator


def add_sharding(parts: Iterable[ShardedParameters | None]) -> ShardedParameters | None:
    """Return the sum over the cycles of a rank, or over ranks; None without any."""
    known = [part for part in parts if part is not None]
    if not known:
        return None
    regathered = [part.regathered_bytes for part in known]
    return ShardedParameters(
        gathers=add_gathers(row for part in known for row in part.gathers),
        regathered_bytes=None if None in regathered else max(size or 0 for size in regathered),
        **sums_of(known, ("reductions", "reductions_ns", "reductions_exposed_ns", "tail_ns")),
    )


def join_memory(uses: Iterable[MemoryUse]) -> list[MemoryUse]:
    """Return one record per device with all steps; peak and curve are the highest's, or the first's of equals."""

    def others(group: Sequence[MemoryUse]) -> dict[str, Any]:
        highest = max(group, key=lambda use: use.peak.allocated_bytes)
        return asdict(highest) | {"steps": [step for use in group for step in use.steps]}

    return add_rows(uses, attrgetter("device"), (), others)


# ---- step time -----------------------------------------------------------------------------------------------------


def clock_step_times(ranks: Sequence[RankRecord], kinds: Sequence[StepKind]) -> StepTimes:
    """Return the wall time of each step by the run's own clock, of steps all ranks completed, on the slowest rank.

    That is the one whose steps of a kind take longest together: a rank that stalls after its last collective of a step
    lets others wait in the next one, and the largest of each step would count both.

    A step after a pause is left out, if others of its kind remain: the device did the work of the step before it during
    the pause, so the host does not wait for that, as it does in other steps.

    Args:
        ranks: record of each rank, from the manifest.
        kinds: kind of each step.
    """
    completed = min((len(rank.step_wall_ns) for rank in ranks), default=0)
    resumed = {pause.step for rank in ranks for pause in rank.pauses}

    def slowest_ns(chosen: StepKind) -> list[int]:
        every = [step for step, kind in enumerate(kinds[:completed]) if kind == chosen]
        steps = [step for step in every if step not in resumed] or every
        return max(([rank.step_wall_ns[step] for step in steps] for rank in ranks), key=sum, default=[])

    return StepTimes(plain_ns=slowest_ns("plain"), recorded_ns=slowest_ns("active"))


def real_steps_ns(times: StepTimes) -> list[int]:
    """Return the steps that the step time is the mean of (ns); empty if none ran without the profiler.

    It makes no step shorter: where those without it are longer on average, but for long ones, they are so by chance,
    and the mean of both is nearer to that of a long run (docs/metrics.md, section 7).
    """
    usual_ns = usual_steps_ns(times)
    if usual_ns and times.recorded_ns and fmean(usual_ns) > fmean(times.recorded_ns):
        return [*times.plain_ns, *times.recorded_ns]
    return times.plain_ns


def usual_steps_ns(times: StepTimes) -> list[int]:
    """Return the steps without the profiler that recorded ones stand for (ns)."""
    unlike = set(long_steps_ns(times.plain_ns, times.recorded_ns))
    return [ns for ns in times.plain_ns if ns not in unlike]


def step_time(real_ns: Sequence[int], ranks: Iterable[RankReport]) -> StepTime | None:
    """Return the step time of a run; None without steps.

    Args:
        real_ns: from `real_steps_ns`; empty if unknown.
        ranks: reports of its ranks.
    """
    recorded_ns = list(traced_step_ns(ranks).values())
    if not recorded_ns or not any(recorded_ns):
        return None
    long_ns = long_steps_ns(real_ns, recorded_ns)
    return StepTime(
        mean_ns=fmean(real_ns or recorded_ns),
        is_profiled=not real_ns,
        profiled_ns=fmean(recorded_ns),
        steps=len(real_ns or recorded_ns),
        long_steps=len(long_ns),
        long_ns=sum(long_ns),
    )


_LONG: Final = 1.5
"""As of long steps in the monitor's logs: what equal work takes varies less where the machine is quiet."""


def long_steps_ns(plain_ns: Iterable[int], recorded_ns: Collection[int]) -> list[int]:
    """Return the steps that take so much longer than each recorded one that these do not show what is in them (ns)."""
    most_ns = _LONG * max(recorded_ns, default=0)
    return [wall_ns for wall_ns in plain_ns if wall_ns > most_ns > 0]


def mean_own_step_ns(rank: RankReport) -> float:
    """Return a rank's mean step without exposed communication: in it, it may be waiting for others."""
    return fmean(step.wall_ns - step.exposed_ns.communication for step in rank.steps)


def traced_step_ns(ranks: Iterable[RankReport]) -> dict[int | None, int]:
    """Return the wall time of each recorded step (ns), by number, on the slowest rank that has it in its traces."""
    walls = [{step.step: step.wall_ns for step in rank.steps} for rank in ranks]
    known_ns: dict[int | None, int] = {}
    for own in sorted(walls, key=lambda own: sum(own.values())):
        known_ns |= own
    return known_ns


def steps_ns(run: RunReport, measured_on: MeasuredOn) -> list[int]:
    """Return the wall times of a run's steps of one kind (ns); empty unless the run completed.

    Plain steps are by its own clock, recorded ones by its traces, or by its clock if it has none.
    """
    if run.step_times is None or run.state != "completed":
        return []
    times = run.step_times
    # Another marker marks other steps than those that the run itself timed.
    traced = traced_step_ns(run.ranks).values() if run.step_marker is None else ()
    walls = real_steps_ns(times) if measured_on == "plain" else traced or times.recorded_ns
    return [max(1, wall) for wall in walls]  # never 0, because it is a divisor


def samples_per_step(run: RunReport) -> int | None:
    """Return the samples that all ranks train on in a step; None if unknown."""
    return run.throughput.samples_per_step if run.throughput else None


def common_kind(runs: Sequence[RunReport]) -> MeasuredOn | None:
    """Return the kind of steps that all runs have, so that profiler overhead does not look like a difference."""
    kinds: tuple[MeasuredOn, ...] = ("plain", "recorded")
    return next((kind for kind in kinds if all(steps_ns(run, kind) for run in runs)), None)


def step_time_ns(walls_ns: Collection[int]) -> float | None:
    """Return the step time, the mean of the steps' wall times (ns); None without steps."""
    return fmean(walls_ns) if walls_ns else None


def disagree(plain: tuple[float, float] | None, profiled: tuple[float, float] | None) -> bool:
    """Return whether two ratios, of steps without the profiler and of profiled ones, differ in direction beyond noise.

    Args:
        plain: 95 % interval of the ratio; None if that is unknown.
        profiled: likewise.
    """
    if plain is None or profiled is None:
        return False
    return plain[1] < 1 < profiled[0] or profiled[1] < 1 < plain[0]
