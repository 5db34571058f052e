"""Compare ways to share a model between the same ranks, at the same global batch (metrics.md section 7)."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from statistics import fmean, median
from typing import Final

from perfkit.options.identity import differing, key
from perfkit.records.aggregate import common_kind, samples_per_step
from perfkit.records.common import CATEGORIES
from perfkit.records.facts import Fact, fact, statement
from perfkit.records.run import RunReport
from perfkit.records.scaling import StrategyComparison, StrategyRow
from perfkit.subjects.scaling.series import Placed, place
from perfkit.subjects.scaling.step_time import StepTimeSample, estimate, ratio, sample, to_record

_MESH: Final = "mesh"
_DP: Final = "dp"
_ACCUMULATE: Final = "accumulate"
_OPTIONS: Final = (
    _MESH,
    _DP,
    "sequence_parallel",
    "loss_parallel",
    "pp_schedule",
    "micro_batches",
    "zero",
    "ds_config",
    "prefetch_layers",
    _ACCUMULATE,
)
"""What makes a strategy: runs that differ in nothing else, with as many ranks and samples per step, are compared."""
_DEEPSPEED: Final = "version.deepspeed"
_OFF: Final = ("off", "none", None)
_MOSTLY: Final = 0.5
_NAMES: Final = {"data_loading": "data loading", "overhead": "idle time", "memcpy": "copies", "compute": "computation"}
_OUTSIDE: Final = "other communication"


def strategy_comparisons(runs: Sequence[RunReport]) -> list[StrategyComparison]:
    """Return one comparison per group of runs that differ in their strategy only, if they differ in it."""
    groups: dict[tuple[object, ...], list[Placed]] = defaultdict(list)
    for run in runs:
        placed, samples = place(run), samples_per_step(run)
        if placed is None or not placed.measured or samples is None or run.world_size < 2:
            continue
        where = (key(placed.setting, (*_OPTIONS, _DEEPSPEED)), run.world_size, len(run.hosts), samples)
        groups[where].append(placed)
    found = (_comparison(members) for members in groups.values())
    return [comparison for comparison in found if comparison is not None]


def _comparison(members: list[Placed]) -> StrategyComparison | None:
    by_name: dict[str, list[RunReport]] = defaultdict(list)
    for name, member in zip(_names(members), members, strict=True):
        by_name[name].append(member.run)
    measured_on = common_kind([member.run for member in members])
    varied = differing([_setting(member) for member in members])
    if not set(varied) - {_ACCUMULATE} or len(by_name) < 2 or measured_on is None:
        return None
    samples = [sample(runs, measured_on, stream) for stream, runs in enumerate(by_name.values())]
    order = sorted(zip(by_name, samples, strict=True), key=lambda pair: pair[1].value_ns)
    rows = [_row(name, step_time, order[0][1]) for name, step_time in order]
    run = members[0].run
    return StrategyComparison(
        name=run.workload or "",
        world_size=run.world_size,
        samples_per_step=samples_per_step(run) or 0,
        rows=rows,
        sentence=_sentence(rows),
    )


def _setting(member: Placed) -> dict[str, str]:
    own = {name: member.setting.get(name, "none") for name in _OPTIONS}
    return own | ({_MESH: f"dp={member.run.world_size}"} if own[_MESH] == "none" else {})


def _names(members: Sequence[Placed]) -> list[str]:
    """Return the strategy of each run: its mesh, and the options in which the runs differ."""
    own = [_setting(member) for member in members]
    varied = differing(own)
    return [" ".join(_parts(setting, varied)) for setting in own]


def _parts(setting: dict[str, str], varied: Sequence[str]) -> Iterator[str]:
    yield setting[_MESH]
    if _DP in varied:
        yield setting[_DP]
    for name in varied:
        # `none` is also the name of a schedule.
        is_off = setting[name] in _OFF and not (name == "pp_schedule" and "pp=" in setting[_MESH])
        if name not in (_MESH, _DP) and not is_off:
            yield name if setting[name] == "on" else f"{name}={setting[name]}"


def _row(name: str, step_time: StepTimeSample, fastest: StepTimeSample) -> StrategyRow:
    held = [size for run in step_time.runs if (size := _largest_bytes(run)) is not None]
    parts = [_parts_ns(run) for run in step_time.runs]
    names = dict.fromkeys(name for one in parts for name in one)
    return StrategyRow(
        strategy=name,
        step_time=to_record(step_time),
        ratio=None if step_time is fastest else estimate(*ratio(step_time, fastest)),
        memory_bytes=round(median(held)) if len(held) == len(step_time.runs) else None,
        parts_ns={name: fmean(one.get(name, 0.0) for one in parts) for name in names},
    )


def _largest_bytes(run: RunReport) -> int | None:
    """Return what the rank that holds most holds; None if any is unknown."""
    held = [one.parameters_bytes + one.gradients_bytes + one.optimizer_bytes for one in run.rank_memory]
    return max(held) if held and len(held) == run.world_size else None


def _parts_ns(run: RunReport) -> dict[str, float]:
    """Return where the mean profiled step of a rank goes: exposed time by category, communication by dimension."""
    steps = [step for rank in run.ranks for step in rank.steps]
    if not steps:
        return {}
    parts = {
        _NAMES[name]: sum(getattr(step.exposed_ns, name) for step in steps) / len(steps)
        for name in CATEGORIES
        if name != "communication"
    }
    left = sum(step.exposed_ns.communication for step in steps) / len(steps)
    for row in run.dimensions.rows if run.dimensions else ():
        part = f"{row.dimension or 'unknown'} communication"
        parts[part] = parts.get(part, 0.0) + row.exposed_ns / len(steps)
        left -= row.exposed_ns / len(steps)
    return parts | {_OUTSIDE: left}


def _sentence(rows: Sequence[StrategyRow]) -> str:
    """Return which strategy wins, why, and which holds least: only what the figures show."""
    first, second = rows[:2]
    if second.ratio is None:
        return ""
    known = [(row.memory_bytes, row.strategy) for row in rows if row.memory_bytes is not None]
    least = min(known) if len(known) == len(rows) else (first.memory_bytes, first.strategy)
    return statement(
        "fastest",
        name=first.strategy,
        other=second.strategy,
        ratio=second.ratio.value,
        doubt=_doubt(first, second),
        saving=_saving(first, second),
        least=None
        if least[0] == first.memory_bytes
        else fact("least_memory", name=least[1], least_bytes=least[0], fastest_bytes=first.memory_bytes),
    )


def _doubt(first: StrategyRow, second: StrategyRow) -> Fact | None:
    """Return what limits the claim that the first is faster (metrics.md section 7)."""
    if {first.step_time.resampled, second.step_time.resampled} != {"runs"}:
        return fact("doubtful_of_few_runs")
    interval = second.ratio.interval if second.ratio else None
    return None if interval is not None and interval[0] > 1 else fact("doubtful")


def _saving(first: StrategyRow, second: StrategyRow) -> Fact | None:
    """Return in which part of the profiled step the faster one saves most; None if those steps do not show it."""
    names = dict.fromkeys((*second.parts_ns, *first.parts_ns))
    saved = {name: second.parts_ns.get(name, 0.0) - first.parts_ns.get(name, 0.0) for name in names}
    whole = sum(saved.values())
    if not first.parts_ns or not second.parts_ns or whole <= 0:
        return None
    most = max(saved, key=lambda name: saved[name])
    if saved[most] < _MOSTLY * whole:
        return None
    exposed = most.endswith("communication")
    ns = {"fastest_ns": first.parts_ns.get(most, 0.0), "other_ns": second.parts_ns.get(most, 0.0)}
    return fact("saved_most", part=most, exposed=exposed, **ns)
