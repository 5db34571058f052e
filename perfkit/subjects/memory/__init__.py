"""What memory is allocated for."""

from typing import Final

from perfkit.engine.subject import Subject
from perfkit.plugins import on_use

SUBJECT: Final = Subject(
    tables="perfkit.subjects.memory.tables:tables",
    charts="perfkit.subjects.memory.charts:CHARTS",
    rank={"memory": on_use("perfkit.subjects.memory.tabulate:tabulate_memory")},
)
