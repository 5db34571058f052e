"""The ledger of a run as a table, and as parts of a bar."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from perfkit.base.formatting import duration, format_percent, format_percents
from perfkit.records.aggregate import REPORTED_SHARE
from perfkit.records.per_rank.idle import CAUSES
from perfkit.records.per_run.ledger import Ledger, LedgerRow
from perfkit.records.run import RunReport
from perfkit.report.wording.ledger import label, places
from perfkit.tables.labels import COLOURS, PATTERNS
from perfkit.tables.specification import Table, make_table, number, words

MOST_ROWS: Final = 6
"""Most rows that are shown; the others are added up."""
_OTHERS: Final = "other"
_NOTHING: Final = format_percent(0)


@dataclass(frozen=True, slots=True)
class Part:
    """A row of the ledger, or several."""

    cause: str
    """Of a row; `other` for several."""
    kind: str
    """Whose character a bar of a terminal has: the cause, or for causes of idle time their category."""
    label: str
    share: float
    percent: str
    time: str
    place: str
    """What takes most of it; empty if unknown."""
    short_place: str = ""
    """The same where there is less room."""


def parts(ledger: Ledger) -> list[Part]:
    """Return the rows of a ledger, largest first; of many, or of small ones, the rest as one."""
    large = [row for row in ledger.rows if row.share >= REPORTED_SHARE]
    shown = large if len(large) < MOST_ROWS or len(large) == len(ledger.rows) == MOST_ROWS else large[: MOST_ROWS - 1]
    left_ns = ledger.step_ns - sum(row.ns for row in shown)
    percents = format_percents([*(row.ns for row in shown), left_ns])
    found = [
        Part(
            row.cause,
            _kind(row),
            label(row),
            row.share,
            percent,
            duration(row.ns),
            *places(row),
        )
        for row, percent in zip(shown, percents, strict=False)
    ]
    if percents[-1] != _NOTHING:
        found.append(Part(_OTHERS, _OTHERS, _OTHERS, left_ns / ledger.step_ns, percents[-1], duration(left_ns), ""))
    return found


def _kind(row: LedgerRow) -> str:
    if row.cause == "unrecorded":
        return _OTHERS
    return "overhead" if row.cause in CAUSES else row.cause


def _title(ledger: Ledger) -> str:
    kind = "profiled step" if ledger.is_profiled else "step"
    return f"Where the mean {kind} of {duration(ledger.step_ns)} goes"


def table(run: RunReport) -> Table | None:
    """Return where the mean step's time goes; None if unknown."""
    if run.ledger is None:
        return None
    remark = (
        "along the critical path: what delayed the end of the step"
        if run.ledger.from_path
        else "mean over ranks: without the dependencies between them"
    )
    return make_table(_title(run.ledger), parts(run.ledger), _COLUMNS, remark)


_COLUMNS: Final = (
    words("what", lambda part: part.label),
    number("time", lambda part: part.time),
    number("%", lambda part: part.percent),
    words("mostly", lambda part: part.place),
)


# ---- page ----------------------------------------------------------------------------------------------------------


class DrawnRow(NamedTuple):
    """A part of the step."""

    label: str
    time: str
    """Of the mean step, with its unit."""
    share: float
    """Of the step, 0 to 1."""
    percent: str
    colour: str
    """As CSS has it."""
    pattern: str = ""
    """Its hatching, as in `perfkit.tables.labels.PATTERNS`."""
    place: str = ""
    """What takes most of it; empty if unknown."""


class DrawnLedger(NamedTuple):
    """A step and its parts, which add up to it."""

    title: str
    rows: list[DrawnRow]


def drawn_ledger(run: RunReport, parts: Sequence[Part]) -> DrawnLedger | None:
    """Return the rows of a run's ledger; None without one."""
    if run.ledger is None:
        return None
    rows = [
        DrawnRow(
            part.label,
            part.time,
            part.share,
            part.percent,
            COLOURS[part.cause],
            PATTERNS.get(part.kind, ""),
            part.place,
        )
        for part in parts
    ]
    return DrawnLedger(_title(run.ledger), rows)
