"""What operators achieved, against the peaks of the device."""

from typing import Final

from perfkit.analysis.per_rank.context import TraceContext
from perfkit.analysis.per_rank.operator_work.tabulate import tabulate_operator_work
from perfkit.analysis.per_run.roofline import roofline
from perfkit.analysis.subject import Subject
from perfkit.schema.per_rank.operator_work import RankWork


def _operator_work(trace: TraceContext) -> RankWork | None:
    if trace.lacks_device_events:  # how long its work took is unknown
        return None
    return tabulate_operator_work(trace.events, trace.names, trace.device, trace.activity, trace.steps, trace.located)


SUBJECT: Final = Subject(
    tables="perfkit.report.content.roofline:tables",
    rank={"operator_work": _operator_work},
    run={"roofline": lambda run: roofline(run.ranks, run.device_names, run.manifest, run.device_table)},
)
