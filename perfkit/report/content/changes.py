"""Cells of a time before and after, as the tables of benchmarks have them."""

from typing import Protocol

from perfkit.report.content.document import Cell, Column
from perfkit.util.formatting import MISSING, duration, percent_change


class TimeChange(Protocol):
    """A time before and after."""

    @property
    def before_ns(self) -> float:
        """Time before."""

    @property
    def after_ns(self) -> float:
        """Time after."""

    @property
    def ratio(self) -> float:
        """Time after / before."""

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % interval of the ratio."""

    @property
    def significant(self) -> bool | None:
        """Whether it is a change; None if unknown."""


def change_columns() -> tuple[Column, ...]:
    """Return the columns of `change_cells`."""
    return Column("before"), Column("after"), Column("ratio"), Column("95 % interval"), Column("change", "words")


def change_cells(change: TimeChange) -> tuple[Cell, ...]:
    """Return both times, their ratio with its interval, and the change in words."""
    low_high = MISSING if change.interval is None else f"{change.interval[0]:.2f} to {change.interval[1]:.2f}"
    return (
        Cell(duration(change.before_ns)),
        Cell(duration(change.after_ns)),
        Cell(f"{change.ratio:.3f}"),
        Cell(low_high),
        _verdict(change),
    )


def _verdict(change: TimeChange) -> Cell:
    if not change.significant:
        return Cell("" if change.significant is None else "within noise", tone="faint")
    return Cell(percent_change(change.ratio), tone="warning" if change.ratio > 1 else "good")
