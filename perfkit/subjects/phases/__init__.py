"""Phases that the program annotates."""

from typing import Final

from perfkit.engine.steps.annotations import tabulate_phases
from perfkit.engine.subject import Subject

SUBJECT: Final = Subject(
    tables="perfkit.subjects.phases.tables:tables",
    rank={
        "phases": lambda trace: tabulate_phases(
            trace.events, trace.names, trace.activity, trace.steps, trace.step_marker
        )
    },
)
