"""The tables of what communication libraries logged: NCCL and oneCCL."""

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Final

from perfkit.base.formatting import MISSING, escape_unprintable, ranges, size
from perfkit.records.per_run.comm_logs import LoggedCount, NcclLogs, OneCclLogs
from perfkit.records.run import RunReport
from perfkit.tables.labels import counted
from perfkit.tables.specification import Cell, Field, Table, joined, make_table, name, number, words

_MOST_HOSTS: Final = 8
"""Named in the table."""
_FACTS: Final = (words("", itemgetter(0)), words("", itemgetter(1)))


def tables(run: RunReport, top: int) -> Iterator[Table | None]:
    """Yield the tables of a run's logs: what the libraries use, their transports, choices and warnings."""
    if nccl := run.nccl_logs:
        yield _nccl(nccl, top)
        unknown = any(row.place == "unknown" for row in nccl.transports)
        remark = "unknown: the log of the other end is not there, or does not name its communicator"
        yield make_table("NCCL transports", nccl.transports, _TRANSPORTS, remark if unknown else "")
        yield _listed("NCCL communicators", nccl.channels, _CHANNELS, top)
        yield _listed("What NCCL chose", nccl.choices, _CHOICES, top)
        left = nccl.warning_count - sum(row.count for row in nccl.warnings[:top])
        yield make_table("NCCL warnings", nccl.warnings, _WARNINGS, f"{left:,} more" if left else "", top=top)
    if one_ccl := run.one_ccl_logs:
        yield _one_ccl(one_ccl, top)
        yield _listed("Errors of oneCCL", one_ccl.errors, _MESSAGES, top)
        yield _listed("Warnings of oneCCL", one_ccl.warnings, _MESSAGES, top)


def _listed(title: str, rows: Sequence[object], columns: Sequence[Field], top: int) -> Table | None:
    return make_table(title, rows, columns, f"{len(rows) - top:,} more" if len(rows) > top else "", top=top)


def _files(logs: NcclLogs | OneCclLogs) -> tuple[str, str]:
    files = ", ".join(logs.files[:2]) + (f" and {logs.file_count - 2:,} more" if logs.file_count > 2 else "")
    noun = "process" if logs.processes == 1 else "processes"
    return "logs", f"{files}: {logs.lines:,} lines of {logs.processes:,} {noun}"


def _skipped(logs: NcclLogs | OneCclLogs) -> tuple[str, str]:
    """Return what was not read, in words; empty texts if nothing."""
    return (
        f"{logs.garbled_lines:,} lines that two processes wrote into were skipped" if logs.garbled_lines else "",
        f"{logs.left_out:,} facts beyond the limits were left out" if logs.left_out else "",
    )


def _nccl(logs: NcclLogs, top: int) -> Table | None:
    rows = [_files(logs), *_hosts(logs), *_values(logs.versions, top)]
    rows += [(f"adapters of {network}", value) for network, value in _values(logs.networks, top)]
    rows += _values(logs.variables, top)
    if logs.timeouts:
        rows.append(("messages of time-outs", f"{logs.timeouts:,}"))
    if logs.aborts:
        rows.append(("aborts of communicators", f"{logs.aborts:,}"))
    return make_table("NCCL, by its logs", rows, _FACTS, joined(*_skipped(logs), by=". "))


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
    for variable, found in values.items():
        several = len(found) > 1
        shown = [f"{one.value} ({one.processes})" if several and one.processes else one.value for one in found[:top]]
        rows.append((variable, ", ".join(shown) + (", …" if len(found) > top else "")))
    return rows


def _channels_of(title: str, key: str) -> Field:
    return number(title, lambda row: getattr(row, key) or None, counted)


_TRANSPORTS: Final = (
    name("transport", lambda row: row.transport),
    words("where", lambda row: row.place),
    number("pairs", lambda row: row.pairs, counted),
    number("connections", lambda row: row.connections, counted),
    number("GPUDirect", lambda row: row.gpu_direct if row.transport.startswith("NET/") else None, counted),
)
_CHANNELS: Final = (
    number("ranks", lambda row: row.ranks, counted),
    number("count", lambda row: row.communicators, counted),
    _channels_of("rings", "rings"),
    _channels_of("trees", "trees"),
    _channels_of("collective channels", "collective_channels"),
    _channels_of("NVLS", "nvls_channels"),
    _channels_of("point-to-point", "p2p_channels"),
)
_CHOICES: Final = (
    name("operator", lambda row: row.operator or MISSING),
    name("algorithm", lambda row: row.algorithm),
    name("protocol", lambda row: row.protocol),
    number("count", lambda row: row.count, counted),
    number("from", lambda row: row.least_bytes, size),
    number("to", lambda row: row.most_bytes, size),
)
_WARNINGS: Final = (
    number("count", lambda row: row.count, counted),
    number("first rank", lambda row: row.rank),
    Field("warning", lambda row: Cell(escape_unprintable(row.text), escape_unprintable(row.source)), "words"),
)
_MESSAGES: Final = (number("count", lambda row: row.count, counted), words("message", lambda row: row.text))


def _one_ccl(logs: OneCclLogs, top: int) -> Table | None:
    named = (*logs.versions, *logs.providers, *logs.variables[:top])
    rows = [
        _files(logs),
        *(
            (row.name, (f"{row.value} ({row.processes})" if 0 < row.processes < logs.processes else row.value))
            for row in named
        ),
    ]
    left = len(logs.variables) - top
    remark = joined(f"{left} more variables" if left > 0 else "", *_skipped(logs), by=". ")
    return make_table("oneCCL, by its logs", rows, _FACTS, remark)
