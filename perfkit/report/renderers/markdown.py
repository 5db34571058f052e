"""Writes a record as GitHub-flavoured markdown: the same content as on the terminal."""

from typing import Any, TextIO

from perfkit.report import build_document
from perfkit.report.content.document import FINDINGS, RECOMMENDATIONS, FindingLine, InsightItem, Section
from perfkit.tables.kernel_names import LONGEST, shorten
from perfkit.tables.specification import Cell, Column, Table

_ESCAPES = str.maketrans(
    {
        **{c: f"\\{c}" for c in "\\`*_[]~#"},
        # Entities where renderers ignore a backslash.
        "|": "&#124;",
        "<": "&lt;",
        ">": "&gt;",
        "&": "&amp;",
        "@": "&#64;",
        "$": "&#36;",
    }
)


def escape(text: str) -> str:
    """Return `text` escaped so that markdown shows it literally: no cell, tag, code, link or mention."""
    escaped = text.translate(_ESCAPES)
    return escaped.replace("://", ":&#47;&#47;").replace("www.", "www&#46;")


def write(record: Any, stream: TextIO, *, top: int) -> None:
    """Write `record` to `stream` as markdown."""
    doc = build_document(record, top)
    stream.write(f"# {doc.title}\n")
    _findings(doc.first, stream)
    stream.writelines(f"\n**{escape(headline)}.**\n" for headline in doc.headlines)
    for table in doc.opening:
        _table(table, stream)
    _findings(doc.findings, stream)
    _advice(doc.advice, stream)
    for table in doc.comparison:
        _table(table, stream)
    for section in doc.sections:
        _section(section, stream)
    if doc.footnotes:
        stream.write("\n---\n")
    for footnote in doc.footnotes:
        stream.write(f"\n{escape(footnote)}\n")


def _advice(advice: list[InsightItem], stream: TextIO) -> None:
    if not advice:
        return
    stream.write(f"\n## {RECOMMENDATIONS}\n\n")
    for number, one in enumerate(advice, 1):
        saving = f" ({one.potential_saving})" if one.potential_saving else ""
        stream.write(f"{number}. {escape(one.text)}  \n   → **{escape(one.recommendation)}**{escape(saving)}\n")


def _section(section: Section, stream: TextIO) -> None:
    stream.write(f"\n## {escape(section.title)}\n\n**{escape(section.headline)}**\n")
    if section.trust:
        stream.write(f"\n{escape(section.trust)}\n")
    for table in section.summary:
        _table(table, stream)
    stream.write("\n")
    stream.writelines(f"- {fact.label}: {escape(fact.value)}\n" for fact in section.key_values)
    for table in section.tables:
        _table(table, stream)
    _findings(section.findings, stream)


def _findings(findings: list[FindingLine], stream: TextIO) -> None:
    if not findings:
        return
    stream.write(f"\n### {FINDINGS}\n\n")
    stream.writelines(f"- **{f.severity}** {escape(f.text)}\n" for f in findings)


def _table(table: Table, stream: TextIO) -> None:
    stream.write(f"\n### {escape(table.title)}\n\n")
    _row([column.title for column in table.columns], stream)
    _row(["---:" if column.kind == "number" else "---" for column in table.columns], stream)
    for row in table.rows:
        _row([_cell(*pair) for pair in zip(row, table.columns, strict=True)], stream)
    if table.remark:
        stream.write(f"\n{escape(table.remark)}\n")


def _row(cells: list[str], stream: TextIO) -> None:
    stream.write(f"| {' | '.join(cells)} |\n")


def _cell(cell: Cell, column: Column) -> str:
    text = escape(shorten(cell.text, LONGEST) if column.kind == "name" else cell.text)
    if cell.note:
        return f"{text} ({escape(cell.note)})"
    return f"**{text}**" if cell.tone == "strong" and text else text
