"""Phases that the program annotates."""

from typing import Final

from perfkit.engine.subject import Subject
from perfkit.engine.trace_context import TraceContext
from perfkit.records.rank import PhaseStat


def _phases(trace: TraceContext) -> list[PhaseStat]:
    from perfkit.engine.steps.annotations import tabulate_phases

    return tabulate_phases(trace.events, trace.names, trace.activity, trace.steps, trace.step_marker)


SUBJECT: Final = Subject(tables="perfkit.subjects.phases.tables:tables", rank={"phases": _phases})
