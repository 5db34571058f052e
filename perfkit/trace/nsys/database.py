"""An SQLite file that somebody else wrote: opened so that nothing in it runs, and read in whole columns.

Only ordinary tables are read. What the file declares besides (views, triggers, virtual tables, indices, generated
columns) is not used, and no more rows are accepted of a table than its file has room for: pages that refer to each
other would give more.
"""

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np

from perfkit.errors import TraceError
from perfkit.trace.intervals import Ints

MISSING: Final = -(2**63)
"""In columns of integers: NULL, or a value that is no integer."""

_ROWS_AT_ONCE: Final = 1 << 16
_TEXTS_AT_ONCE: Final = 1 << 13
_LONGEST_VALUE: Final = 1 << 26
"""nsys keeps what the program printed as one text."""
_LONGEST_TEXT: Final = 1 << 12
"""Longer texts are cut: rows may share the pages that contain them, which makes them larger than the file."""
_LONGEST_SCHEMA: Final = 1 << 20
_MOST_COLUMNS: Final = 512
_ROW_OVERHEAD: Final = 5
"""Bytes of a row besides one for the type of each column: its place in the page (2), its size, its number, and the size
of its header (https://sqlite.org/fileformat.html, section 1.6 and 2.1)."""
_OPERATIONS: Final = 100_000
_LEAST_OPERATIONS: Final = 10_000_000
_OPERATIONS_PER_BYTE: Final = 50
"""Of SQLite's virtual machine: a row of n columns takes about 10 n of them, and has at least n + 5 bytes."""
_PLAIN_TABLE: Final = re.compile(r"\s*CREATE\s+TABLE\s", re.IGNORECASE)
_HEADER_BYTES: Final = 100


class Database:
    """The tables of a file.

    Raises:
        TraceError: in all methods, if the file is damaged.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection, self.path = connection, path
        self._bytes = path.stat().st_size
        self._left = 0
        connection.set_progress_handler(self._is_over, _OPERATIONS)

    def _is_over(self) -> bool:
        """Count what a query does: pages that share children make it endless, also where it returns no row."""
        self._left -= _OPERATIONS
        return self._left < 0

    def _allow(self) -> None:
        self._left = _LEAST_OPERATIONS + _OPERATIONS_PER_BYTE * self._bytes

    @cached_property
    def tables(self) -> dict[str, tuple[str, ...]]:
        """Columns of each ordinary table, by its name."""
        rows = self._fetch("SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND rootpage > 0")
        names = [name for name, sql in rows if isinstance(sql, str) and _PLAIN_TABLE.match(sql)]
        return {name: self._columns_of(name) for name in names}

    def _columns_of(self, table: str) -> tuple[str, ...]:
        # `table_xinfo` marks generated columns, which would be computed: only plain ones are listed.
        rows = self._fetch("SELECT name, hidden FROM pragma_table_xinfo(?)", [table])
        return tuple(name for name, hidden in rows if not hidden)

    def has(self, table: str, *columns: str) -> bool:
        return table in self.tables and set(columns) <= set(self.tables[table])

    def integers(
        self, table: str, columns: Sequence[str], where: str = "", values: Sequence[int] = ()
    ) -> Iterator[Ints]:
        """Yield blocks of a table's rows, each of shape (columns, n); `MISSING` for a column that it lacks."""
        selected = ", ".join(map(self._integer_of(table), columns))
        for rows in self._blocks(table, selected, where, values):
            yield _matrix(rows, len(columns))

    def integers_and_text(
        self, table: str, columns: Sequence[str], text: str, where: str = "", values: Sequence[int] = ()
    ) -> Iterator[tuple[Ints, list[str | bytes | None]]]:
        """Yield likewise, with the values of one column that are text or bytes; None for others."""
        selected = ", ".join(map(self._integer_of(table), columns))
        selected = f"{self._text_of(table, text)}, {selected}"
        for rows in self._blocks(table, selected, where, values, _TEXTS_AT_ONCE):
            yield _matrix([row[1:] for row in rows], len(columns)), [row[0] for row in rows]

    def texts(self, table: str, *columns: str) -> Iterator[tuple[str | bytes | None, ...]]:
        """Yield columns of texts, None for other values; nothing if the table does not have one of them."""
        if self.has(table, *columns):
            selected = ", ".join(self._text_of(table, column) for column in columns)
            for rows in self._blocks(table, selected, "", (), _TEXTS_AT_ONCE):
                yield from rows

    def _integer_of(self, table: str) -> Any:
        known = set(self.tables[table])

        def select(column: str) -> str:
            name = _quoted(column)
            return f"iif(typeof({name}) = 'integer', {name}, {MISSING})" if column in known else str(MISSING)

        return select

    def _text_of(self, table: str, column: str) -> str:
        name = _quoted(column)
        text = f"iif(typeof({name}) IN ('text', 'blob'), substr({name}, 1, {_LONGEST_TEXT}), NULL)"
        return text if self.has(table, column) else "NULL"

    def _blocks(
        self, table: str, selected: str, where: str, values: Sequence[int], at_once: int = _ROWS_AT_ONCE
    ) -> Iterator[list[Any]]:
        # All names are those of the file's tables, quoted.
        query = f"SELECT {selected} FROM {_quoted(table)} NOT INDEXED {where}"  # noqa: S608
        left = self._bytes // (_ROW_OVERHEAD + len(self.tables[table]))
        self._allow()
        with self._errors():
            cursor = self._connection.execute(query, values)
        while True:
            with self._errors():
                rows = cursor.fetchmany(at_once)
            if not rows:
                return
            left -= len(rows)
            if left < 0:
                raise TraceError(f"{self.path}: table {table} has more rows than the file has room for: it is damaged")
            yield rows

    def _fetch(self, query: str, values: Sequence[str] = ()) -> list[Any]:
        self._allow()
        with self._errors():
            return self._connection.execute(query, values).fetchall()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OverflowError, ValueError) as error:
            raise TraceError(f"{self.path}: the SQLite database cannot be read: {error}") from error


