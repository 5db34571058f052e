"""Tables from columns, for readers and for files."""

import ast
import inspect
from typing import Literal, NamedTuple

import pytest

from perfkit.records.per_rank.idle import IdleCause
from perfkit.report import LISTINGS, listing, subject_tables
from perfkit.subjects.table import SUBJECTS
from perfkit.tables import specification as tables
from perfkit.tables.specification import Cell, Column, Field, Listing, data, data_of, make_table, name, number, words
from tests.support.reports.report_builders import make_foreign_run, make_report, make_run


class Pair(NamedTuple):
    """A record."""

    name: str
    share: float | None


PAIRS = [Pair("a\x1b", 0.25), Pair("b", None), Pair("c", 0.75)]
COLUMNS = (
    name("name", lambda pair: pair.name),
    data(
        "share", float | None, lambda pair: pair.share, number("%", lambda pair: pair.share, "{:.0%}".format, low=0.5)
    ),
    data("run", str, lambda pair: pair.name),
)


def test_readers_see_what_is_not_only_in_files() -> None:
    table = make_table("Pairs", PAIRS, COLUMNS, "1 more", top=2)
    assert table is not None
    assert (table.title, table.columns, table.remark) == ("Pairs", (Column("name", "name"), Column("%")), "1 more")
    assert table.rows == [
        (Cell("a\\x1b"), Cell("25%", tone="warning")),
        (Cell("b"), Cell("–")),
    ]
    assert make_table("Pairs", [], COLUMNS) is None


def test_files_have_every_row_and_the_columns_with_a_key() -> None:
    pairs = Listing(lambda record: record, COLUMNS)
    assert [column.key for column in pairs.in_files] == ["share", "run"]
    assert list(pairs.values(PAIRS)) == [[0.25, "a\x1b"], [None, "b"], [0.75, "c"]]


def test_notes_tones_and_whole_cells() -> None:
    columns = (
        number("n", len, note=lambda text: text * 2, tone=lambda _: "faint"),
        words("w", lambda _: Cell("kept", "note")),
        Field("plain", str),
    )
    table = make_table("", ["ab"], columns)
    assert table is not None
    assert table.rows == [(Cell("2", "abab", "faint"), Cell("kept", "note"), Cell("ab"))]


@pytest.mark.parametrize(
    ("of", "integer", "text", "unknown"),
    [
        (int, True, False, False),
        (int | None, True, False, True),
        (float | None, False, False, True),
        (str, False, True, False),
        (Literal["a", "b"] | None, False, True, True),
        (bool, False, False, False),
    ],
)
def test_types_of_files_are_those_of_the_records(of: object, integer: bool, text: bool, unknown: bool) -> None:
    column = data("key", of, str)
    assert (column.is_integer, column.is_text, column.may_be_unknown) == (integer, text, unknown)


def test_columns_of_a_record_are_its_fields() -> None:
    assert [column.key for column in data_of(IdleCause)] == list(IdleCause.__struct_fields__)


def test_every_subject_and_listing_can_be_drawn() -> None:
    report = make_report(make_run(), make_foreign_run())
    for run in report.runs:
        assert sum(len(subject_tables(run, 3, [subject])) for subject in SUBJECTS.names()) == len(
            subject_tables(run, 3)
        )
    for table in map(listing, LISTINGS):
        assert len({column.key for column in table.in_files}) == len(table.in_files)
        assert all(len(row) == len(table.in_files) for row in table.values(report))


def test_specifications_import_nothing_of_reports() -> None:
    """They will be used below the reports."""
    nodes = ast.walk(ast.parse(inspect.getsource(tables)))
    assert not [node for node in nodes if isinstance(node, ast.ImportFrom) and "report" in (node.module or "")]
