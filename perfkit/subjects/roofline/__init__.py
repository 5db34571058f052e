"""What operators achieved, against the peaks of the device."""

from typing import Final

from perfkit.engine.run_context import RunContext
from perfkit.engine.subject import Subject
from perfkit.engine.trace_context import TraceContext
from perfkit.records.per_rank.operator_work import RankWork
from perfkit.records.roofline import Roofline


def _operator_work(trace: TraceContext) -> RankWork | None:
    """Return the work of the operators; None if no shapes were recorded, or how long their work took is unknown."""
    if not len(trace.events.operator_args.inputs_row) or trace.lacks_device_events:
        return None
    from perfkit.subjects.roofline.operator_work.tabulate import tabulate_operator_work

    return tabulate_operator_work(trace.events, trace.names, trace.device, trace.activity, trace.steps, trace.located)


def _roofline(run: RunContext) -> Roofline | None:
    if not any(rank.operator_work for rank in run.ranks):
        return None
    from perfkit.subjects.roofline.achieved import roofline

    return roofline(run.ranks, run.device_names, run.manifest, run.device_table())


SUBJECT: Final = Subject(
    tables="perfkit.subjects.roofline.tables:tables",
    charts="perfkit.subjects.roofline.charts:CHARTS",
    losses="perfkit.subjects.roofline.losses:LOSSES",
    rank={"operator_work": _operator_work},
    run={"roofline": _roofline},
)