@contextmanager
def open_database(path: Path) -> Iterator[Database]:
    """Open a file for reading: no other file is touched, no code in it runs.

    Raises:
        TraceError: it is not whole, or cannot be opened.
    """
    _check_size(path)
    address = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
    try:
        connection = sqlite3.connect(address, uri=True, isolation_level=None)
    except sqlite3.Error as error:
        raise TraceError(f"{path}: the SQLite database cannot be opened: {error}") from error
    try:
        _harden(connection)
        yield Database(connection, path)
    finally:
        connection.close()


def _harden(connection: sqlite3.Connection) -> None:
    for pragma in ("trusted_schema=OFF", "query_only=ON", "cell_size_check=ON", "mmap_size=0", "temp_store=MEMORY"):
        connection.execute(f"PRAGMA {pragma}")
    for limit, value in (
        (sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE),
        (sqlite3.SQLITE_LIMIT_SQL_LENGTH, _LONGEST_SCHEMA),
        (sqlite3.SQLITE_LIMIT_COLUMN, _MOST_COLUMNS),
        (sqlite3.SQLITE_LIMIT_ATTACHED, 0),
        (sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH, 0),
        (sqlite3.SQLITE_LIMIT_WORKER_THREADS, 0),
    ):
        connection.setlimit(limit, value)
    connection.text_factory = lambda data: data.decode("utf-8", "replace")


def _check_size(path: Path) -> None:
    """Raise TraceError for a file that lost its end: SQLite itself says no more than `malformed`."""
    try:
        with path.open("rb") as stream:
            head = stream.read(_HEADER_BYTES)
        size = path.stat().st_size
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from error
    page = int.from_bytes(head[16:18])
    # The number of pages counts if the file was last written by a version that keeps it (offsets 24 and 92 agree).
    pages = int.from_bytes(head[28:32]) if head[24:28] == head[92:96] else 0
    whole = pages * (65536 if page == 1 else page)
    if len(head) < _HEADER_BYTES or size < whole:
        raise TraceError(
            f"{path}: is incomplete: it has {size:,} of {max(whole, _HEADER_BYTES):,} bytes; copy it again"
        )


def _matrix(rows: list[Any], columns: int) -> Ints:
    flat = np.fromiter(chain.from_iterable(rows), np.int64, len(rows) * columns)
    return flat.reshape(len(rows), columns).T


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
