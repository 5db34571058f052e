"""Another tool's figures compared with perfkit's, and why they differ."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from perfkit.base.formatting import difference, duration, escape_unprintable, format_percent, left_out
from perfkit.records.run import CrossCheck, CrossCheckRow, RunReport
from perfkit.tables.specification import Table, make_table, number, words

_ALIKE: Final = 0.001
"""A difference below this share of the larger figure needs no explanation."""


class _Figure(NamedTuple):
    """A time of a rank: perfkit's and the other tool's (ns)."""

    row: CrossCheckRow
    name: str
    ours: int
    theirs: int

    @property
    def apart(self) -> float:
        """The difference as a share of the larger figure; 0 where both are 0."""
        return (self.ours - self.theirs) / (max(self.ours, self.theirs) or 1)


def tables(run: RunReport, top: int) -> Iterator[Table | None]:
    """Yield perfkit's figures, the other tool's and the reasons for differences, for the ranks that differ most."""
    if run.cross_check is not None:
        yield cross_check(run.cross_check, top)


def cross_check(check: CrossCheck, top: int) -> Table | None:
    """Return the table of a cross-check; None without rows."""
    ordered = sorted(check.rows, key=lambda row: -abs(row.idle_ns - row.external_idle_ns))
    left, is_hta = len(ordered) - top, check.tool.lower().startswith(("holistictraceanalysis", "traceinsight", "hta"))
    columns = (
        number("rank", lambda figure: figure.row.rank if figure.name == "window" else ""),
        words("time", lambda figure: figure.name),
        number("perfkit", lambda figure: figure.ours, duration),
        number("HTA" if is_hta else "other tool", lambda figure: figure.theirs, duration),
        number(
            "difference",
            lambda figure: figure.ours - figure.theirs,
            difference,
            note=lambda figure: format_percent(figure.apart),
        ),
        words("reason", lambda figure: _reason(figure) if is_hta else ""),
    )
    title = f"Cross-check: {escape_unprintable(check.tool)}, summed over all steps"
    remark = f"{left_out(left, 'rank')} with smaller differences" if left > 0 else ""
    return make_table(title, [figure for row in ordered[:top] for figure in _figures(row)], columns, remark)


def cross_check_sentence(check: CrossCheck | None) -> str:
    """Return how far the other tool's figures are from perfkit's on any rank; empty without a cross-check."""
    if check is None or not check.rows:
        return ""
    apart = dict.fromkeys(("window", "computing", "communication, copies"), 0.0)
    for row in check.rows:
        for figure in _figures(row):
            if figure.name in apart:
                apart[figure.name] = max(apart[figure.name], abs(figure.apart))
    tool = escape_unprintable(check.tool)
    if not any(apart.values()):
        return f"{tool} has the same window, computing, communication and copies"
    window, *work = map(format_percent, apart.values())
    return (
        f"{tool} differs by at most {work[0]} in computing, {work[1]} in communication and copies, {window} in the "
        "window"
    )


def _figures(row: CrossCheckRow) -> tuple[_Figure, ...]:
    return (
        _Figure(row, "window", row.window_ns, row.external_window_ns),
        _Figure(row, "computing", row.compute_ns, row.external_compute_ns),
        _Figure(row, "communication, copies", row.other_ns, row.external_other_ns),
        _Figure(row, "idle", row.idle_ns, row.external_idle_ns),
    )


def _reason(figure: _Figure) -> str:
    row, name, differs_ns = figure.row, figure.name, figure.ours - figure.theirs
    if abs(figure.apart) <= _ALIKE:
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
