"""Time by module, Python function, operator and class of kernels."""

from typing import Final

from perfkit.analysis.per_rank.attribution.tabulate import tabulate_work
from perfkit.analysis.subject import Subject

SUBJECT: Final = Subject(
    tables="perfkit.report.content.work:tables",
    rank={"work": lambda trace: tabulate_work(trace.located, trace.names, trace.device, trace.steps)},
    in_answer=False,
)
