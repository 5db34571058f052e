"""Lays out tables on a terminal. No cell is cut: names take more lines, the last columns of figures are left out."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from rich.cells import cell_len

from perfkit.report.renderers.text import limited
from perfkit.tables.kernel_names import LONGEST, fold, fold_name, shorten, widest_part
from perfkit.tables.specification import Cell, Column, Table, joined

GAP: Final = 2
"""Cells between columns, and between a text and its note."""
_LEAST_WORDS: Final = 16
_FIGURES: Final = 3
"""Columns of numbers that stay, rather than that names have fewer lines: what tables are read for stands first."""
_NAME_LINES: Final = (2, 3, 4, 5)
"""Lines that names take on average, best first, if there is no room for one."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What is drawn of a table: the columns that have room, and their widths."""

    table: Table
    """Its remark names the columns that were left out."""
    widths: Sequence[int]
    notes: Sequence[int | None]
    """Widths of the notes beside the cells of each column; None: they stand below."""


def lay_out(table: Table, width: int) -> Layout:
    """Return the columns of a table that fit into so many cells, with their widths."""
    measured = [_Measured(column, [row[i] for row in table.rows]) for i, column in enumerate(table.columns)]
    kept, lines = _with_room(measured, width)
    shown = [measured[i] for i in kept]
    are_beside = (
        _total([one.beside if one.is_number or one.note else one.least(_NAME_LINES[0]) for one in shown]) <= width
    )
    return Layout(
        _only(table, kept),
        _widths(shown, width, lines, are_beside),
        [one.note if are_beside else None for one in shown],
    )


def shown_text(cell: Cell, column: Column) -> str:
    """Return the text of a cell in full, before it is folded."""
    return limited(shorten(cell.text, LONGEST) if column.kind == "name" else cell.text)


def folded(text: str, column: Column, width: int) -> str:
    """Return a text in lines as wide as its column; a number is not broken."""
    if column.kind == "number":
        return text
    return fold_name(text, width) if column.kind == "name" else fold(text, width)


class _Measured:
    """A column's widths in cells."""

    def __init__(self, column: Column, cells: Sequence[Cell]) -> None:
        self.column, self.is_number = column, column.kind == "number"
        self.texts = [shown_text(cell, column) for cell in cells]
        title = limited(column.title)
        text = _widest(self.texts)
        self.note = _widest(limited(cell.note) for cell in cells)
        self.below = max(cell_len(title), text, self.note)
        """With notes below the texts."""
        self.beside = max(cell_len(title), text + GAP + self.note if self.note else text)
        """With notes beside the texts."""
        self.broken = max(_widest(title.split(" ")), text, self.note)
        """With the title in several lines, and notes below."""
        self.needed = cache(self._needed)

    def _needed(self, lines: int) -> int:
        """Return the least width at which names have at most so many lines on average."""

        def is_enough(width: int) -> bool:
            breaks = sum(folded(text, self.column, width).count("\n") for text in self.texts)
            return breaks <= (lines - 1) * len(self.texts)

        parts = max(map(widest_part, self.texts), default=0)
        smallest = min(self.below, max(cell_len(limited(self.column.title)), self.note, parts))
        return smallest + bisect_left(range(smallest, self.below), True, key=is_enough)

    def least(self, lines: int) -> int:
        """Return the width that a column is to have at least, if its names may have so many lines."""
        if self.is_number:
            return self.broken
        return self.needed(lines) if self.column.kind == "name" else min(self.below, _LEAST_WORDS)


def _widest(texts: Iterable[str]) -> int:
    return max(map(cell_len, texts), default=0)


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _with_room(measured: Sequence[_Measured], width: int) -> tuple[list[int], int]:
    """Return the columns that there is room for, and the lines that their names take on average, one or more."""
    fewer = list(_ever_fewer(measured))
    figures = sum(one.is_number for one in measured)
    for lines in _NAME_LINES:
        for kept in fewer[: max(figures - _FIGURES, 0) + 1]:
            if _total([measured[i].least(lines) for i in kept]) <= width:
                return kept, lines
    for kept in fewer:
        if _total([measured[i].broken if measured[i].is_number else 1 for i in kept]) <= width:
            return kept, _NAME_LINES[-1]
    return fewer[-1], _NAME_LINES[-1]


def _ever_fewer(measured: Sequence[_Measured]) -> Iterator[list[int]]:
    """Yield all columns, then those without the last of numbers, and so on; the first column stays."""
    kept = list(range(len(measured)))
    yield kept
    for last in reversed(kept[1:]):
        if measured[last].is_number:
            kept = [i for i in kept if i != last]
            yield kept


def _only(table: Table, kept: Sequence[int]) -> Table:
    if len(kept) == len(table.columns):
        return table
    left = [column.title for i, column in enumerate(table.columns) if i not in kept]
    return replace(
        table,
        columns=tuple(table.columns[i] for i in kept),
        rows=[tuple(row[i] for i in kept) for row in table.rows],
        remark=joined(f"no room here for: {', '.join(left)}", table.remark),
    )


def _widths(shown: Sequence[_Measured], width: int, lines: int, are_beside: bool) -> list[int]:
    """Return the columns' widths: numbers in full, then names in at most so many lines, and what is left for words."""
    widths = [one.beside if are_beside else one.below for one in shown]
    if _total(widths) > width and not are_beside:
        widths = [one.broken if one.is_number else natural for one, natural in zip(shown, widths, strict=True)]
    if _total(widths) <= width:
        return widths
    texts = {i: widths[i] for i, one in enumerate(shown) if not one.is_number}
    room = width - _total(widths) + sum(texts.values())
    for i, given in _for_texts(shown, texts, room, lines).items():
        widths[i] = given
    return widths


def _for_texts(shown: Sequence[_Measured], naturals: dict[int, int], room: int, lines: int) -> dict[int, int]:
    """Return the widths of the columns of texts by their index; `naturals` are those of one line."""
    words = {i: natural for i, natural in naturals.items() if shown[i].column.kind == "words"}
    names = [i for i in naturals if i not in words]
    reserved = sum(min(natural, max(room // len(naturals), _LEAST_WORDS)) for natural in words.values())
    for most in range(1, lines + 1):
        needed = {i: shown[i].needed(most) for i in names}
        if sum(needed.values()) + reserved <= room:
            given = _spread(words, room - sum(needed.values()))
            left = room - sum(given.values()) - sum(needed.values())
            more = _spread({i: naturals[i] - needed[i] for i in names}, left)
            return given | {i: needed[i] + more[i] for i in names}
    return {i: max(given, 1) for i, given in _spread(naturals, room).items()}


def _spread(naturals: dict[int, int], room: int) -> dict[int, int]:
    """Return widths of at most `naturals` that share the room evenly."""
    given = {}
    for position, i in enumerate(sorted(naturals, key=naturals.__getitem__)):
        given[i] = min(naturals[i], room // (len(naturals) - position))
        room -= given[i]
    return given
