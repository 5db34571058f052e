"""Collectives: waits and transfers by kind, size and dimension of parallelism."""

from typing import Final

from perfkit.engine.subject import Subject

SUBJECT: Final = Subject(
    needs=("ranks",),
    tables="perfkit.subjects.collectives.tables:tables",
    charts="perfkit.subjects.collectives.charts:CHARTS",
    losses="perfkit.subjects.collectives.losses:LOSSES",
    run={
        "cross_rank": lambda run: run.cross_rank,
        "dimensions": lambda run: run.dimensions,
        "efficiency": lambda run: run.efficiency,
        "linked_collectives": lambda run: run.linked_collectives,
    },
)
