"""Draws a record on the terminal."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, TextIO

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.rule import Rule
from rich.table import Table as RichTable
from rich.text import Text

from perfkit.records.report import Report
from perfkit.report import build_document
from perfkit.report.content.document import (
    FINDINGS,
    RECOMMENDATIONS,
    Document,
    FindingLine,
    InsightItem,
    KeyValue,
    Section,
)
from perfkit.report.renderers.text import MIN_WIDTH, STYLES, limited, limited_text, wrap
from perfkit.tables.kernel_names import LONGEST, fold, shorten
from perfkit.tables.labels import COLOURS, FILLS
from perfkit.tables.specification import BAR, Cell, Column, Table, joined

GAP = 2
SMALLEST_NAME = 16


def write(record: Any, stream: TextIO, *, top: int, width: int | None = None) -> None:
    """Draw `record` on `stream`, in colour on a terminal; `width` is in columns, None for that of the terminal."""
    _draw(build_document(record, top), stream, width)


def write_subjects(report: Report, stream: TextIO, *, top: int, subjects: Collection[str]) -> None:
    """Draw the tables of a report that are about some of `perfkit.subjects.table.SUBJECTS`."""
    from perfkit.report.content.report import subject_document

    _draw(subject_document(report, top, subjects), stream, None)


def _draw(doc: Document, stream: TextIO, width: int | None) -> None:
    console = Console(file=stream, width=width, highlight=False, markup=False, emoji=False)
    console.width = max(MIN_WIDTH, console.width)
    _draw_findings(doc.findings, console)  # first: tables of traces that are no runs of one job would mislead
    for table in doc.comparison:
        draw_table(table, console)
    for section in doc.sections:
        _draw_section(section, console)
    _draw_advice(doc.advice, console)
    for footnote in doc.footnotes:
        console.print(limited_text(footnote, style="dim"))


def _draw_section(section: Section, console: Console) -> None:
    title = limited_text(shorten(section.title, console.width - 8), style="bold")
    console.print(Rule(title, align="left", characters="─", style="dim"))
    if section.headline:
        for line in wrap(Text(section.headline, style=f"bold {STYLES[section.tone]}"), console, console.width):
            console.print(line)
        console.print()
    for table in section.summary:
        draw_table(table, console)
    if section.key_values:
        _draw_facts(section.key_values, console)
    for table in section.tables:
        draw_table(table, console)
    _draw_findings(section.findings, console)


def _draw_facts(facts: Sequence[KeyValue], console: Console) -> None:
    grid = RichTable.grid(padding=(0, GAP, 0, 0), pad_edge=False)
    grid.add_column(no_wrap=True, style="dim")
    grid.add_column(overflow="fold")
    for fact in facts:
        grid.add_row(limited_text(fact.label), limited_text(fact.value, style=STYLES[fact.tone]))
    console.print(grid)
    console.print()


def _draw_findings(findings: Sequence[FindingLine], console: Console) -> None:
    if not findings:
        return
    console.print(Text(FINDINGS, style="bold"))
    grid = RichTable.grid(padding=(0, GAP, 0, 0), pad_edge=False)
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for finding in findings:
        tone = STYLES[finding.severity]
        grid.add_row(Text(finding.severity, style=tone), limited_text(finding.text))
    console.print(grid)
    console.print()


def _draw_advice(advice: Sequence[InsightItem], console: Console) -> None:
    if not advice:
        return
    console.print(Rule(Text(RECOMMENDATIONS, style="bold"), align="left", characters="─", style="dim"))
    grid = RichTable.grid(padding=(0, GAP, 0, 0), pad_edge=False)
    grid.add_column(no_wrap=True, justify="right")
    grid.add_column(overflow="fold")
    for number, one in enumerate(advice, 1):
        text = limited_text(one.text)
        text.append(f"\n→ {limited(one.recommendation)}", style="bold")
        text.append(f"  ({one.potential_saving})" if one.potential_saving else "", style="dim")
        grid.add_row(Text(f"{number}."), text)
    console.print(grid)
    console.print()


def draw_table(table: Table, console: Console) -> None:
    """Draw a table as wide as the console allows: no number is cut, rather the last columns of numbers are left out."""
    table = _without_last(table, console.width)
    notes_beside = _fits(table, console.width)
    widths = _widths(table, console.width, notes_beside)
    notes = _note_widths(table) if notes_beside else [None] * len(widths)
    drawn = RichTable(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, GAP - 1, 0, 0),
        header_style="dim",
        border_style="dim",
    )
    for column, width in zip(table.columns, widths, strict=True):
        justify = "right" if column.kind == "number" else "left"
        folds = column.kind == "words"
        title = limited(column.title)
        drawn.add_column(
            Text(fold(title, width) if column.kind == "number" else title),
            justify=justify,  # type: ignore[arg-type]
            width=width,
            no_wrap=not folds,
            overflow="fold",
        )
    for row in table.rows:
        cells = zip(row, table.columns, widths, notes, strict=True)
        drawn.add_row(*(_cell(cell, column, width, note) for cell, column, width, note in cells))
    console.print(limited_text(table.title, style="bold"))
    console.print(drawn)
    if table.remark:
        console.print(limited_text(table.remark, style="dim"))
    console.print()


def _cell(cell: Cell, column: Column, width: int, note_width: int | None) -> Text:
    """Return a cell with its note beside the text, aligned with the notes above, or below it (`note_width` None)."""
    if cell.bar:
        return Text(cell.text.replace(BAR, FILLS[cell.bar.category]), style=COLOURS[cell.bar.category])
    fitted = {"name": shorten, "words": fold}.get(column.kind)
    shown = fitted(cell.text, width) if fitted else cell.text
    text = limited_text(shown, style=STYLES[cell.tone])
    note = limited(cell.note)
    if note_width:
        text.append(f"  {note:>{note_width}}", style="dim")
    elif note:
        text.append(f"\n{note}", style="dim")
    return text


def _note_widths(table: Table) -> list[int]:
    return [max((cell_len(limited(cell.note)) for cell in cells), default=0) for cells in _columns(table)]


def _columns(table: Table) -> list[list[Cell]]:
    """Return the cells by column; a table of another tool may have no rows."""
    return [[row[place] for row in table.rows] for place in range(len(table.columns))]


def _natural(column: Column, cells: Sequence[Cell], notes_beside: bool) -> int:
    """Return the width at which no cell of a column is cut."""
    shown = [limited(shorten(c.text, LONGEST) if column.kind == "name" else c.text) for c in cells]
    text, note = (max(map(cell_len, texts), default=0) for texts in (shown, [limited(cell.note) for cell in cells]))
    both = text + 2 + note if notes_beside and note else max(text, note)
    return max(cell_len(limited(column.title)), both)


def _naturals(table: Table, notes_beside: bool) -> list[int]:
    columns = zip(table.columns, _columns(table), strict=True)
    return [_natural(column, cells, notes_beside) for column, cells in columns]


def _without_last(table: Table, width: int) -> Table:
    """Return a table without the last of its columns of numbers that have no room, which the remark names."""
    left: list[str] = []
    while _least(table) > width and (
        numbers := [i for i, one in enumerate(table.columns) if i and one.kind == "number"]
    ):
        last = numbers[-1]
        left.insert(0, table.columns[last].title)
        rows = [(*row[:last], *row[last + 1 :]) for row in table.rows]
        table = replace(table, columns=(*table.columns[:last], *table.columns[last + 1 :]), rows=rows)
    if not left:
        return table
    return replace(table, remark=joined(f"no room here for: {', '.join(left)}", table.remark))


def _least(table: Table) -> int:
    """Return the least width of a table in which no number is cut: titles on several lines, texts of one cell."""
    folded = _folded(_naturals(table, notes_beside=False), table)
    return _sum(folded, table)


def _sum(widths: Sequence[int], table: Table) -> int:
    """Return the width of a table whose texts have one cell."""
    least = [width if one.kind == "number" else 1 for width, one in zip(widths, table.columns, strict=True)]
    return sum(least) + GAP * (len(least) - 1)


def _folded(naturals: Sequence[int], table: Table) -> list[int]:
    """Return the widths of columns if the titles of numbers are broken between words."""
    return [
        max(*map(cell_len, limited(one.title).split(" ")), _natural(Column("", "number"), cells, notes_beside=False))
        if one.kind == "number"
        else natural
        for natural, one, cells in zip(naturals, table.columns, _columns(table), strict=True)
    ]


def _fits(table: Table, width: int) -> bool:
    """Return whether notes fit beside their texts."""
    needed = [
        natural if column.kind == "number" else min(natural, SMALLEST_NAME)
        for natural, column in zip(_naturals(table, notes_beside=True), table.columns, strict=True)
    ]
    return sum(needed) + GAP * (len(needed) - 1) <= width


def _widths(table: Table, width: int, notes_beside: bool) -> list[int]:
    """Return the columns' widths: numbers in full, the remaining width shared evenly by the texts."""
    widths = _naturals(table, notes_beside)
    if not notes_beside and _sum(widths, table) > width:
        widths = _folded(widths, table)
    texts = [i for i, column in enumerate(table.columns) if column.kind != "number"]
    room = width - GAP * (len(widths) - 1)
    room -= sum(w for i, w in enumerate(widths) if i not in texts)
    for position, i in enumerate(sorted(texts, key=widths.__getitem__)):
        widths[i] = min(widths[i], max(room // (len(texts) - position), 1))
        room -= widths[i]
    return widths
