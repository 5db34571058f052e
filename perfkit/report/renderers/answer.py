"""Draws the short answer of a report on the terminal, on about one screen."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from io import StringIO
from typing import Final, NamedTuple, TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from perfkit.base.formatting import left_out
from perfkit.records.report import Report
from perfkit.report.content.answer import Answer, Hint, RunAnswer, answer
from perfkit.report.content.document import FindingLine, InsightItem
from perfkit.report.content.ledger import Part
from perfkit.report.renderers.text import STYLES, UNBROKEN, limited, open_console, wrap
from perfkit.tables.kernel_names import shorten
from perfkit.tables.labels import COLOURS, FILLS
from perfkit.tables.specification import Table

SCREEN: Final = 20
"""Most lines of the answer about one run, at 80 columns."""
FURTHER: Final = 12
"""Most lines for each further run."""
_MOST_ROWS: Final = 40


def write(report: Report, stream: TextIO, *, top: int, width: int | None = None) -> None:  # noqa: ARG001  no tables
    """Draw the short answer of `report` on `stream`; `width` is in columns, None for that of the terminal."""
    console = open_console(stream, width)
    found = answer(report)
    tables = [_shortened(table) for table in found.tables]
    space = _space(found)
    runs = [list(_run_lines(run, console, space)) for run in found.runs]
    room = SCREEN + FURTHER * max(len(runs) - 1, 0) - sum(map(len, runs))
    room -= _height(tables, console.width) if runs else 0
    hints = [_hint(hint, console.width) for hint in found.more]
    first = list(_doubts(found.first, 4, console, 3))
    first += [Text()] * bool(first)
    heads = [line for head in found.headlines for line in wrap(Text(f"{head}.", style="bold"), console, console.width)]
    first = [*heads, *[Text()] * bool(heads), *first]
    room -= len(first)
    room -= sum(-(-cell_len(line) // console.width) for line in hints)
    closing = list(_closing_lines(found, console, room))
    if len(runs) == 1 and room > len(closing):  # what is left of the screen is for findings in full
        runs = [list(_run_lines(found.runs[0], console, space._replace(more_doubts=room - len(closing))))]
    _print(first, console)
    _print((line for run in runs for line in run), console)
    _draw(tables, console)
    _print(closing, console)
    for line in hints:
        console.print(line, style="dim", soft_wrap=True)


def _print(lines: Iterable[Text], console: Console) -> None:
    for line in lines:
        console.print(line, no_wrap=True, overflow="ellipsis", crop=True)


def _height(tables: Sequence[Table], width: int) -> int:
    drawn = open_console(StringIO(), width)
    _draw(tables, drawn)
    return drawn.file.getvalue().count("\n") if isinstance(drawn.file, StringIO) else 0


def _draw(tables: Sequence[Table], console: Console) -> None:
    if tables:  # a single run has none
        from perfkit.report.renderers.console import draw_table

        for table in tables:
            draw_table(table, console)


class _Space(NamedTuple):
    """Lines that a run's parts may take."""

    facts: int
    headline: int
    doubts: int
    has_rows: bool
    """Whether each row of the ledger has a line."""
    more_doubts: int = 0
    """Lines besides the first that errors and warnings may take, all together."""


def _space(found: Answer) -> _Space:
    if len(found.runs) == 1:
        return _Space(facts=2, headline=2, doubts=3, has_rows=True)
    if not found.tables:
        return _Space(facts=2, headline=2, doubts=1, has_rows=False)
    return _Space(facts=1, headline=2, doubts=1, has_rows=False)


def _shortened(table: Table) -> Table:
    left = len(table.rows) - _MOST_ROWS
    if left <= 0:
        return table
    return replace(table, rows=table.rows[:_MOST_ROWS], remark=f"{left_out(left, 'run')}: see --full. {table.remark}")


def _run_lines(run: RunAnswer, console: Console, space: _Space) -> Iterator[Text]:
    """Yield at most 17 lines about a run, 12 if it is one of several."""
    title = Text(limited(run.title), "bold")
    title.truncate(console.width - 8, overflow="ellipsis")
    yield Text.assemble(title, " ", ("─" * (console.width - title.cell_len - 1), "dim"))
    headline = list(_wrapped(Text(run.headline, f"bold {STYLES[run.tone]}"), console, space.headline))
    trust = list(_wrapped(Text(run.trust, STYLES["warning"]), console, 1)) if run.trust else []
    yield from trust + headline if run.is_overruled else headline + trust
    yield from _wrapped(Text(run.facts, style="dim"), console, space.facts)
    if run.parts:
        yield _bar(run.parts, console.width)
        yield from _rows(run.parts, console) if space.has_rows else _wrapped(_legend(run.parts), console, 2)
    if run.whole_run and space.facts > 1:
        yield from _wrapped(Text(f"Whole run: {run.whole_run}."), console, 5)
    yield from _doubts(run.doubts, space.doubts, console, space.more_doubts)
    yield Text()


