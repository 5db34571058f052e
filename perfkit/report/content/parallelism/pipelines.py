"""Tables of a run's pipelines: the bubble of each rank, and the work of each stage."""

from collections.abc import Iterator
from typing import Final

from perfkit.report.content.document import Cell, Column, Table
from perfkit.schema.per_run.pipeline import Pipeline, PipelineRank, heavy_clause
from perfkit.schema.run import RunReport
from perfkit.util.formatting import MISSING, duration, escape_unprintable, format_percent, left_out

_MOST_ROWS: Final = 16
"""Of a pipeline with more ranks or stages the first are shown."""


def pipelines(run: RunReport) -> Iterator[Table]:
    """Yield the tables of the pipeline with the largest bubble."""
    if run.pipelines:
        pipeline, others = run.pipelines[0], len(run.pipelines) - 1
        yield _bubbles(pipeline, others)
        if pipeline.stage_times:
            yield _stages(pipeline)


def described(pipeline: Pipeline) -> str:
    """Return schedule, stages and micro-batches in words."""
    schedule = escape_unprintable(pipeline.schedule) if pipeline.schedule else "unknown schedule"
    ranks = f" on {len(pipeline.ranks)} ranks" if pipeline.stages != len(pipeline.ranks) else ""
    return f"{schedule}, {pipeline.stages} stages{ranks}, {pipeline.micro_batches} micro-batches"


def _bubbles(pipeline: Pipeline, others: int) -> Table:
    left = len(pipeline.ranks) - _MOST_ROWS
    remarks = [
        "bubble (waiting for other stages) = ideal of the schedule with equal stages + imbalance of stages and "
        "micro-batches + comm (transfers and host); an imbalance below zero: others wait for this rank",
        f"not split: {pipeline.reason}" if pipeline.reason else "",
        f"{others} more pipelines have smaller bubbles" if others > 1 else "",
        "one more pipeline has a smaller bubble" if others == 1 else "",
        left_out(left, "rank") if left > 0 else "",
    ]
    return Table(
        f"Pipeline: {described(pipeline)} (mean per step and its share, over {_steps(pipeline.steps)})",
        (
            Column("stage"),
            Column("rank"),
            Column("compute"),
            Column("bubble"),
            Column("ideal"),
            Column("imbalance"),
            Column("comm"),
            Column("rest"),
        ),
        [_rank_row(row, pipeline.steps) for row in pipeline.ranks[:_MOST_ROWS]],
        ". ".join(filter(None, remarks)),
    )


def _steps(count: int) -> str:
    return "1 step" if count == 1 else f"{count} steps"


def _rank_row(row: PipelineRank, steps: int) -> tuple[Cell, ...]:
    rest_ns = row.other_communication_ns + row.other_ns
    parts = (row.compute_ns, row.bubble_ns, row.ideal_ns, row.imbalance_ns, row.communication_ns, rest_ns)
    shown = ", ".join(str(stage) for stage in row.stages[:4]) + (", …" if len(row.stages) > 4 else "")
    return Cell(shown), Cell(str(row.rank)), *(_part(ns, row.wall_ns, steps) for ns in parts)


def _part(ns: int | None, wall_ns: int, steps: int) -> Cell:
    return (
        Cell(MISSING) if ns is None else Cell(duration(ns / steps), format_percent(ns / wall_ns if wall_ns else None))
    )


def _stages(pipeline: Pipeline) -> Table:
    heavy = pipeline.heavy
    marked = {one.stage for one in heavy.all} if heavy else set[int]()
    left = len(pipeline.stage_times) - _MOST_ROWS
    remarks = [
        f"{heavy_clause(heavy)} than the median of the others" if heavy else "",
        left_out(left, "stage") if left > 0 else "",
    ]
    return Table(
        "Stages of the pipeline (mean per micro-batch)",
        (Column("stage"), Column("rank"), Column("layers"), Column("forward"), Column("backward"), Column("both")),
        [
            (
                Cell(str(row.stage)),
                Cell(str(row.rank)),
                Cell(MISSING if row.layers is None else str(row.layers)),
                Cell(duration(row.forward_ns)),
                Cell(duration(row.backward_ns)),
                Cell(
                    duration(row.forward_ns + row.backward_ns),
                    tone="warning" if row.stage in marked else "plain",
                ),
            )
            for row in pipeline.stage_times[:_MOST_ROWS]
        ],
        ". ".join(filter(None, remarks)),
    )
