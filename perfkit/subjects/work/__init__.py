"""Time by module, Python function, operator and class of kernels."""

from typing import Final

from perfkit.engine.subject import Subject
from perfkit.plugins import on_use

SUBJECT: Final = Subject(
    tables="perfkit.subjects.work.tables:tables",
    losses="perfkit.subjects.work.losses:LOSSES",
    rank={"work": on_use("perfkit.subjects.work.tabulate:tabulate_work")},
    in_answer=False,
)
