"""Declares tables: columns, each with what it shows a reader of a record and what files contain of it.

A table for readers is `make_table` of records and columns; the console, the page, notebooks and Markdown draw it. A
`Listing` has all rows of a report, from which CSV, Parquet and DataFrames are written. Both are made of the same
`Field`. This module imports nothing of the reports.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any, Final, Literal, NamedTuple, get_args

from msgspec.structs import fields

from perfkit.base.formatting import MISSING, escape_unprintable
from perfkit.records.common import Category
from perfkit.records.samples import CodeLocation

Tone = Literal["plain", "strong", "faint", "good", "info", "warning", "error"]
"""The meaning of a piece of text; renderers with colours map it to one."""

Kind = Literal["number", "name", "words"]
"""How a column behaves if the table is too wide: a `number` has one line, or the column is left out; a `name` takes
more lines, broken between its parts; `words` wrap."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column's title and kind."""

    title: str
    kind: Kind = "number"


@dataclass(frozen=True, slots=True)
class Instance:
    """Where a timeline shows what a row sums up: the slices of a name, and the longest of all if it is known."""

    name: str
    what: str = "longest"
    """What is largest in it."""
    ns: int = 0
    rank: int | None = None
    step: int | None = None
    at_ns: int | None = None
    """Its start, since that of the step's window; None if unknown."""
    is_inside: bool = False
    """Whether it is a slice of another name, which runs in what the row is about: a kernel of a module."""


BAR: Final = "█"
"""A cell of a bar in text; renderers that know its category draw it in that one's look."""


class CategoryBar(NamedTuple):
    """A bar that shows the share of a category, from 0 to 1."""

    category: Category
    share: float


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell; `note` follows the text, or goes below it if the table would be too wide."""

    text: str
    note: str = ""
    tone: Tone = "plain"
    instance: Instance | None = None
    """Of the first cell of a row: where the page's timelines show it."""
    bar: CategoryBar | None = None
    """What `text` shows, if that is a bar."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table for readers, with a remark below it (such as what was left out)."""

    title: str
    columns: tuple[Column, ...]
    rows: Sequence[tuple[Cell, ...]]
    remark: str = ""


Value = str | int | float | None
Show = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Field:
    """A column: its cell for a record, its value in files, or both."""

    title: str
    """Heading for readers."""
    show: Show | None
    """Returns the text or the whole `Cell` for a record; None: only in files."""
    kind: Kind = "number"
    key: str = ""
    """Name of the column in files; empty: only for readers."""
    value: Show | None = None
    """Returns what files contain of a record."""
    of: Any = None
    """Type of the values, such as `int | None`."""

    @property
    def is_integer(self) -> bool:
        """Whether all values are whole numbers, or unknown."""
        return set(get_args(self.of) or (self.of,)) - {NoneType} == {int}

    @property
    def is_text(self) -> bool:
        """Whether all values are texts, or unknown."""
        return all(isinstance(one, str) or one in (str, NoneType) for one in _flat(self.of))

    @property
    def may_be_unknown(self) -> bool:
        """Whether values may be None."""
        return NoneType in get_args(self.of)


def _flat(of: Any) -> Iterator[Any]:
    """Yield the types, and the values of literals, that a union is made of."""
    parts = get_args(of)
    if not parts:
        yield of
    for part in parts:
        yield from _flat(part)


def number(
    title: str,
    show: Show,
    form: Callable[[Any], str] = str,
    *,
    note: Callable[[Any], str] | None = None,
    low: float | None = None,
    tone: Callable[[Any], Tone] | None = None,
) -> Field:
    """Return a column of numbers in a form.

    Args:
        title: heading.
        show: returns the number of a record; None is shown as unknown. A `Cell` is taken as it is.
        form: of a number that is known.
        note: what is shown beside or below the number.
        low: a number below it is highlighted.
        tone: of the cell of a record.
    """

    def cell(record: Any) -> Cell:
        value = show(record)
        if isinstance(value, Cell):
            return value
        is_low = low is not None and value is not None and value < low
        shown: Tone = tone(record) if tone else "warning" if is_low else "plain"
        return Cell(MISSING if value is None else form(value), note(record) if note else "", shown)

    return Field(title, cell)


