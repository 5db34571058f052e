"""What memory is allocated for."""

from typing import Final

from perfkit.engine.subject import Subject
from perfkit.subjects.memory.tabulate import tabulate_memory

SUBJECT: Final = Subject(
    tables="perfkit.subjects.memory.tables:tables",
    charts="perfkit.subjects.memory.charts:CHARTS",
    rank={
        "memory": lambda trace: tabulate_memory(
            trace.trace, trace.names, trace.activity, trace.steps, trace.step_marker
        )
    },
)
