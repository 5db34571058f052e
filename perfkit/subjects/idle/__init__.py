"""Why ranks were idle."""

from typing import Final

from perfkit.engine.breakdown import tabulate_devices
from perfkit.engine.subject import Subject
from perfkit.engine.trace_context import TraceContext
from perfkit.records.per_rank.idle import LaunchStats
from perfkit.records.rank import DeviceTimes


def _launches(trace: TraceContext) -> LaunchStats | None:
    if not trace.has_device:
        return None
    from perfkit.subjects.idle.launches import tabulate_launches

    return tabulate_launches(trace.events, trace.device, trace.steps)


def _devices(trace: TraceContext) -> list[DeviceTimes]:
    return tabulate_devices(trace.device, trace.activity, trace.steps)


SUBJECT: Final = Subject(
    tables="perfkit.subjects.idle.tables:tables",
    losses="perfkit.subjects.idle.losses:LOSSES",
    rank={"idle": lambda trace: trace.idle.time, "launches": _launches, "devices": _devices},
)