def _closing_lines(found: Answer, console: Console, room: int) -> Iterator[Text]:
    """Yield what casts doubt on all runs, and what to do, as far as there is room for it."""
    doubts = list(_doubts(found.doubts, 4, console))
    doubts += [Text()] * bool(doubts)
    yield from doubts
    yield from _advice(found.advice, console, room - len(doubts))


def _hint(hint: Hint, width: int) -> str:
    """Return a command in one piece, which can be copied whole if the terminal breaks it."""
    whole = f"{hint.command}  {hint.remark}".rstrip()
    return whole if cell_len(whole) <= width else hint.command


def _advice(items: Sequence[InsightItem], console: Console, room: int) -> Iterator[Text]:
    """Yield the recommendations that fit into `room` lines, the first one cut if need be."""
    left = room - 1  # an empty line after them
    for number, item in enumerate(items, 1):
        text = Text(item.text)
        text.append(f" ({item.potential_saving})" if item.potential_saving else "", style="dim")
        lines = list(_wrapped(text, console, 2, indent=f"{number}. "))
        lines += _wrapped(Text(item.recommendation, style="bold"), console, 3, indent="   ")
        if number > 1 and len(lines) > left:
            break
        yield from lines
        left -= len(lines)
    if items:
        yield Text()


def _doubts(findings: Sequence[FindingLine], most: int, console: Console, more: int = 0) -> Iterator[Text]:
    """Yield errors and warnings, one line each, and up to `more` for all of them."""
    shown = findings[: most if len(findings) <= most else most - 1]
    for finding in shown:
        lines = list(_wrapped(Text(finding.text), console, 1 + more, indent=f"{finding.severity}  "))
        more -= len(lines) - 1
        lines[0].stylize(STYLES[finding.severity], 0, len(finding.severity))
        yield from lines
    if left := len(findings) - len(shown):
        worst = findings[len(shown)].severity
        plural = "s" if left > 1 else ""
        others = "more " if shown else ""
        yield Text(f"{left} {others}{'errors or warnings' if left > 1 else worst + plural}: see --full", STYLES[worst])


def _bar(parts: Sequence[Part], width: int) -> Text:
    """Return the step as one bar: each category gets cells by its share, at least one."""
    room = width - len(parts)
    ends = [round(room * sum(part.share for part in parts[: number + 1])) for number in range(len(parts))]
    cells = [end - start + 1 for start, end in zip([0, *ends], ends, strict=False)]
    bar = Text()
    for part, count in zip(parts, cells, strict=True):
        bar.append(FILLS[part.kind] * count, style=COLOURS[part.kind])
    return bar


def _rows(parts: Sequence[Part], console: Console) -> Iterator[Text]:
    """Yield the ledger's rows: what, how long, its share, and what takes most of it."""
    columns = [max(cell_len(getattr(part, name)) for part in parts) for name in ("label", "time", "percent")]
    for part in parts:
        row = Text.assemble(
            (FILLS[part.kind], COLOURS[part.kind]),
            f" {part.label:<{columns[0]}}  {part.time:>{columns[1]}}  {part.percent:>{columns[2]}}",
        )
        room = console.width - row.cell_len - 3
        place = part.place if cell_len(part.place) <= room else shorten(part.short_place, max(room, 1))
        row.append(f"  {place}" if place else "", style="dim")
        yield row


def _legend(parts: Iterable[Part]) -> Text:
    legend = Text()
    for part in parts:
        legend.append("   " if legend else "")
        legend.append(FILLS[part.kind], style=COLOURS[part.kind])
        legend.append(f" {part.label} {part.percent}".replace(" ", UNBROKEN))
    return legend


def _wrapped(text: Text, console: Console, most: int, indent: str = "") -> Iterator[Text]:
    """Yield a text's lines, at most `most`, the last one cut; `indent` stands before the first."""
    lines = wrap(text, console, console.width - len(indent) - 1)
    for number, line in enumerate(lines[:most]):
        if number == most - 1 and len(lines) > most:
            line.truncate(console.width - len(indent) - 3)
            line.append(" …")
        yield Text.assemble(indent if number == 0 else " " * len(indent), line)
