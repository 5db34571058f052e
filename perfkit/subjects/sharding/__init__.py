"""Parameters, work and collectives that are sharded over ranks."""

from typing import Final

from perfkit.engine.subject import Subject
from perfkit.subjects.sharding.divided_work import divided_work
from perfkit.subjects.sharding.issued import tabulate_issued
from perfkit.subjects.sharding.parameters import summarize_sharding

SUBJECT: Final = Subject(
    tables="perfkit.subjects.sharding.tables:tables",
    losses="perfkit.subjects.sharding.losses:LOSSES",
    rank={
        "issued_collectives": lambda trace: tabulate_issued(trace.collectives, trace.passes, trace.layers),
        "sharded_parameters": lambda trace: summarize_sharding(
            trace.events, trace.device, trace.activity, trace.collectives, trace.passes, trace.layers
        ),
    },
    run={"divided_work": lambda run: divided_work(run.ranks, run.cross_rank, run.manifest)},
)
