"""Ranks compared with each other: who waits, who is late, and how efficient the run is."""

from typing import Final

from perfkit.engine.subject import Subject

SUBJECT: Final = Subject(
    tables="perfkit.subjects.ranks.tables:tables",
    charts="perfkit.subjects.ranks.charts:CHARTS",
    losses="perfkit.subjects.ranks.losses:LOSSES",
    needs=("critical-path", "input", "phases"),
    run={
        "cross_rank": lambda run: run.cross_rank,
        "efficiency": lambda run: run.efficiency,
    },
)
