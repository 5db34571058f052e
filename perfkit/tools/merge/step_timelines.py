"""Read the timelines of a few steps of a run, for its page: on two ranks, of the longest step and a typical one.

The slowest rank's trace has its flame graphs too, if it has stacks.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from perfkit.base.parsing import Ranges
from perfkit.engine.attribution.stacks import flame_graphs
from perfkit.engine.runs.drawn_steps import chosen_steps, on_reference_clock
from perfkit.engine.steps.windows import numbered_in_run
from perfkit.engine.trace_context import TraceContext
from perfkit.engine.trace_summary import MOST_STEPS as MOST_TRACE_STEPS
from perfkit.errors import TraceError, UsageError
from perfkit.pipeline.summarize import Options
from perfkit.records.per_run.flame_graph import FlameGraph
from perfkit.records.per_run.step_timeline import StepTimeline
from perfkit.records.rank import RankReport
from perfkit.records.report import Report
from perfkit.records.run import RunReport
from perfkit.tools.merge.step_rows import Links, step_timeline
from perfkit.trace.nsys.paths import on_disk, trace_path
from perfkit.trace.reader import read_trace

MOST_RUNS: Final = 4
"""Of more runs than this there are no timelines: each has a hundred kilobytes or more."""
MOST_STEPS: Final = 10
"""So many steps of a run can be chosen."""


_DEFAULTS: Final = Options()


def with_step_timelines(report: Report, options: Options = _DEFAULTS, *, steps: Ranges | None = None) -> Report:
    """Return a report with the timelines of some steps of each run, read from its traces.

    Ranks whose traces cannot be read again, such as pipes, have none.

    Args:
        report: the report, of at most `MOST_RUNS` runs; others are returned as they are.
        options: how the traces were read.
        steps: numbers of the steps; None for those of `chosen_steps`. The report's own collectives are linked in them
            if `perfkit.pipeline.analyze` was given the same.

    Raises:
        UsageError: a run has not all of these steps, or too many of them, or no timelines of any, or there are too many
            runs.
    """
    if steps is not None:
        _check_steps(report, steps)
    if len(report.runs) > MOST_RUNS:
        return report
    runs = [_drawn(run, steps, options) for run in report.runs]
    without = next((run for run in runs if not run.step_timelines), None)
    if steps is not None and without is not None:
        raise UsageError(
            f"--steps: no timelines of these steps of {without.run}: its traces cannot be read again (as from a pipe), "
            "or the ranks that a page shows have not recorded the steps"
        )
    return replace(report, runs=runs)


def _check_steps(report: Report, steps: Ranges) -> None:
    if len(report.runs) > MOST_RUNS:
        raise UsageError(f"--steps: a page of {len(report.runs)} runs has no timelines: give at most {MOST_RUNS} runs")
    for run in report.runs:
        existing = {step.step for rank in run.ranks for step in rank.steps if step.step is not None}
        steps.check(existing, f"step of {run.run}")
        count = sum(step in steps for step in existing)
        if count > MOST_STEPS:
            raise UsageError(
                f"--steps: {count} steps of {run.run}, and a page has the timelines of at most {MOST_STEPS}"
            )


def _drawn(run: RunReport, steps: Ranges | None, options: Options) -> RunReport:
    """Return a run with its timelines, and the flame graphs of the rank that comes first: the slowest."""
    timelines: list[StepTimeline] = []
    flames: list[FlameGraph] = []
    for place, (rank, wanted) in enumerate(chosen_steps(run.ranks, run.cross_rank, steps)):
        left = {(step.step, step.start_ns) for step in wanted}
        for name, read in _contexts(run, rank, options):
            timelines += _timelines(run, rank, left, name, read)
            if place == 0 and not flames:
                flames = flame_graphs(read, rank=rank.rank, trace=name)
            del read
            if not left:
                break
    return replace(run, step_timelines=timelines, flame_graphs=flames)


def _contexts(run: RunReport, rank: RankReport, options: Options) -> Iterator[tuple[str, TraceContext]]:
    """Yield the rank's traces that can be read again, one in memory at a time."""
    for name in rank.traces:
        path = trace_path(Path(run.path), name)
        if not on_disk(path).is_file():
            continue
        try:
            trace = read_trace(path, max_bytes=options.max_bytes)
            read = options.context(trace, name, MOST_TRACE_STEPS)
        except TraceError:  # gone or changed since the analysis
            continue
        del trace
        read.steps = numbered_in_run(read.steps, rank.steps)
        yield name, read
        del read


def _timelines(
    run: RunReport, rank: RankReport, left: set[tuple[int | None, int]], name: str, read: TraceContext
) -> Iterator[StepTimeline]:
    """Yield the timelines of those steps, by number and start, that one of the rank's traces has; remove them."""
    links = _links(run, rank.rank)
    clocks = run.cross_rank.clocks if run.cross_rank else ()
    clock = next((clock for clock in clocks if rank.rank in clock.ranks), None)
    for place, step in enumerate(zip(read.steps.number, read.steps.bounds[:-1].tolist(), strict=True)):
        if step in left:
            left.remove(step)
            begin_ns = on_reference_clock(clock, step[1])
            yield step_timeline(read, place, links, rank=rank.rank, trace=name, begin_ns=begin_ns)


def _links(run: RunReport, rank: int | None) -> Links:
    """Return a rank's linked collectives by their start and end, by its own clock."""
    return {
        (own.start_ns, own.start_ns + own.duration_ns): place
        for place, one in enumerate(run.linked_collectives)
        for own in one.on_ranks
        if own.rank == rank
    }