def words(title: str, show: Show, *, tone: Callable[[Any], Tone] | None = None) -> Field:
    """Return a column of texts that wrap, escaped; None is unknown."""
    return Field(title, lambda record: _text(show(record), tone(record) if tone else "plain"), "words")


def name(title: str, show: Show, *, tone: Callable[[Any], Tone] | None = None) -> Field:
    """Return a column of names, escaped, in several lines where the table is too wide; None is unknown."""
    return Field(title, lambda record: _text(show(record), tone(record) if tone else "plain"), "name")


def _text(value: Any, tone: Tone) -> Cell:
    if isinstance(value, Cell):
        return value
    return Cell(MISSING if value is None else escape_unprintable(value), tone=tone)


def joined(*parts: str, by: str = "; ") -> str:
    """Return the parts of a remark that are not empty."""
    return by.join(filter(None, parts))


def make_table(
    title: str, records: Sequence[Any], columns: Iterable[Field], remark: str = "", *, top: int | None = None
) -> Table | None:
    """Return a table of the first `top` records, of all if that is None; None without records.

    Columns that are only in files are left out.
    """
    if not records:
        return None
    shown = [(column, column.show) for column in columns if column.show]
    rows = [tuple(_cell(show(record)) for _, show in shown) for record in records[:top]]
    return Table(title, tuple(Column(column.title, column.kind) for column, _ in shown), rows, remark)


def _cell(value: Any) -> Cell:
    return value if isinstance(value, Cell) else Cell(value)


# ---- files ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Listing:
    """All rows of a record, for CSV, Parquet and DataFrames."""

    rows: Callable[[Any], Iterable[Any]]
    """Returns what `value` of the columns takes, a row each, of a report or another record."""
    columns: Sequence[Field]

    @property
    def in_files(self) -> list[Field]:
        """The columns that files have."""
        return [column for column in self.columns if column.key]

    def values(self, record: Any) -> Iterator[list[Value]]:
        """Yield the values of each row of a record."""
        found = [column.value for column in self.in_files if column.value]
        for row in self.rows(record):
            yield [value(row) for value in found]


def data(key: str, of: Any, value: Show, shown: Field | None = None) -> Field:
    """Return a column of files, of values of the type `of`; readers see it as `shown`, or not at all."""
    if shown is None:
        return Field(key, None, key=key, value=value, of=of)
    return Field(shown.title, shown.show, shown.kind, key, value, of)


class Row(NamedTuple):
    """A record in a list of a rank, a device or the whole run."""

    run: Any
    rank: Any
    of: Any


RUN: Final = data("run", str, lambda row: row.run.run)
RANK: Final = data("rank", int | None, lambda row: row.rank.rank)


def data_of(kind: type, get: Show = lambda row: row.of, **types: Any) -> list[Field]:
    """Return a column for each field of a record; `get` returns that record of a row, `types` replace its types."""
    return [data(field.name, types.get(field.name, field.type), _getter(get, field.name)) for field in fields(kind)]


_CODE: Final[dict[str, Any]] = {"function": str | None, "file": str | None, "line": int | None}


def code_data(get: Callable[[Any], CodeLocation | None]) -> list[Field]:
    """Return the columns of the line of code of a row: function, file, line; empty where there is none."""
    return [data(key, of, _of_code(get, key)) for key, of in _CODE.items()]


def _of_code(get: Callable[[Any], CodeLocation | None], key: str) -> Show:
    return lambda row: getattr(get(row), key, None)


def _getter(get: Show, key: str) -> Show:
    return lambda row: getattr(get(row), key)


def of_ranks(records: Callable[[Any], Iterable[Any]]) -> Callable[[Any], Iterator[Row]]:
    """Return a function that yields the records of each rank of a report's runs; `records` takes a rank."""
    return lambda report: (Row(run, rank, one) for run in report.runs for rank in run.ranks for one in records(rank))


def of_runs(records: Callable[[Any], Iterable[Any]]) -> Callable[[Any], Iterator[Row]]:
    """Return a function that yields the records of each run of a report; `records` takes a run."""
    return lambda report: (Row(run, None, one) for run in report.runs for one in records(run))
