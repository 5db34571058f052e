"""Aggregates of records: rows summed over the cycles of a rank or the ranks of a run, and the step time.

The step time (metrics.md section 7) is the mean wall time of steps on the slowest rank. It has two sources,
which differ: the run's own clock times every step, with and without the profiler (`clock_step_times`); traces contain
the recorded steps only, and the windows of their steps (`traced_step_ns`), which are called profiled steps. Runs are
compared by steps without the profiler if all of them have some (`common_kind`).
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from operator import attrgetter
from statistics import fmean
from typing import Any, Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from perfkit.records.common import CATEGORIES, Category, MeasuredOn
from perfkit.records.manifest import RankRecord, StepKind
from perfkit.records.per_rank.idle import IdleCause, IdleTime, PossibleLoading
from perfkit.records.per_rank.sharding import OTHER_LAYERS, IssuedCollectives, ParameterGathers, ShardedParameters
from perfkit.records.per_run.ledger import StepTime
from perfkit.records.rank import (
    CollectiveStat,
    DeviceTimes,
    ExposedNs,
    MemoryUse,
    OperatorStat,
    PhaseStat,
    RankReport,
    StepBreakdown,
)
from perfkit.records.run import RunReport, StepTimes
from perfkit.records.samples import add_code

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
    added = sorted(_add_causes(rows, keep_details=True), key=_by_time)
    listed = [row for row in added if row.detail != OTHER_DETAILS]
    # Rows that were added up before are of many already: they join those that are added up now.
    before = [row for row in added if row.detail == OTHER_DETAILS]
    rest = _add_causes([*listed[MOST_IDLE_CAUSES:], *before], keep_details=False)
    return sorted((*listed[:MOST_IDLE_CAUSES], *rest), key=_by_time)


def _by_time(row: IdleCause) -> tuple[int, str, str, str]:
    return -row.total_ns, row.cause, row.detail, row.context or ""


def _add_causes(rows: Iterable[IdleCause], *, keep_details: bool) -> list[IdleCause]:
    named = (
        row
        if keep_details and row.detail != OTHER_DETAILS
        else replace(row, detail=OTHER_DETAILS, context=None, code=None)
        for row in rows
    )
    return _add_by(named, ("cause", "detail", "context"), ("count", "total_ns"), _longest_and_code)


def _longest_and_code(rows: Sequence[IdleCause]) -> dict[str, Any]:
    return {"max_ns": max(row.max_ns for row in rows), "code": add_code(row.code for row in rows)}


def add_idle_times(times: Iterable[IdleTime]) -> IdleTime:
    """Return the idle time of several traces or ranks."""
    listed = list(times)
    return IdleTime(
        causes=add_idle_causes(row for time in listed for row in time.causes),
        kernels=sum(time.kernels for time in listed),
        short_kernels=sum(time.short_kernels for time in listed),
        has_python_frames=all(time.has_python_frames for time in listed),
        possible_loading=_most_possible(time.possible_loading for time in listed),
    )


def _most_possible(found: Iterable[PossibleLoading | None]) -> PossibleLoading | None:
    total_ns: dict[str, int] = defaultdict(int)
    for one in found:
        if one is not None:
            total_ns[one.name] += one.total_ns
    name = max(total_ns, key=lambda name: total_ns[name], default=None)
    return None if name is None else PossibleLoading(name=name, total_ns=total_ns[name])


def merge_idle(ranks: Iterable[RankReport]) -> IdleTime:
    """Return the idle time over all ranks that have steps."""
    return add_idle_times(rank.idle for rank in ranks if rank.steps)


def add_devices(rows: Iterable[DeviceTimes]) -> list[DeviceTimes]:
    """Return the devices of several traces of a rank, one row each."""
    of_device: dict[str, list[DeviceTimes]] = {}
    for row in rows:
        of_device.setdefault(row.device, []).append(row)
    return [
        DeviceTimes(
            device=device,
            exposed_ns=ExposedNs(**{c: sum(getattr(row.exposed_ns, c) for row in own) for c in CATEGORIES}),
            beside_ns=sum(row.beside_ns for row in own),
        )
        for device, own in of_device.items()
    ]


def add_operators(rows: Iterable[OperatorStat]) -> list[OperatorStat]:
    """Return one row per name and category, largest time first."""
    added = _add_by(rows, ("name", "category"), ("count", "total_ns"), _longest_and_size)
    return sorted(added, key=lambda row: (-row.total_ns, row.name))


def _longest_and_size(rows: Sequence[OperatorStat]) -> dict[str, Any]:
    sizes = [row.size for row in rows if row.size is not None]
    return _LONGEST(rows) | {"size": sum(sizes) if len(sizes) == len(rows) else None}


RowT = TypeVar("RowT", bound=Struct)


def _add_by(
    rows: Iterable[RowT],
    key: Sequence[str],
    sums: Sequence[str],
    others: Callable[[Sequence[RowT]], dict[str, Any]] = lambda _: {},
) -> list[RowT]:
    """Return one row for all that are equal in the fields `key`, with the sums of fields and what others become."""
    groups: dict[object, list[RowT]] = defaultdict(list)
    of_key = attrgetter(*key)
    for row in rows:
        groups[of_key(row)].append(row)
    # Single rows are reused, so that with thousands of ranks few are copied.
    return [
        group[0] if len(group) == 1 else replace(group[0], **_sums(group, sums), **others(group))
        for group in groups.values()
    ]


def _sums(rows: Sequence[Struct], names: Sequence[str]) -> dict[str, int]:
    return {name: sum(getattr(row, name) for row in rows) for name in names}


def _longest_of(*names: str) -> Callable[[Sequence[Struct]], dict[str, Any]]:
    """Return what takes fields from the row with the longest of all that rows sum up."""

    def longest(group: Sequence[Struct]) -> dict[str, Any]:
        row = max(group, key=attrgetter("max_ns"))
        return {name: getattr(row, name) for name in names}

    return longest


_LONGEST: Final = _longest_of("max_ns", "max_step", "max_at_ns")


def longest_mean_step_ns(run: RunReport) -> float:
    """Return the mean profiled step of the rank on which it is longest (ns), without pauses; 0 without steps.

    Ranks take as long, as a rule, but where only some have pauses: the others wait for these within their steps.
    """
    return max((fmean(step.wall_ns for step in rank.steps) for rank in run.ranks if rank.steps), default=0.0)


def exposed_sums(steps: Iterable[StepBreakdown]) -> dict[Category, int]:
    """Return the exclusive time of each category, summed over steps, in nanoseconds."""
    exposed = [step.exposed_ns for step in steps]
    return {category: sum(map(attrgetter(category), exposed)) for category in CATEGORIES}


def _add_exposed(parts: Sequence[ExposedNs | None]) -> ExposedNs | None:
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    return ExposedNs(**{category: sum(getattr(part, category) for part in known) for category in CATEGORIES})


def add_phases(rows: Iterable[PhaseStat]) -> list[PhaseStat]:
    """Return one row per name, largest time first."""

    def others(group: Sequence[PhaseStat]) -> dict[str, Any]:
        return {
            "max_ns": max(row.max_ns for row in group),
            "exposed_ns": _add_exposed([row.exposed_ns for row in group]),
        }

    added = _add_by(rows, ("name",), ("count", "total_ns"), others)
    return sorted(added, key=lambda row: (-row.total_ns, row.name))[:MOST_PHASES]


def add_collectives(rows: Iterable[CollectiveStat]) -> list[CollectiveStat]:
    """Return one row per operator, group, size and type; largest exposed time first, then largest total."""
    key = ("operator", "group", "group_size", "bytes", "dtype", "ddp_bucket", "dimension")
    added = _add_by(rows, key, ("count", "total_ns", "exposed_ns"), _LONGEST)
    return sorted(added, key=lambda row: (-row.exposed_ns, -row.total_ns, row.operator, row.bytes or 0))


def add_issued(rows: Iterable[IssuedCollectives]) -> list[IssuedCollectives]:
    """Return one row per dimension, operator, phase and layer; largest exposed time first, then largest total.

    Rows of layers beyond the first `MOST_LAYER_ROWS` are added up as `OTHER_LAYERS`.
    """
    return _add_with_layers(rows, ("dimension", "operator", "phase", "layer"), _ISSUED_SUMS)


def add_gathers(rows: Iterable[ParameterGathers]) -> list[ParameterGathers]:
    """Return one row per phase and layer, as `add_issued`."""
    return _add_with_layers(rows, ("phase", "layer"), _GATHER_SUMS)


_Row = TypeVar("_Row", IssuedCollectives, ParameterGathers)


def _add_with_layers(rows: Iterable[_Row], key: Sequence[str], sums: Sequence[str]) -> list[_Row]:
    added = sorted(_add_by(rows, key, sums), key=_by_exposed)
    of_layers = [row for row in added if row.layer not in (None, OTHER_LAYERS)]
    rest = {id(row) for row in of_layers[MOST_LAYER_ROWS:]}
    folded = (replace(row, layer=OTHER_LAYERS) if id(row) in rest else row for row in added)
    return sorted(_add_by(folded, key, sums), key=_by_exposed)


def add_sharding(parts: Iterable[ShardedParameters | None]) -> ShardedParameters | None:
    """Return the sum over the cycles of a rank, or over ranks; None without any."""
    known = [part for part in parts if part is not None]
    if len(known) < 2:
        return known[0] if known else None
    regathered = [part.regathered_bytes for part in known]
    return ShardedParameters(
        gathers=add_gathers(row for part in known for row in part.gathers),
        regathered_bytes=None if None in regathered else max(size or 0 for size in regathered),
        **_sums(known, _REDUCTION_SUMS),
    )


def _by_exposed(row: IssuedCollectives | ParameterGathers) -> tuple[object, ...]:
    operator = row.operator if isinstance(row, IssuedCollectives) else ""
    return -row.exposed_ns, -row.total_ns, row.phase or "", row.layer or "", operator


_ISSUED_SUMS: Final = ("count", "bytes", "unsized", "total_ns", "exposed_ns")
_REDUCTION_SUMS: Final = ("reductions", "reductions_ns", "reductions_exposed_ns", "tail_ns")
_GATHER_SUMS: Final = tuple(name for name in ParameterGathers.__struct_fields__ if name not in {"phase", "layer"})


def join_memory(uses: Iterable[MemoryUse]) -> list[MemoryUse]:
    """Return one record per device with all steps; peak and curve are the highest's, or the first's of equals."""
    groups: dict[str, list[MemoryUse]] = defaultdict(list)
    for use in uses:
        groups[use.device].append(use)
    return [
        group[0]
        if len(group) == 1
        else replace(
            max(group, key=lambda use: use.peak.allocated_bytes), steps=[step for use in group for step in use.steps]
        )
        for group in groups.values()
    ]


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


def step_time(plain_ns: Sequence[int], ranks: Iterable[RankReport]) -> StepTime | None:
    """Return the step time of a run; None without steps.

    Args:
        plain_ns: steps without the profiler, from `clock_step_times`; empty if unknown.
        ranks: reports of its ranks.
    """
    recorded_ns = list(traced_step_ns(ranks).values())
    if not recorded_ns or not any(recorded_ns):
        return None
    long_ns = long_steps_ns(plain_ns, recorded_ns)
    return StepTime(
        mean_ns=fmean(plain_ns or recorded_ns),
        is_profiled=not plain_ns,
        profiled_ns=fmean(recorded_ns),
        steps=len(plain_ns or recorded_ns),
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
    walls = times.plain_ns if measured_on == "plain" else traced or times.recorded_ns
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


_MIN_DISAGREEMENT: Final = 0.01
"""Smallest change of each step time whose direction counts."""


def disagree(plain: float, profiled: float) -> bool:
    """Return whether two ratios, of steps without the profiler and of profiled ones, differ in direction."""
    return (plain - 1) * (profiled - 1) < 0 and min(abs(plain - 1), abs(profiled - 1)) >= _MIN_DISAGREEMENT
