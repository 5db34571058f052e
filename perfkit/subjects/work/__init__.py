"""Time by module, Python function, operator and class of kernels."""

from typing import Final

from perfkit.engine.subject import Subject
from perfkit.subjects.work.tabulate import tabulate_work

SUBJECT: Final = Subject(
    tables="perfkit.subjects.work.tables:tables",
    losses="perfkit.subjects.work.losses:LOSSES",
    rank={"work": lambda trace: tabulate_work(trace.located, trace.names, trace.device, trace.steps)},
    in_answer=False,
)
