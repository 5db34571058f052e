"""Draws a record on the terminal."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, Final, TextIO

from rich import box
from rich.console import Console
from rich.rule import Rule
from rich.table import Table as RichTable
from rich.text import Text

from perfkit.base.formatting import left_out
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
from perfkit.report.renderers.table_layout import GAP, folded, lay_out, shown_text
from perfkit.report.renderers.text import STYLES, limited, limited_text, open_console, wrap
from perfkit.tables.kernel_names import fold
from perfkit.tables.labels import COLOURS, FILLS
from perfkit.tables.specification import BAR, Cell, Column, Table

_MOST_SECTIONS: Final = 20
"""Of a summary."""


def write(record: Any, stream: TextIO, *, top: int, width: int | None = None) -> None:
    """Draw `record` on `stream`, in colour on a terminal; `width` is in columns, None for that of the terminal."""
    _draw(build_document(record, top), stream, width)


def write_subjects(report: Report, stream: TextIO, *, top: int, subjects: Collection[str]) -> None:
    """Draw the tables of a report that are about some of `perfkit.subjects.table.SUBJECTS`."""
    from perfkit.report.content.report import subject_document

    _draw(subject_document(report, top, subjects), stream, None)


def write_summary(record: Any, stream: TextIO) -> None:
    """Draw what stands before the tables of `record`, and the errors and warnings about it."""
    doc = build_document(record, top=1)
    sections = [
        replace(
            section,
            summary=[],
            tables=[],
            findings=[finding for finding in section.findings if finding.severity != "info"],
        )
        for section in doc.sections[:_MOST_SECTIONS]
    ]
    left = left_out(len(doc.sections) - _MOST_SECTIONS, "section") if len(doc.sections) > _MOST_SECTIONS else ""
    _draw(Document(doc.title, sections, footnotes=[left] if left else []), stream, None)


def _draw(doc: Document, stream: TextIO, width: int | None) -> None:
    console = open_console(stream, width)
    _draw_findings(doc.first, console)  # tables of traces that are no runs of one job would mislead
    for headline in doc.headlines:
        console.print(limited_text(f"{headline}.", style="bold"))
    if doc.headlines:
        console.print()
    for table in doc.opening:
        draw_table(table, console)
    _draw_findings(doc.findings, console)
    if doc.headlines:
        _draw_advice(doc.advice, console)
    for table in doc.comparison:
        draw_table(table, console)
    for section in doc.sections:
        _draw_section(section, console)
    if not doc.headlines:  # of single runs last, where a terminal ends
        _draw_advice(doc.advice, console)
    for footnote in doc.footnotes:
        console.print(limited_text(footnote, style="dim"))


def _draw_section(section: Section, console: Console) -> None:
    *above, last = fold(limited(section.title), console.width - 8).split("\n")
    for part in above:
        console.print(Text(part, style="bold"))
    console.print(Rule(Text(last, style="bold"), align="left", characters="─", style="dim"))
    if section.headline:
        for line in wrap(Text(section.headline, style=f"bold {STYLES[section.tone]}"), console, console.width):
            console.print(line)
        if section.trust:
            console.print(limited_text(section.trust, style=STYLES["warning"]))
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
    """Draw a table as wide as the console allows."""
    layout = lay_out(table, console.width)
    table = layout.table
    drawn = RichTable(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, GAP - 1, 0, 0),
        header_style="dim",
        border_style="dim",
    )
    for column, width in zip(table.columns, layout.widths, strict=True):
        drawn.add_column(
            Text(fold(limited(column.title), width)),
            justify="right" if column.kind == "number" else "left",
            width=width,
            no_wrap=True,
            overflow="fold",
        )
    for row in table.rows:
        cells = zip(row, table.columns, layout.widths, layout.notes, strict=True)
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
    text = Text(folded(shown_text(cell, column), column, width), style=STYLES[cell.tone])
    note = limited(cell.note)
    if note_width:
        text.append(f"  {note:>{note_width}}", style="dim")
    elif note:
        text.append(f"\n{fold(note, width)}", style="dim")
    return text
