"""What makes the answer about a run doubtful, in order of weight, such as busy cores (metrics.md section 27)."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean, pvariance
from typing import Any, Final

from perfkit.engine.losses.context import MIN_COMMON_SHARE
from perfkit.records.aggregate import real_steps_ns, traced_step_ns, usual_steps_ns
from perfkit.records.common import Finding, Observation
from perfkit.records.cross_rank import FEWEST_COMPARED_STEPS
from perfkit.records.facts import statement
from perfkit.records.per_run.ledger import StepTime
from perfkit.records.rank import RankReport
from perfkit.records.run import DOUBTS, CoreLoad, Doubt, DoubtCode, ProfilerCost, StepTimes
from perfkit.records.trace_header import CoreUse

_BUSY_SHARE: Final = 0.4
"""Share of a rank's cores from which others slow it down. On two cores steps took at most 1.3 times as long up to 0.36,
and 1.2 to 240 times as long from 0.47 on (docs/metrics.md, section 27)."""
_ENOUGH: Final = 10
"""Steps that are asked for: one that takes twice as long changes their mean by a tenth."""
_MANY: Final = 100
"""The same where as many vary."""
_LOST: Final = ("damaged_trace", "skipped_events", "no_device_events", "kernels_lost", "steps_missing")
_IMPOSSIBLE: Final = ("impossible_times", "device_clock_differs")
_MISSING: Final = ("ranks_missing", "world_size_unknown", "missing_traces")
_UNMATCHED: Final = ("suspect_matches", "timelines_disagree")


def core_loads(uses: Iterable[tuple[int | None, CoreUse | None]], ranks: int) -> list[CoreLoad]:
    """Return the load of each set of cores that ranks share; empty unless all ranks have recorded it.

    What a rank of the run without a trace used would count as that of other processes.

    Args:
        uses: of each trace, its rank and what it has recorded.
    """
    by_cores: dict[str, dict[int | None, list[CoreUse]]] = defaultdict(lambda: defaultdict(list))
    for rank, use in uses:
        if use is None or use.window_ns <= 0 or use.count <= 0:
            return []
        by_cores[use.cores][rank].append(use)
    if sum(map(len, by_cores.values())) < ranks:
        return []
    return [_load(of_ranks) for of_ranks in by_cores.values()]


def _load(of_ranks: Mapping[int | None, Sequence[CoreUse]]) -> CoreLoad:
    cores = next(iter(of_ranks.values()))[0].count
    windows_ns = {rank: sum(use.window_ns for use in uses) for rank, uses in of_ranks.items()}
    own = sum(sum(use.own_ns for use in uses) / windows_ns[rank] for rank, uses in of_ranks.items())
    busy = fmean(sum(use.busy_ns for use in uses) / windows_ns[rank] for rank, uses in of_ranks.items())
    busy = min(busy, float(cores))  # the system counts in ticks, which may be late
    others, idle = max(0.0, busy - own), cores - busy
    return CoreLoad(
        ranks=sorted(rank for rank in of_ranks if rank is not None),
        cores=cores,
        own=own,
        others=others,
        idle=idle,
        taken_share=max(0.0, others - idle) / cores,
    )


def is_busy(loads: Iterable[CoreLoad]) -> bool:
    """Return whether other processes kept cores of a rank so busy that its times are not its own."""
    return any(load.taken_share >= _BUSY_SHARE for load in loads)


def doubts(
    seen: Sequence[Observation | Finding],
    loads: Sequence[CoreLoad],
    ranks: Sequence[RankReport],
    cost: ProfilerCost | None,
    config: Mapping[str, Any] | None,
    step: StepTime | None = None,
    times: StepTimes | None = None,
) -> list[Doubt]:
    """Return what makes the answer doubtful; its texts are statements.

    Args:
        cost: of the profiler; None if unknown.
        config: options of the run; None for traces of another program.
        step: the run's step time; None if unknown.
        times: the steps that the run itself timed; None if unknown.
    """
    walls_ns = traced_step_ns(ranks)
    found = [
        *_busy_machine(loads),
        *_of_findings(seen, sum(walls_ns.values())),
        *_of_times(seen, [*walls_ns.values()]),
        *_of_steps([ns for number, ns in walls_ns.items() if number is not None], times, own=config is not None),
        *_of_profiler(cost, config or {}),
        *_of_whole_run(step, cost),
    ]
    return sorted(found, key=lambda doubt: DOUBTS.index(doubt.code))


def _busy_machine(loads: Sequence[CoreLoad]) -> Iterator[Doubt]:
    if not is_busy(loads):
        return
    worst = max(loads, key=lambda load: load.taken_share)
    yield Doubt(
        code="busy_machine",
        overrules=True,
        what=statement("others_kept_busy", others=worst.others, cores=worst.cores),
        remedy=statement("record_when_idle"),
        figures={"others": worst.others, "cores": float(worst.cores), "taken_share": worst.taken_share},
    )


def _of_findings(seen: Sequence[Observation | Finding], recorded_ns: int) -> Iterator[Doubt]:
    """Yield the doubts that findings give the details of."""
    values = {one.code: _values(one) for one in reversed(seen)}
    lost = [one for one in seen if one.code in _LOST and not _values(one).get("judged")]
    if lost:
        traces = len({one.file for one in lost})
        yield _of("events_lost", _LOST, statement("events_missing", traces=traces), "record_again", overrules=True)
    skew_ns = values.get("start_skew", {}).get("first_ns", 0)
    if skew_ns >= MIN_COMMON_SHARE * recorded_ns and skew_ns > 0:
        what = statement("began_apart", ns=skew_ns)
        yield _of("start_skew", ("start_skew",), what, "begin_together", overrules=True)
    if any(code in values for code in _MISSING):
        yield _of("ranks_missing", _MISSING, _missing(values.get("ranks_missing", {})), "analyse_all_traces")
    if any(code in values for code in _UNMATCHED):
        yield _of("matches_suspect", _UNMATCHED, statement("ranks_disagree"))
    if "no_steps" in values:
        what = statement("steps_unmarked", source=values["no_steps"].get("source", "trace"))
        yield _of("no_steps", ("no_steps",), what, "mark_steps")
    if "uneven_steps" in values:
        yield _of("uneven_steps", ("uneven_steps",), statement("steps_differ"))
    if (compiled := values.get("compilation_recorded")) is not None:
        steps = compiled.get("recorded") or compiled.get("steps") or []
        yield _of(
            "compilation_recorded", ("compilation_recorded",), statement("steps_compile", steps=steps), "skip_them"
        )
    if (possible := values.get("possible_communication")) is not None:
        what = statement("unknown_kernels", share=possible.get("share", 0.0))
        yield _of("possible_communication", ("possible_communication",), what, "declare_kernels")


def _of_times(seen: Sequence[Observation | Finding], walls_ns: Sequence[int]) -> Iterator[Doubt]:
    """Yield that much of what a device did cannot have been when its trace says."""
    step_ns = fmean(walls_ns) if walls_ns else 0
    contradict = any(
        values["activities"] >= MIN_COMMON_SHARE * values["of"]
        if one.code == "impossible_times"
        else values["ns"] >= MIN_COMMON_SHARE * step_ns
        for one in seen
        if one.code in _IMPOSSIBLE and (values := _values(one))
    )
    if contradict:
        yield _of("impossible_times", _IMPOSSIBLE, statement("times_contradict"), "record_again")


def _values(one: Observation | Finding) -> Mapping[str, Any]:
    return one.values if isinstance(one, Observation) else {}


def _of(code: DoubtCode, findings: Sequence[str], what: str, remedy: str = "", *, overrules: bool = False) -> Doubt:
    settles = statement(remedy) if remedy else ""
    return Doubt(code=code, overrules=overrules, what=what, remedy=settles, findings=[*findings])


def _missing(values: Mapping[str, Any]) -> str:
    chosen, size = values.get("chosen"), values.get("world_size")
    if isinstance(chosen, list) and size:
        return statement("ranks_without_trace", missing=size - len(chosen), of=size)
    if "missing" in values:
        return statement("ranks_without_trace", missing=values["missing"], of=values["of"])
    return statement("ranks_may_be_missing")


def _of_steps(walls_ns: Sequence[int], times: StepTimes | None, *, own: bool) -> Iterator[Doubt]:
    """Yield that the recorded steps, or those that the step time is the mean of, are too few for how much they vary."""
    count = len(walls_ns)
    if not count:
        return
    if count < FEWEST_COMPARED_STEPS:
        # Of a run whose schedule records more: it ended early.
        remedy = statement("record_steps", steps=_ENOUGH, own=False)
        yield Doubt(code="few_steps", what=statement("steps_recorded", steps=count), remedy=remedy)
        return
    real_ns = real_steps_ns(times) if times else []
    if (error := _error([walls_ns], walls_ns)) >= MIN_COMMON_SHARE:
        yield Doubt(
            code="varying_steps",
            what=statement("steps_vary", least_ns=min(walls_ns), most_ns=max(walls_ns)),
            remedy=statement("record_steps", steps=_ENOUGH if count < _ENOUGH else _MANY, own=own),
            figures={"steps": float(count), "mean_ns": fmean(walls_ns), "standard_error": error},
        )
    elif times and (error := _error([usual_steps_ns(times), times.recorded_ns], real_ns)) >= MIN_COMMON_SHARE:
        yield Doubt(
            code="varying_steps",
            what=statement("step_has_error", error=error),
            remedy=statement("run_longer"),
            figures={"steps": float(len(real_ns)), "mean_ns": fmean(real_ns), "standard_error": error},
        )


def _error(kinds_ns: Sequence[Sequence[int]], of_ns: Sequence[int]) -> float:
    """Return the standard error of the mean of steps, relative to it; 0 if it is unknown.

    Args:
        kinds_ns: steps of which each kind varies as much.
        of_ns: the steps that the mean is of.
    """
    known = [kind for kind in kinds_ns if kind]
    degrees = sum(len(kind) - 1 for kind in known)
    if degrees < 1 or not any(of_ns):
        return 0.0
    squares = sum(pvariance(kind) * len(kind) for kind in known)
    return float((squares / degrees / len(of_ns)) ** 0.5 / fmean(of_ns))


def _of_profiler(cost: ProfilerCost | None, config: Mapping[str, Any]) -> Iterator[Doubt]:
    if cost is None or not cost.recorded_step_ns:
        return
    share = (cost.added_ns or 0) / cost.recorded_step_ns
    if share >= MIN_COMMON_SHARE:
        yield Doubt(
            code="profiler_cost",
            what=statement("profiler_takes", share=share),
            remedy=statement("record_less") if config.get("detail") == "why" else "",
            figures={"added_ns": float(cost.added_ns or 0), "share": share},
        )


def _of_whole_run(step: StepTime | None, cost: ProfilerCost | None) -> Iterator[Doubt]:
    """Yield that the run's other steps do what no recorded one does, or take longer for an unknown reason."""
    if (
        step is not None
        and step.long_steps
        and step.long_ns - step.long_steps * step.typical_ns >= MIN_COMMON_SHARE * _whole_ns(step)
    ):
        share, every = step.long_ns / _whole_ns(step), step.steps / step.long_steps
        yield Doubt(
            code="not_typical",
            what=statement("long_steps", long=step.long_steps, steps=step.steps, share=share),
            remedy=statement("record_steps", steps=_ENOUGH if every < _ENOUGH else _MANY, own=True),
            figures={"long_steps": float(step.long_steps), "steps": float(step.steps), "share": share},
        )
    elif cost is not None and cost.interval_ns is not None and cost.interval_ns[1] <= 0:
        yield Doubt(
            code="not_typical",
            what=statement("recorded_faster"),
            remedy=statement("record_steps", steps=_ENOUGH, own=True),
        )


def _whole_ns(step: StepTime) -> float:
    return step.mean_ns * step.steps
