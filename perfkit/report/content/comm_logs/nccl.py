"""The tables of NCCL's logs."""

from collections.abc import Sequence
from typing import Final

from perfkit.report.content.document import Cell, Column, Table
from perfkit.schema.per_run.comm_logs import LoggedCount, NcclLogs
from perfkit.schema.run import RunReport
from perfkit.util.formatting import MISSING, escape_unprintable, ranges, size

_MOST_HOSTS: Final = 8
"""Named in the table."""


def nccl_tables(run: RunReport, top: int) -> list[Table]:
    """Return the tables of a run's NCCL logs: what NCCL uses, its transports, choices and warnings."""
    logs = run.nccl_logs
    if logs is None:
        return []
    tables = [_overview(logs, top), _transports(logs), _channels(logs, top), _choices(logs, top), _warnings(logs, top)]
    return [table for table in tables if table.rows]


def _overview(logs: NcclLogs, top: int) -> Table:
    files = ", ".join(logs.files[:2]) + (f" and {logs.file_count - 2:,} more" if logs.file_count > 2 else "")
    noun = "process" if logs.processes == 1 else "processes"
    rows = [("logs", f"{files}: {logs.lines:,} lines of {logs.processes:,} {noun}"), *_hosts(logs)]
    rows += _values(logs.versions, top)
    rows += [(f"adapters of {name}", value) for name, value in _values(logs.networks, top)]
    rows += _values(logs.variables, top)
    if logs.timeouts:
        rows.append(("messages of time-outs", f"{logs.timeouts:,}"))
    if logs.aborts:
        rows.append(("aborts of communicators", f"{logs.aborts:,}"))
    return Table(
        "NCCL, by its logs",
        (Column("", "words"), Column("", "words")),
        [(Cell(escape_unprintable(name)), Cell(escape_unprintable(value))) for name, value in rows],
        ". ".join(_remarks(logs)),
    )


def _hosts(logs: NcclLogs) -> list[tuple[str, str]]:
    if not logs.hosts:
        return []
    named = "; ".join(f"{one.host}: {ranges(one.ranks)}" for one in logs.hosts[:_MOST_HOSTS])
    more = f"; {len(logs.hosts) - _MOST_HOSTS} more" if len(logs.hosts) > _MOST_HOSTS else ""
    known = sum(len(one.ranks) for one in logs.hosts)
    label = f"{known} of {logs.ranks} ranks" if known != logs.ranks else f"{known} ranks"
    return [(f"hosts of {label}", f"{named}{more}")]


def _values(counts: Sequence[LoggedCount], top: int) -> list[tuple[str, str]]:
    """Return names and values; where processes differ, with how many have each value."""
    values: dict[str, list[LoggedCount]] = {}
    for count in counts:
        values.setdefault(count.name, []).append(count)
    rows = []
    for name, found in values.items():
        several = len(found) > 1
        shown = [f"{one.value} ({one.processes})" if several and one.processes else one.value for one in found[:top]]
        rows.append((name, ", ".join(shown) + (", …" if len(found) > top else "")))
    return rows


def _remarks(logs: NcclLogs) -> list[str]:
    found = []
    if logs.garbled_lines:
        found.append(f"{logs.garbled_lines:,} lines that two processes wrote into were skipped")
    if logs.left_out:
        found.append(f"{logs.left_out:,} facts beyond the limits were left out")
    return found


def _transports(logs: NcclLogs) -> Table:
    unknown = any(row.place == "unknown" for row in logs.transports)
    remark = "unknown: the log of the other end is not there, or does not name its communicator" if unknown else ""
    return Table(
        "NCCL transports",
        (Column("transport", "name"), Column("where", "words"), *map(Column, ("pairs", "connections", "GPUDirect"))),
        [
            (
                Cell(escape_unprintable(row.transport)),
                Cell(row.place),
                Cell(f"{row.pairs:,}"),
                Cell(f"{row.connections:,}"),
                Cell(f"{row.gpu_direct:,}" if row.transport.startswith("NET/") else MISSING),
            )
            for row in logs.transports
        ],
        remark,
    )


def _channels(logs: NcclLogs, top: int) -> Table:
    return Table(
        "NCCL communicators",
        tuple(map(Column, ("ranks", "count", "rings", "trees", "collective channels", "NVLS", "point-to-point"))),
        [
            (
                Cell(f"{row.ranks:,}"),
                Cell(f"{row.communicators:,}"),
                *(
                    Cell(f"{number:,}" if number else MISSING)
                    for number in (row.rings, row.trees, row.collective_channels, row.nvls_channels, row.p2p_channels)
                ),
            )
            for row in logs.channels[:top]
        ],
        f"{len(logs.channels) - top} more" if len(logs.channels) > top else "",
    )


def _choices(logs: NcclLogs, top: int) -> Table:
    return Table(
        "What NCCL chose",
        (
            Column("operator", "name"),
            Column("algorithm", "name"),
            Column("protocol", "name"),
            *map(Column, ("count", "from", "to")),
        ),
        [
            (
                Cell(escape_unprintable(row.operator) if row.operator else MISSING),
                Cell(escape_unprintable(row.algorithm)),
                Cell(escape_unprintable(row.protocol)),
                Cell(f"{row.count:,}"),
                Cell(size(row.least_bytes)),
                Cell(size(row.most_bytes)),
            )
            for row in logs.choices[:top]
        ],
        f"{len(logs.choices) - top} more" if len(logs.choices) > top else "",
    )


def _warnings(logs: NcclLogs, top: int) -> Table:
    shown = logs.warnings[:top]
    left = logs.warning_count - sum(row.count for row in shown)
    return Table(
        "NCCL warnings",
        (Column("count"), Column("first rank"), Column("warning", "words")),
        [
            (
                Cell(f"{row.count:,}"),
                Cell(MISSING if row.rank is None else str(row.rank)),
                Cell(escape_unprintable(row.text), escape_unprintable(row.source)),
            )
            for row in shown
        ],
        f"{left:,} more" if left else "",
    )
