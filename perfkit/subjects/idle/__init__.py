"""Why ranks were idle."""

from typing import Final

from perfkit.engine.subject import Subject
from perfkit.engine.trace_context import TraceContext
from perfkit.records.per_rank.idle import LaunchStats


def _launches(trace: TraceContext) -> LaunchStats | None:
    if not trace.has_device:
        return None
    from perfkit.subjects.idle.launches import tabulate_launches

    return tabulate_launches(trace.events, trace.device, trace.steps)


SUBJECT: Final = Subject(
    tables="perfkit.subjects.idle.tables:tables",
    losses="perfkit.subjects.idle.losses:LOSSES",
    rank={"idle": lambda trace: trace.idle.time, "launches": _launches},
)
