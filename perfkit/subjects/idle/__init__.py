"""Why ranks were idle."""

from typing import Final

from perfkit.analysis.per_rank.launches import tabulate_launches
from perfkit.analysis.subject import Subject

SUBJECT: Final = Subject(
    tables="perfkit.report.content.idle:tables",
    rank={
        "idle": lambda trace: trace.idle.time,
        "launches": lambda trace: tabulate_launches(trace.events, trace.device, trace.steps),
    },
)
