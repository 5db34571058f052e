"""Another tool's figures compared with perfkit's, and why they differ."""

from typing import Final

from perfkit.report.content.document import Cell, Column, Table
from perfkit.schema.run import CrossCheck, CrossCheckRow
from perfkit.util.formatting import difference, duration, escape_unprintable, format_percent, left_out

_ALIKE: Final = 0.001
"""A difference below this share of the window needs no explanation."""


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
            if name in apart and row.window_ns:
                apart[name] = max(apart[name], abs(ours - theirs) / row.window_ns)
    window, *work = map(format_percent, apart.values())
    return (
        f"{escape_unprintable(check.tool)} agrees in computing to within {work[0]} of the window, in communication and "
        f"copies {work[1]}, in the window itself {window}"
    )


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
                note=format_percent((ours - theirs) / row.window_ns if row.window_ns else None),
            ),
            Cell(_reason(name, ours - theirs, row) if is_hta else ""),
        )
        for name, ours, theirs in _figures(row)
    ]


def _reason(name: str, differs_ns: int, row: CrossCheckRow) -> str:
    if abs(differs_ns) <= _ALIKE * row.window_ns:
        return ""
    edges = row.window_ns - row.external_window_ns
    if name == "window":
        return _WINDOW if edges >= 0 else _WIDER
    if name == "idle":
        return f"{difference(edges)} at the window's edges, {difference(differs_ns - edges)} from the rows above"
    # Figures of different events differ for that reason alone, whatever else may be true.
    ours, theirs = row.device_events, row.external_device_events
    if ours is not None and theirs is not None and ours != theirs:
        return f"HTA has {theirs:,} device events, perfkit {ours:,}"
    # Rounding inwards can only make HTA's figure smaller.
    return _ROUNDING if 0 < differs_ns <= row.rounding_ns else _KINDS


_WINDOW: Final = "HTA's window spans the first to the last kernel, perfkit's the host's steps"
_WIDER: Final = "HTA counts events launched before the first step or running past the last"
_ROUNDING: Final = "HTA rounds each event inwards to µs"
_KINDS: Final = (
    "HTA classifies by name only, perfkit also by the launching operator; HTA counts synchronisation as work"
)
