"""Tables of a run's pipelines: the bubble of each rank, and the work of each stage."""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from msgspec.structs import fields

from perfkit.base.formatting import MISSING, duration, escape_unprintable, format_percent, left_out
from perfkit.records.per_run.pipeline import Pipeline, PipelineRank
from perfkit.records.report import Report
from perfkit.records.run import RunReport
from perfkit.tables.labels import MAX_RANKS, heavy_clause
from perfkit.tables.specification import Cell, Field, Listing, Table, data, joined, make_table, number


def tables(run: RunReport, top: int) -> Iterator[Table | None]:  # noqa: ARG001  not ranked
    """Yield the tables of the pipeline with the largest bubble."""
    if run.pipelines:
        yield _bubbles(run.pipelines[0], len(run.pipelines) - 1)
        yield _stages(run.pipelines[0])


def described(pipeline: Pipeline) -> str:
    """Return schedule, stages and micro-batches in words."""
    schedule = escape_unprintable(pipeline.schedule) if pipeline.schedule else "unknown schedule"
    ranks = f" on {len(pipeline.ranks)} ranks" if pipeline.stages != len(pipeline.ranks) else ""
    return f"{schedule}, {pipeline.stages} stages{ranks}, {pipeline.micro_batches} micro-batches"


class _Rank(NamedTuple):
    """A rank of a pipeline."""

    pipeline: Pipeline
    of: PipelineRank
    run: str = ""
    number: int = 0


def _part(title: str, part_ns: Callable[[PipelineRank], int | None]) -> Field:
    """Return a column of a part of the step, with its share."""

    def cell(row: _Rank) -> Cell:
        ns, wall_ns = part_ns(row.of), row.of.wall_ns
        if ns is None:
            return Cell(MISSING)
        return Cell(duration(ns / row.pipeline.steps), format_percent(ns / wall_ns if wall_ns else None))

    return number(title, cell)


def _time(title: str, key: str) -> Field:
    """Return the column of one of a rank's times, of which files have the sum over the steps."""
    kind = next(field.type for field in fields(PipelineRank) if field.name == key)
    shown = _part(title, lambda rank: getattr(rank, key)) if title else None
    return data(key, kind, lambda row: getattr(row.of, key), shown)


_RANKS: Final = (
    data("run", str, lambda row: row.run),
    data("pipeline", int, lambda row: row.number),
    data("schedule", str | None, lambda row: row.pipeline.schedule),
    data("stages", int, lambda row: row.pipeline.stages),
    data("micro_batches", int, lambda row: row.pipeline.micro_batches),
    data("steps", int, lambda row: row.pipeline.steps),
    number("stage", lambda row: ", ".join(map(str, row.of.stages[:4])) + (", …" if len(row.of.stages) > 4 else "")),
    data("rank", int | None, lambda row: row.of.rank, number("rank", lambda row: row.of.rank)),
    data("own_stages", str, lambda row: " ".join(map(str, row.of.stages))),
    _time("", "wall_ns"),
    _time("compute", "compute_ns"),
    _time("bubble", "bubble_ns"),
    _time("ideal", "ideal_ns"),
    _time("imbalance", "imbalance_ns"),
    _time("comm", "communication_ns"),
    _time("", "other_communication_ns"),
    _time("", "other_ns"),
    _part("rest", lambda rank: rank.other_communication_ns + rank.other_ns),
)


def _bubbles(pipeline: Pipeline, others: int) -> Table | None:
    left = len(pipeline.ranks) - MAX_RANKS
    remark = joined(
        "bubble (waiting for other stages) = ideal of the schedule with equal stages + imbalance of stages and "
        "micro-batches + comm (transfers and host); an imbalance below zero: others wait for this rank",
        f"not split: {pipeline.reason}" if pipeline.reason else "",
        f"{others} more pipelines have smaller bubbles" if others > 1 else "",
        "one more pipeline has a smaller bubble" if others == 1 else "",
        left_out(left, "rank") if left > 0 else "",
        by=". ",
    )
    rows = [_Rank(pipeline, rank) for rank in pipeline.ranks]
    steps = "1 step" if pipeline.steps == 1 else f"{pipeline.steps} steps"
    title = f"Pipeline: {described(pipeline)} (mean per step and its share, over {steps})"
    return make_table(title, rows, _RANKS, remark, top=MAX_RANKS)


def _stages(pipeline: Pipeline) -> Table | None:
    """Return the work of each stage; None if unknown."""
    heavy = pipeline.heavy
    marked = {one.stage for one in heavy.all} if heavy else set[int]()
    left = len(pipeline.stage_times) - MAX_RANKS
    columns = (
        number("stage", lambda row: row.stage),
        number("rank", lambda row: row.rank),
        number("layers", lambda row: row.layers),
        number("forward", lambda row: row.forward_ns, duration),
        number("backward", lambda row: row.backward_ns, duration),
        number(
            "both",
            lambda row: row.forward_ns + row.backward_ns,
            duration,
            tone=lambda row: "warning" if row.stage in marked else "plain",
        ),
    )
    remark = joined(
        f"{heavy_clause(heavy)} as the others in the median micro-batch" if heavy else "",
        left_out(left, "stage") if left > 0 else "",
        by=". ",
    )
    title = "Stages of the pipeline (mean per micro-batch)"
    return make_table(title, pipeline.stage_times, columns, remark, top=MAX_RANKS)


def _all_ranks(report: Report) -> Iterator[_Rank]:
    for run in report.runs:
        for index, pipeline in enumerate(run.pipelines):
            yield from (_Rank(pipeline, rank, run.run, index) for rank in pipeline.ranks)


LISTINGS: Final = {"pipelines": Listing(_all_ranks, _RANKS)}
