"""The tables of a run that are about one subject."""

from perfkit.report import subject_tables
from perfkit.tables.specification import Table
from perfkit.records.run import RunReport


def tables_of(run: RunReport, subject: str, top: int = 10) -> list[Table]:
    return subject_tables(run, top, [subject])


def table_of(run: RunReport, subject: str, title: str, top: int = 10) -> Table | None:
    """Return the table whose title begins with `title`; None without it."""
    return next((table for table in tables_of(run, subject, top) if table.title.startswith(title)), None)
