"""Parameters, work and collectives that are sharded over ranks."""

from typing import Final

from perfkit.analysis.per_rank.sharding.issued import tabulate_issued
from perfkit.analysis.per_rank.sharding.parameters import summarize_sharding
from perfkit.analysis.per_run.divided_work import divided_work
from perfkit.analysis.subject import Subject

SUBJECT: Final = Subject(
    tables="perfkit.report.content.sharding:tables",
    rank={
        "issued_collectives": lambda trace: tabulate_issued(trace.collectives, trace.passes, trace.layers),
        "sharded_parameters": lambda trace: summarize_sharding(
            trace.events, trace.device, trace.activity, trace.collectives, trace.passes, trace.layers
        ),
    },
    run={"divided_work": lambda run: divided_work(run.ranks, run.cross_rank, run.manifest)},
)
