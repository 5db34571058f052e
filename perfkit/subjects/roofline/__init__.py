"""What operators achieved, against the peaks of the device."""

from typing import Final

from perfkit.engine.run_context import RunContext
from perfkit.engine.subject import Subject
from perfkit.plugins import on_use
from perfkit.records.roofline import Roofline


def _roofline(run: RunContext) -> Roofline | None:
    if not any(rank.operator_work for rank in run.ranks):
        return None
    from perfkit.subjects.roofline.achieved import roofline

    return roofline(run.ranks, run.device_names, run.manifest, run.device_table())


SUBJECT: Final = Subject(
    tables="perfkit.subjects.roofline.tables:tables",
    charts="perfkit.subjects.roofline.charts:CHARTS",
    losses="perfkit.subjects.roofline.losses:LOSSES",
    rank={"operator_work": on_use("perfkit.subjects.roofline.operator_work.tabulate:tabulate_operator_work")},
    run={"roofline": _roofline},
)
