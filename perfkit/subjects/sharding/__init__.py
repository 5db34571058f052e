"""Parameters, work and collectives that are sharded over ranks."""

from typing import Final

from perfkit.engine.run_context import RunContext
from perfkit.engine.subject import Subject
from perfkit.plugins import on_use
from perfkit.records.per_rank.sharding import DividedWork


def _divided(run: RunContext) -> list[DividedWork]:
    if not any(rank.issued_collectives for rank in run.ranks):
        return []
    from perfkit.subjects.sharding.divided_work import divided_work

    return divided_work(run.ranks, run.cross_rank, run.manifest)


SUBJECT: Final = Subject(
    needs=("ranks",),
    tables="perfkit.subjects.sharding.tables:tables",
    losses="perfkit.subjects.sharding.losses:LOSSES",
    rank={
        "issued_collectives": on_use("perfkit.subjects.sharding.exposure:tabulate_issued"),
        "sharded_parameters": on_use("perfkit.subjects.sharding.parameters:summarize_sharding"),
    },
    run={"divided_work": _divided},
)
