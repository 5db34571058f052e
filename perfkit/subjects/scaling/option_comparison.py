"""Compare runs that differ in one option only, and find where profiled steps put them in another order."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean, geometric_mean, median
from typing import Final, NamedTuple

from msgspec.structs import replace

from perfkit.base.statistics.bootstrap import FEWEST_RUNS, FEWEST_STEPS, means, median_interval, ratio_interval
from perfkit.errors import UsageError
from perfkit.options.identity import Settings, companions, differing, key, settings, short_name
from perfkit.records.aggregate import common_kind, disagree, step_time_ns, traced_step_ns
from perfkit.records.common import Observation
from perfkit.records.facts import statement
from perfkit.records.run import CacheState, DataLoading, LoadTimes, RunReport
from perfkit.records.scaling import Estimate, OptionComparison, OptionLoads, OptionRow
from perfkit.subjects.scaling.series import place
from perfkit.subjects.scaling.step_time import StepTimeSample, estimate, ratio, sample, to_record

ALWAYS: Final = "source"
"""Compared even if not requested, if the runs have several."""
_FIRST: Final = ("memory", "off", "none", "float32")
"""Values that serve as the baseline; otherwise the value that was run first."""


class _Member(NamedTuple):
    run: RunReport
    setting: Settings
    value: str


def option_comparisons(runs: Sequence[RunReport], by: Sequence[str]) -> list[OptionComparison]:
    """Return one comparison per option and group of otherwise equal runs.

    Raises:
        UsageError: no runs differ only in a requested option.
    """
    all_comparisons = []
    for option in dict.fromkeys([*by, ALWAYS]):
        comparisons = list(_comparisons(runs, option))
        if not comparisons and option in by:
            raise _nothing_to_compare(option, runs)
        all_comparisons.extend(comparisons)
    return all_comparisons


def _nothing_to_compare(option: str, runs: Sequence[RunReport]) -> UsageError:
    known = [setting for run in runs if (setting := settings(run)) is not None]
    names = differing(known)
    if not names and len({run.batch_size for run in runs if run.batch_size is not None}) > 1:
        names = ["the batch size, and so in what a step is (`perfkit compare` shows two of them)"]
    differing_in = ", ".join(names) or "no option"
    return UsageError(f"--by {option}: no runs differ only in that option; they differ in {differing_in}")


def _comparisons(runs: Sequence[RunReport], option: str) -> Iterator[OptionComparison]:
    without = (option, *companions(option, (setting for run in runs if (setting := settings(run)))))
    by_setting: dict[tuple[object, ...], list[_Member]] = defaultdict(list)
    for run in runs:
        placed = place(run)
        setting = placed.setting if placed else settings(run)
        if setting is None or option not in setting or common_kind([run]) is None:
            continue
        batch = placed.batch_size if placed else None
        where = (key(setting, without), run.world_size, len(run.hosts), batch)
        by_setting[where].append(_Member(run, setting, setting[option]))
    several = [members for members in by_setting.values() if len({member.value for member in members}) > 1]
    common = [{name: value for name, value in members[0].setting.items() if name not in without} for members in several]
    varied = differing(common, but=("workload",))
    for members, shared in zip(several, common, strict=True):
        comparison = _comparison(option, members, [short_name(name, shared[name]) for name in varied if name in shared])
        if comparison is not None:
            yield comparison


def _comparison(option: str, members: list[_Member], varied: list[str]) -> OptionComparison | None:
    measured_on = common_kind([member.run for member in members])
    if measured_on is None:
        return None
    rows = _rows(members)
    samples = {name: sample(runs, measured_on, stream) for stream, (name, runs) in enumerate(rows.items())}
    first = next(iter(samples.values()))
    run = first.runs[0]
    from_memory = rows.get("memory", []) if option == "source" else []
    return OptionComparison(
        option=option,
        name=statement("compared_runs", workload=run.workload or "", options=varied, batch=run.batch_size),
        world_size=run.world_size,
        rows=[_row(name, step_time, first, from_memory) for name, step_time in samples.items()],
    )


def _rows(members: list[_Member]) -> dict[str, list[RunReport]]:
    """Return the repeats by value; one value with several companion options makes several rows, named after them."""
    by_value: dict[str, list[_Member]] = defaultdict(list)
    for member in sorted(members, key=lambda member: _FIRST.index(member.value) if member.value in _FIRST else 99):
        by_value[member.value].append(member)
    rows: dict[str, list[RunReport]] = defaultdict(list)
    for value, of_value in by_value.items():
        varied = differing([member.setting for member in of_value])
        for member in of_value:
            more = [f"{name}={member.setting.get(name, 'none')}" for name in varied]
            rows[", ".join([value, *more])].append(member.run)
    return rows


def _row(value: str, step_time: StepTimeSample, first: StepTimeSample, from_memory: Sequence[RunReport]) -> OptionRow:
    runs = step_time.runs
    loads = _loads(runs)
    parallel = [run.efficiency.parallel for run in runs if run.efficiency and run.efficiency.parallel]
    memory = next(iter(_times(from_memory)), None)
    rate, memory_rate = _read_rate(runs), _read_rate(from_memory)
    speeds = [load.file_bandwidth for load in loads if load.file_bandwidth]
    return OptionRow(
        value=value,
        step_time=to_record(step_time),
        efficiency=geometric_mean(parallel) if len(parallel) == len(runs) else None,
        ratio=None if step_time is first else estimate(*ratio(step_time, first)),
        loads=[OptionLoads(times=times, ratio=_load_ratio(times, memory)) for times in _times(runs)],
        exposed_share=fmean(load.exposed_share for load in loads) if loads else None,
        read_bytes_per_s=rate,
        memory_share=rate / memory_rate if rate is not None and memory_rate else None,
        file_bytes_per_s=_median(speed.bytes_per_s for speed in speeds),
        file_cached_share=_median(speed.cached_share for speed in speeds),
        file_share=_median(load.file_share for load in loads),
    )


def _loads(runs: Sequence[RunReport]) -> list[DataLoading]:
    return [run.data_loading for run in runs if run.data_loading]


def _times(runs: Sequence[RunReport]) -> list[LoadTimes]:
    """Return the load times of repeats by state of the page cache."""
    by_state: dict[CacheState | None, list[LoadTimes]] = defaultdict(list)
    for times in (times for load in _loads(runs) for times in load.times):
        by_state[times.cache].append(times)
    warm_first = sorted(by_state.items(), key=lambda item: item[0] == "cold")
    return [of_state[0] if len(of_state) == 1 else _of_repeats(of_state) for _, of_state in warm_first]


def _of_repeats(repeats: Sequence[LoadTimes]) -> LoadTimes:
    low, middle, high = (median(one.quartiles_ns[place] for one in repeats) for place in range(3))
    known = [one.interval_ns for one in repeats if one.interval_ns]
    interval_ns = None
    if len(repeats) >= FEWEST_RUNS:
        interval_ns = median_interval([one.quartiles_ns[1] for one in repeats])
    elif len(known) == len(repeats):
        interval_ns = min(low for low, _ in known), max(high for _, high in known)
    return replace(
        repeats[0],
        measured_on="plain" if all(one.measured_on == "plain" for one in repeats) else "recorded",
        count=sum(one.count for one in repeats),
        least_ns=min(one.least_ns for one in repeats),
        quartiles_ns=(low, middle, high),
        interval_ns=interval_ns,
        max_ns=max(one.max_ns for one in repeats),
    )


def _load_ratio(times: LoadTimes, memory: LoadTimes | None) -> Estimate | None:
    if memory is None or memory.least_ns <= 0:
        return None
    of_fastest = times.least_ns / memory.least_ns
    interval = None
    if times.interval_ns and memory.interval_ns:
        ends = times.interval_ns[0] / memory.interval_ns[1], times.interval_ns[1] / memory.interval_ns[0]
        interval = min(*ends, of_fastest), max(*ends, of_fastest)
    return Estimate(value=times.quartiles_ns[1] / memory.quartiles_ns[1], interval=interval)


def _read_rate(runs: Sequence[RunReport]) -> float | None:
    return _median(load.read_bytes_per_s for load in _loads(runs))


def _median(values: Iterable[float | None]) -> float | None:
    """Return the median of the known values; None if there are none."""
    known = [value for value in values if value is not None]
    return median(known) if known else None


def profiled_order_findings(
    runs: Sequence[RunReport], comparisons: Sequence[OptionComparison]
) -> Iterator[Observation]:
    """Yield a finding per value of an option that only without the profiler is faster, or slower, than the baseline.

    Args:
        runs: all runs.
        comparisons: their comparisons by option.
    """
    profiled_ns = {run.run: list(traced_step_ns(run.ranks).values()) for run in runs}
    for comparison in comparisons:
        first = comparison.rows[0]
        for row in comparison.rows[1:]:
            found = _disagreement(comparison.option, first, row, profiled_ns)
            if row.step_time.measured_on == "plain" and found:
                yield found


def _disagreement(
    option: str, first: OptionRow, row: OptionRow, profiled_ns: Mapping[str, list[int]]
) -> Observation | None:
    plain = (first.step_time.step_ns.value, row.step_time.step_ns.value)
    before, after = ([ns for name in one.step_time.runs for ns in profiled_ns.get(name, [])] for one in (first, row))
    if row.ratio is None or min(len(before), len(after)) < FEWEST_STEPS:
        return None
    if not disagree(row.ratio.interval, ratio_interval(before, after, means)):
        return None
    profiled = (step_time_ns(before), step_time_ns(after))
    values = {"option": option, "value": row.value, "baseline": first.value, "plain_ns": plain}
    return Observation("profiled_step_disagrees", {**values, "profiled_ns": profiled}, "order")
