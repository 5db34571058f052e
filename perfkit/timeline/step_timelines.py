"""Read the timelines of a few steps of a run, for its page: the longest step and a typical one, on two ranks."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Final

from msgspec.structs import replace

from perfkit.errors import TraceError
from perfkit.report.charts.rank_steps import own_ns
from perfkit.schema.aggregate import traced_step_ns
from perfkit.schema.kernel_rules import KernelRule
from perfkit.schema.per_run.step_timeline import StepTimeline
from perfkit.schema.rank import RankReport, StepBreakdown
from perfkit.schema.report import Report
from perfkit.schema.run import RunReport
from perfkit.timeline.step_rows import find_read_steps, step_timeline
from perfkit.trace.reader import read_trace

MOST_RUNS: Final = 4
"""Of more runs than this there are no timelines: each has a hundred kilobytes or more."""


def with_step_timelines(
    report: Report,
    *,
    step_marker: str | None = None,
    kernel_rules: Sequence[KernelRule] = (),
    max_bytes: int | None = None,
) -> Report:
    """Return a report with the timelines of some steps of each run, read from its traces.

    Ranks whose traces cannot be read again, such as pipes, have none.

    Args:
        report: the report, of at most `MOST_RUNS` runs; others are returned as they are.
        step_marker: as in `analyze`, as are the next two.
        kernel_rules: rules for the names of device kernels.
        max_bytes: limit for the decompressed text of a trace.
    """
    if len(report.runs) > MOST_RUNS:
        return report
    runs = [
        replace(
            run,
            step_timelines=[
                drawn
                for rank, steps in chosen_steps(run)
                for drawn in _timelines(run, rank, steps, step_marker, kernel_rules, max_bytes)
            ],
        )
        for run in report.runs
    ]
    return replace(report, runs=runs)


def chosen_steps(run: RunReport) -> Iterator[tuple[RankReport, list[StepBreakdown]]]:
    """Yield the straggler, or the rank that takes longest without communication, and a typical rank, with their steps.

    The steps are the longest of the run and one of median length, each as long as on its slowest rank.
    """
    wall_ns = traced_step_ns(run.ranks)
    if not wall_ns:
        return
    middle = median(wall_ns.values())
    wanted = {max(wall_ns, key=wall_ns.__getitem__), min(wall_ns, key=lambda step: abs(wall_ns[step] - middle))}
    for rank in _chosen_ranks(run):
        yield rank, [step for step in rank.steps if step.step in wanted]


def _chosen_ranks(run: RunReport) -> list[RankReport]:
    ranks = [rank for rank in run.ranks if rank.steps]
    late = [one.rank for one in run.cross_rank.stragglers] if run.cross_rank else []
    slowest = next((rank for rank in ranks if late and rank.rank == late[0]), None) or max(ranks, key=own_ns)
    others = [rank for rank in ranks if rank is not slowest]
    if not others:
        return [slowest]
    middle = median(map(own_ns, others))
    return [slowest, min(others, key=lambda rank: abs(own_ns(rank) - middle))]


def _timelines(
    run: RunReport,
    rank: RankReport,
    wanted: Sequence[StepBreakdown],
    step_marker: str | None,
    kernel_rules: Sequence[KernelRule],
    max_bytes: int | None,
) -> Iterator[StepTimeline]:
    """Yield the timelines of some steps, from whichever of the rank's traces has them."""
    left = {(step.step, step.start_ns) for step in wanted}
    for name in rank.traces:
        if not left:
            return
        path = Path(run.path)
        path = path if path.name == name else path / name
        if not path.is_file():
            continue
        try:
            trace = read_trace(path, max_bytes=max_bytes)
        except TraceError:  # gone or changed since the analysis
            continue
        read = find_read_steps(trace, step_marker, kernel_rules)
        del trace
        if read is None:
            continue
        for place, step in enumerate(zip(read.steps.number, read.steps.bounds[:-1].tolist(), strict=True)):
            if step in left:
                left.remove(step)
                yield step_timeline(read, place, rank.rank, name)
