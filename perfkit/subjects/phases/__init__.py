"""Phases that the program annotates."""

from typing import Final

from perfkit.analysis.per_rank.annotations import tabulate_phases
from perfkit.analysis.subject import Subject

SUBJECT: Final = Subject(
    tables="perfkit.report.content.phases:tables",
    rank={
        "phases": lambda trace: tabulate_phases(
            trace.events, trace.names, trace.activity, trace.steps, trace.step_marker
        )
    },
)
