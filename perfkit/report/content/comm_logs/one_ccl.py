"""The tables of oneCCL's logs."""

from collections.abc import Sequence

from perfkit.report.content.document import Cell, Column, Table
from perfkit.schema.per_run.comm_logs import LoggedCount, OneCclLogs, OneCclMessage
from perfkit.schema.run import RunReport
from perfkit.util.formatting import escape_unprintable


def one_ccl_tables(run: RunReport, top: int) -> list[Table]:
    """Return the tables of a run's oneCCL logs: what oneCCL uses, and its messages."""
    logs = run.one_ccl_logs
    if logs is None:
        return []
    tables = [
        _overview(logs, top),
        _messages("Errors of oneCCL", logs.errors, top),
        _messages("Warnings of oneCCL", logs.warnings, top),
    ]
    return [table for table in tables if table.rows]


def _overview(logs: OneCclLogs, top: int) -> Table:
    files = ", ".join(logs.files[:2]) + (f" and {logs.file_count - 2:,} more" if logs.file_count > 2 else "")
    noun = "process" if logs.processes == 1 else "processes"
    rows = [("logs", f"{files}: {logs.lines:,} lines of {logs.processes:,} {noun}")]
    rows += [(row.name, _value(row, logs)) for row in (*logs.versions, *logs.providers)]
    rows += [(row.name, _value(row, logs)) for row in logs.variables[:top]]
    remarks = []
    if len(logs.variables) > top:
        remarks.append(f"{len(logs.variables) - top} more variables")
    if logs.garbled_lines:
        remarks.append(f"{logs.garbled_lines:,} lines that two processes wrote into were skipped")
    if logs.left_out:
        remarks.append(f"{logs.left_out:,} facts beyond the limits were left out")
    return Table(
        "oneCCL, by its logs",
        (Column("", "words"), Column("", "words")),
        [(Cell(escape_unprintable(name)), Cell(escape_unprintable(value))) for name, value in rows],
        ". ".join(remarks),
    )


def _value(row: LoggedCount, logs: OneCclLogs) -> str:
    """Return a value, with how many processes logged it if others did not."""
    return f"{row.value} ({row.processes})" if 0 < row.processes < logs.processes else row.value


def _messages(title: str, rows: Sequence[OneCclMessage], top: int) -> Table:
    left = len(rows) - top
    return Table(
        title,
        (Column("count"), Column("message", "words")),
        [(Cell(f"{row.count:,}"), Cell(escape_unprintable(row.text))) for row in rows[:top]],
        f"{left:,} more" if left > 0 else "",
    )
