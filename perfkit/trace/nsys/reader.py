"""Read one process of a recording of Nsight Systems into a `RankTrace`.

Versions of nsys differ in their tables and columns: those that are there decide, and one that is needed and missing is
named. https://docs.nvidia.com/nsight-systems/UserGuide/index.html, "SQLite Schema Reference", describes them.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from perfkit.base.formatting import plural, shell_word
from perfkit.errors import NotATraceError, TraceError
from perfkit.trace.events import (
    DeviceArgsColumns,
    EventKind,
    Events,
    OperatorArgsColumns,
    RankTrace,
    TimelineDetail,
)
from perfkit.trace.intervals import Ints
from perfkit.trace.nsys import device_tables, host_tables, ranges
from perfkit.trace.nsys.columns import Columns, name_events, text_numbers
from perfkit.trace.nsys.database import Database, open_database
from perfkit.trace.nsys.header import base_ns, read_header, thread_names
from perfkit.trace.nsys.names import Texts, find_texts
from perfkit.trace.nsys.paths import REPORT_SUFFIX, split_path
from perfkit.trace.nsys.processes import find_processes
from perfkit.trace.nsys.ranges import Ranges

_MOST_LISTED: Final = 4
_NEEDED: Final = {
    device_tables.KERNELS: device_tables.NEEDED,
    device_tables.GRAPHS: device_tables.NEEDED,
    device_tables.COPIES: device_tables.NEEDED,
    device_tables.FILLS: device_tables.NEEDED,
    host_tables.CALLS: host_tables.NEEDED,
    ranges.RANGES: ranges.NEEDED,
}
"""Columns of the tables that events come from, of which a file has those that something was recorded for."""


def read_nsys(
    path: Path,
    *,
    max_bytes: int | None = None,
    progress: Callable[[int], None] | None = None,
    detailed: bool = False,
) -> RankTrace:
    """Read a file, or one process of it; the arguments are those of `read_trace`.

    Raises:
        NotATraceError: the SQLite file is not of Nsight Systems.
        TraceError: the file is damaged, lacks a table or column, has several processes, or is larger than allowed.
    """
    file, pid = split_path(path)
    if file.suffix == REPORT_SUFFIX:
        command = f"nsys export --type=sqlite {shell_word(file)}"
        raise TraceError(f"{path}: is a report of Nsight Systems: run `{command}`, and give the .sqlite file")
    size = file.stat().st_size
    if max_bytes is not None and size > max_bytes:
        raise TraceError(f"{path}: has {size:,} bytes, more than the limit of {max_bytes:,}")
    with open_database(file) as database:
        _check(database)
        processes = find_processes(database)
        trace = _read(database, _chosen(path, pid, processes), processes, detailed=detailed)
    if progress:
        progress(size // max(1, len(processes)))
    return trace


def _chosen(path: Path, pid: int | None, processes: list[int]) -> int:
    if pid is None and len(processes) > 1:
        listed = ", ".join(f"{path.name}@{one}" for one in processes[:_MOST_LISTED])
        raise TraceError(f"{path}: has {len(processes)} processes: give one of them ({listed} …), or the folder")
    if not processes or (pid is not None and pid not in processes):
        raise TraceError(f"{path}: has no event of {'a process' if pid is None else f'process {pid}'}")
    return processes[0] if pid is None else pid


def _check(database: Database) -> None:
    tables, path = database.tables, database.path
    if not tables.keys() & (_NEEDED.keys() | {"META_DATA_EXPORT", "TARGET_INFO_GPU"}):
        raise NotATraceError(f"{path}: is an SQLite database, but not one that `nsys export` wrote")
    missing = "StringIds" if not database.has("StringIds", "id", "value") else None
    if not tables.keys() & _NEEDED.keys():
        missing = f"{device_tables.KERNELS}: record with `nsys profile --trace=cuda,nvtx`"
    if missing:
        raise TraceError(f"{path}: {_version(database)} has no table {missing}")
    needed = [(table, column) for table, columns in _NEEDED.items() if table in tables for column in columns]
    absent = next(((table, column) for table, column in needed if not database.has(table, column)), None)
    names = device_tables.KERNEL_NAMES
    if device_tables.KERNELS in tables and not set(names) & set(tables[device_tables.KERNELS]):
        absent = absent or (device_tables.KERNELS, " or ".join(names))
    if absent:
        raise TraceError(f"{path}: {_version(database)} has a table {absent[0]} without the column {absent[1]}")


def _version(database: Database) -> str:
    rows = {str(name): str(value) for name, value in database.texts("META_DATA_EXPORT", "name", "value")}
    version = next((rows[key] for key in ("EXPORT_PRODUCT_VERSION", "EXPORT_SCHEMA_VERSION") if key in rows), None)
    return f"this export of nsys {version}" if version else "this export of an unknown nsys"


def _read(database: Database, pid: int, processes: list[int], *, detailed: bool) -> RankTrace:
    columns = Columns(base_ns(database))
    device_args = device_tables.read_kernels(database, columns, pid)
    graphs = device_tables.read_graphs(database, columns, pid)
    device_tables.read_copies(database, columns, pid)
    host_tables.read_calls(database, columns, pid)
    annotated = ranges.read_ranges(database, columns, pid)
    if detailed:
        device_tables.read_waits(database, columns, pid)
        host_tables.read_system_calls(database, columns, pid)
    events, category = _events(database, columns, device_args, annotated)
    detail = None
    if detailed:
        named = thread_names(database)
        detail = TimelineDetail(
            category=category.astype(np.int32), categories=tuple(columns.categories), thread_names=named
        )
    return RankTrace(
        header=read_header(database, pid, processes, annotated.calls),
        events=events,
        counts=dict(columns.counts),
        repaired=dict(+columns.repaired),
        damage=_damage(graphs),
        detail=detail,
    )


def _events(
    database: Database, columns: Columns, device_args: DeviceArgsColumns, annotated: Ranges
) -> tuple[Events, NDArray[Any]]:
    """Return the events, and the category of each."""
    built = columns.build()
    texts = find_texts(database, columns.names, [text_numbers(built["name"])])
    name, category = name_events(built["name"], texts), built.pop("category")
    is_operator = annotated.row[columns.names.is_operator[name[annotated.row]]]
    built["kind"][is_operator] = EventKind.OPERATOR
    columns.counts[EventKind.OPERATOR] += len(is_operator)
    columns.counts[EventKind.ANNOTATION] -= len(is_operator)
    if "user_annotation" in columns.categories:
        columns.categories.append("cpu_op")
        category[is_operator] = len(columns.categories) - 1
    sequence = _sequences(built["name"][annotated.row], annotated.sequence, texts)
    numbered = np.flatnonzero(sequence >= 0)
    events = Events(
        kind=built["kind"],
        name=name,
        start_ns=built["start_ns"],
        end_ns=built["end_ns"],
        thread=built["thread"],
        correlation=built["correlation"],
        names=columns.names.texts,
        threads=columns.threads,
        collective_args=annotated.collective_args,
        operator_args=OperatorArgsColumns(
            sequence_row=annotated.row[numbered],
            sequence=sequence[numbered],
            forward_thread=np.full(len(numbered), -1, np.int64),
        ),
        device_args=device_args,
    )
    return events, category


def _sequences(name: NDArray[Any], own: Ints, texts: Texts) -> Ints:
    """Return autograd's number of each range, from its own text, or from the text that it refers to."""
    sequence = own.copy()
    refers = np.flatnonzero(name >= -1)
    sequence[refers] = texts.of(name[refers].astype(np.int64))[1]
    return sequence


def _damage(graphs: int) -> tuple[str, ...]:
    if not graphs:
        return ()
    return (
        f"{plural(graphs, 'launch')} of CUDA graphs {'is' if graphs == 1 else 'are'} recorded as a whole, without "
        "kernels, and counted as compute: record with nsys profile --cuda-graph-trace=node",
    )
