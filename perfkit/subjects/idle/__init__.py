"""Why ranks were idle."""

from typing import Final

from perfkit.engine.breakdown import tabulate_devices
from perfkit.engine.subject import Subject
from perfkit.plugins import on_use

SUBJECT: Final = Subject(
    tables="perfkit.subjects.idle.tables:tables",
    losses="perfkit.subjects.idle.losses:LOSSES",
    rank={
        "idle": lambda trace: trace.idle.time,
        "launches": on_use("perfkit.subjects.idle.launches:tabulate_launches"),
        "devices": lambda trace: tabulate_devices(trace.device, trace.activity, trace.steps),
    },
)
