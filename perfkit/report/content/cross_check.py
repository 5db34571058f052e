"""Another tool's figures compared with perfkit's, and why they differ."""

from collections.abc import Iterator
from typing import Final

from perfkit.report.content.document import Cell, Column, Table
from perfkit.schema.run import CrossCheck, CrossCheckRow
from perfkit.util.formatting import difference, duration, escape_unprintable, format_percent, left_out

_ALIKE: Final = 0.001
"""A difference below this share of the larger figure needs no explanation."""


def cross_check(check: CrossCheck | None, top: int) -> Table | None:
    """Return perfkit's figures, the other tool's and the reasons for differences, for the ranks that differ most."""
    if check is None or not check.rows:
        return None
    ordered = sorted(check.rows, key=lambda row: -abs(row.idle_ns - row.external_idle_ns))
    left = len(ordered) - top
    return Table(
        f"Cross-check: {escape_unprintable(check.tool)}, summed over all steps",
        (
            Column("rank"),
            Column("time", "words"),
            Column("perfkit"),
            Column("HTA" if _is_hta(check) else "other tool"),
            Column("difference"),
            Column("reason", "words"),
        ),
        [line for row in ordered[:top] for line in _lines(row, _is_hta(check))],
        f"{left_out(left, 'rank')} with smaller differences" if left > 0 else "",
    )


def cross_check_sentence(check: CrossCheck | None) -> str:
    """Return how far the other tool's figures are from perfkit's on any rank; empty without a cross-check."""
    if check is None or not check.rows:
        return ""
    apart = dict.fromkeys(("window", "computing", "communication, copies"), 0.0)
    for row in check.rows:
        for name, ours, theirs in _figures(row):
            if name in apart:
                apart[name] = max(apart[name], abs(_apart(ours, theirs)))
    tool = escape_unprintable(check.tool)
    if not any(apart.values()):
        return f"{tool} has the same window, computing, communication and copies"
    window, *work = map(format_percent, apart.values())
    return (
        f"{tool} differs by at most {work[0]} in computing, {work[1]} in communication and copies, {window} in the "
        "window"
    )


def _apart(ours: int, theirs: int) -> float:
    """Return the difference as a share of the larger figure; 0 where both are 0."""
    return (ours - theirs) / (max(ours, theirs) or 1)


def _is_hta(check: CrossCheck) -> bool:
    return check.tool.lower().startswith(("holistictraceanalysis", "traceinsight", "hta"))


def _figures(row: CrossCheckRow) -> tuple[tuple[str, int, int], ...]:
    """Return the name of each time, and what perfkit and the other tool say (ns)."""
    return (
        ("window", row.window_ns, row.external_window_ns),
        ("computing", row.compute_ns, row.external_compute_ns),
        ("communication, copies", row.other_ns, row.external_other_ns),
        ("idle", row.idle_ns, row.external_idle_ns),
    )


def _lines(row: CrossCheckRow, is_hta: bool) -> list[tuple[Cell, ...]]:
    return [
        (
            Cell(str(row.rank) if name == "window" else ""),
            Cell(name),
            Cell(duration(ours)),
            Cell(duration(theirs)),
            Cell(
                difference(ours - theirs),
                note=format_percent(_apart(ours, theirs)),
            ),
            Cell(_reason(name, ours, theirs, row) if is_hta else ""),
        )
        for name, ours, theirs in _figures(row)
    ]


def _reason(name: str, ours: int, theirs: int, row: CrossCheckRow) -> str:
    differs_ns = ours - theirs
    if abs(_apart(ours, theirs)) <= _ALIKE:
        return ""
    edges = row.window_ns - row.external_window_ns
    if name == "window":
        return _WINDOW if edges >= 0 else _WIDER
    if name == "idle":
        return f"{difference(edges)} at the window's edges, {difference(differs_ns - edges)} from the rows above"
    found = list(_other_events(name, row))
    if not found and 0 < differs_ns <= row.rounding_ns:  # rounding inwards can only make HTA's figure smaller
        found = [_ROUNDING]
    return "; ".join(found) or _UNKNOWN


def _other_events(name: str, row: CrossCheckRow) -> Iterator[str]:
    """Yield what one counts and the other does not: figures of different events differ for that reason alone."""
    if _more(row.external_device_events, row.device_events):
        yield f"HTA has {row.external_device_events:,} device events, perfkit {row.device_events:,}"
    elif more := _more(row.external_computing_events, row.computing_events):
        yield f"HTA, which knows only names, counts {abs(more):,} {'more' if more > 0 else 'fewer'} as computing"
    if row.external_host_events:
        yield f"HTA counts {_counted(row.external_host_events, 'host operator')} with a stream as device work"
    if row.external_synchronisations and name != "computing":
        yield f"HTA counts {_counted(row.external_synchronisations, 'synchronisation')} as work"


def _more(theirs: int | None, ours: int | None) -> int:
    """Return how many more events the other tool counts; 0 if one of the two does not tell."""
    return 0 if theirs is None or ours is None else theirs - ours


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


_WINDOW: Final = "HTA's window spans the first to the last kernel, perfkit's the host's steps"
_WIDER: Final = "HTA counts events launched before the first step or running past the last"
_ROUNDING: Final = "HTA rounds each event inwards to µs"
_UNKNOWN: Final = "unknown"
