"""Parameters, work and collectives that are sharded over ranks."""

from typing import Final

from perfkit.engine.run_context import RunContext
from perfkit.engine.subject import Subject
from perfkit.engine.trace_context import TraceContext
from perfkit.records.per_rank.sharding import DividedWork, IssuedCollectives, ShardedParameters


def _issued(trace: TraceContext) -> list[IssuedCollectives]:
    if not len(trace.collectives.start):
        return []
    from perfkit.subjects.sharding.issued import tabulate_issued

    return tabulate_issued(trace.collectives, trace.passes, trace.layers)


def _parameters(trace: TraceContext) -> ShardedParameters | None:
    if not len(trace.collectives.start):
        return None
    from perfkit.subjects.sharding.parameters import summarize_sharding

    return summarize_sharding(trace.events, trace.device, trace.activity, trace.collectives, trace.passes, trace.layers)


def _divided(run: RunContext) -> list[DividedWork]:
    if not any(rank.issued_collectives for rank in run.ranks):
        return []
    from perfkit.subjects.sharding.divided_work import divided_work

    return divided_work(run.ranks, run.cross_rank, run.manifest)


SUBJECT: Final = Subject(
    needs=("ranks",),
    tables="perfkit.subjects.sharding.tables:tables",
    losses="perfkit.subjects.sharding.losses:LOSSES",
    rank={"issued_collectives": _issued, "sharded_parameters": _parameters},
    run={"divided_work": _divided},
)
