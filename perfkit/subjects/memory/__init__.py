"""What memory is allocated for."""

from typing import Final

from perfkit.analysis.per_rank.memory.tabulate import tabulate_memory
from perfkit.analysis.subject import Subject

SUBJECT: Final = Subject(
    tables="perfkit.report.content.memory:tables",
    rank={
        "memory": lambda trace: tabulate_memory(
            trace.trace, trace.names, trace.activity, trace.steps, trace.step_marker
        )
    },
)
