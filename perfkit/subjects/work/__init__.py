"""Time by module, Python function, operator and class of kernels."""

from typing import Final

from perfkit.engine.subject import Subject
from perfkit.engine.trace_context import TraceContext
from perfkit.records.per_rank.work import Work


def _work(trace: TraceContext) -> Work:
    from perfkit.subjects.work.tabulate import tabulate_work

    return tabulate_work(trace.located, trace.names, trace.device, trace.steps)


SUBJECT: Final = Subject(
    tables="perfkit.subjects.work.tables:tables",
    losses="perfkit.subjects.work.losses:LOSSES",
    rank={"work": _work},
    in_answer=False,
)
