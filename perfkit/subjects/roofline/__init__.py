"""What operators achieved, against the peaks of the device."""

from typing import Final

from perfkit.engine.subject import Subject
from perfkit.engine.trace_context import TraceContext
from perfkit.records.per_rank.operator_work import RankWork
from perfkit.subjects.roofline.achieved import roofline
from perfkit.subjects.roofline.operator_work.tabulate import tabulate_operator_work


def _operator_work(trace: TraceContext) -> RankWork | None:
    if trace.lacks_device_events:  # how long its work took is unknown
        return None
    return tabulate_operator_work(trace.events, trace.names, trace.device, trace.activity, trace.steps, trace.located)


SUBJECT: Final = Subject(
    tables="perfkit.subjects.roofline.tables:tables",
    charts="perfkit.subjects.roofline.charts:CHARTS",
    losses="perfkit.subjects.roofline.losses:LOSSES",
    rank={"operator_work": _operator_work},
    run={"roofline": lambda run: roofline(run.ranks, run.device_names, run.manifest, run.device_table)},
)
