"""Why ranks were idle."""

from typing import Final

from perfkit.engine.subject import Subject
from perfkit.subjects.idle.launches import tabulate_launches

SUBJECT: Final = Subject(
    tables="perfkit.subjects.idle.tables:tables",
    losses="perfkit.subjects.idle.losses:LOSSES",
    rank={
        "idle": lambda trace: trace.idle.time,
        "launches": lambda trace: tabulate_launches(trace.events, trace.device, trace.steps),
    },
)
