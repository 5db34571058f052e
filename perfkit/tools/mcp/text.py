"""Text for agents: tables without padding, and a limit on its length."""

from collections.abc import Iterator, Sequence
from typing import Final

from perfkit.base.formatting import escape_unprintable
from perfkit.tables.specification import Cell, Table

LONGEST: Final = 4_800
"""Characters of an answer: fewer than 2,000 tokens, as a token of figures and names has 2.5 or more."""
_LONGEST_LINE: Final = 1_000


def bounded(lines: Sequence[str], again: str) -> str:
    """Return lines as one text that ends with the command `again`; those that do not fit are counted, not shown."""
    shown = [escape_unprintable(line)[:_LONGEST_LINE] for line in lines]
    last = escape_unprintable(f"Show it again: {again}")[:_LONGEST_LINE]
    room = LONGEST - len(last) - len("… 1,000,000 more lines\n")
    kept = 0
    for line in shown:
        room -= len(line) + 1
        if room < 0:
            break
        kept += 1
    more = [f"… {len(shown) - kept:,} more lines"] if kept < len(shown) else []
    return "\n".join([*shown[:kept], *more, last])


def table_lines(table: Table) -> Iterator[str]:
    """Yield a table as lines: its title, its columns and its rows, cells between bars."""
    yield f"{table.title}:"
    yield " | ".join(column.title for column in table.columns)
    yield from (" | ".join(map(_cell, row)) for row in table.rows)
    yield from (f"({line})" for line in table.remark.splitlines())


def _cell(cell: Cell) -> str:
    if cell.bar:
        return ""
    return f"{cell.text} ({cell.note})" if cell.note else cell.text
