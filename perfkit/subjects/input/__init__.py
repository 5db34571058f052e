"""Data loading: how long ranks wait for batches, and why."""

from typing import Final

from perfkit.engine.subject import Subject
from perfkit.engine.trace_context import TraceContext
from perfkit.records.per_rank.loading import RankLoading


def _loading(trace: TraceContext) -> RankLoading | None:
    own = trace.header.perfkit
    if own is None or not (own.fetches or own.samples):
        return None
    from perfkit.subjects.input.waits import explain_loading

    return explain_loading(trace, own)


SUBJECT: Final = Subject(
    tables="perfkit.subjects.input.tables:tables",
    losses="perfkit.subjects.input.losses:LOSSES",
    rank={"loading": _loading},
    run={"data_loading": lambda run: run.data_loading},
)
