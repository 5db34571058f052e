"""The tables of a run's roofline: what its operators achieved, by kind and by shapes, against the device's peaks."""

from collections.abc import Sequence

from perfkit.report.content.document import Cell, Column, Table
from perfkit.report.content.kernel_names import shorten
from perfkit.schema.per_rank.operator_work import MATRIX_KINDS, WORK_WORDS, NotModelled, UnmodelledOperator
from perfkit.schema.per_rank.work_trees import merge_work
from perfkit.schema.roofline import Roofline, RooflineRow
from perfkit.schema.run import RunReport
from perfkit.util.formatting import MISSING, duration, escape_unprintable, figures, format_percent, rate

_SMALLEST_SHARE = 0.005
"""Share of the time that an operator without a model needs to be named."""
_MOST_NAMED = 3
_LONGEST_NAME = 48
_MOST_LEVELS = 2
"""Of a path of modules, the innermost that are shown."""
_REASONS: dict[NotModelled, str] = {
    "no_model": "without a model",
    "no_shapes": "with unknown shapes",
    "calls_others": "own time of operators that call others",
    "no_operator": "kernels whose launch is not recorded, so that rates may be too high",
}


def by_kind(run: RunReport) -> Table | None:
    """Return what the kinds of operators achieved; None without recorded shapes."""
    roof = _known(run)
    if roof is None:
        return None
    groups = {kind: [row for row in roof.rows if row.kind == kind] for kind in WORK_WORDS}
    ordered = sorted((rows for rows in groups.values() if rows), key=lambda rows: -_time(rows))
    return Table(
        "Operators against the device's limits (mean per step and rank)",
        (Column("kind", "words"), *_figure_columns(roof)),
        [(Cell(WORK_WORDS[rows[0].kind]), *_figures(rows, roof)) for rows in ordered],
        f"{_peaks(roof)}; {_not_modelled(roof)}",
    )


def by_shapes(run: RunReport, top: int) -> Table | None:
    """Return what operators achieved, by their shapes, longest time first; None without recorded shapes."""
    roof = _known(run)
    if roof is None:
        return None
    listed = [row for row in roof.rows if row.shapes]
    left = [row for row in roof.rows if not row.shapes] + listed[top:]
    return Table(
        "Operators by shape (mean per step and rank)",
        (Column("operator and shapes", "words"), *_figure_columns(roof)),
        [
            (
                Cell(escape_unprintable(row.operator).removeprefix("aten::"), f"{row.shapes} {element_type(row)}"),
                *_figures([row], roof),
            )
            for row in listed[:top]
        ],
        ". ".join(filter(None, (_left(left, roof), _by_itself(run)))),
    )


def _left(rows: Sequence[RooflineRow], roof: Roofline) -> str:
    return f"{len(rows):,} more rows, {duration(_time(rows) / roof.rank_steps)}" if rows else ""


def _by_itself(run: RunReport) -> str:
    """Return where the parts of these rows are, if they are shown: an operator counts with those that it calls."""
    work = merge_work(run.ranks)
    if work is None or not any(row.inputs for row in work.kernels):
        return ""
    what = "Device time by kernel" if work.on == "device" else "Operators' time by operator"
    return f"Each row includes what the operator calls; for the parts alone, see '{what} and inputs'"


def by_module(run: RunReport, top: int) -> Table | None:
    """Return the share of the device's peak by class of module; None without shapes, modules or products."""
    roof = _known(run)
    rows = [row for row in roof.modules if row.flops and row.total_ns] if roof else []
    if roof is None or not rows:
        return None
    mfu = (Column("MFU"),) if roof.peaks else ()
    return Table(
        "Modules against the device's peak (compute time, mean per step and rank)",
        (Column("module", "name"), Column("time"), Column("share"), Column("FLOP"), Column("FLOP/s"), *mfu),
        [
            (
                Cell(" > ".join(map(escape_unprintable, row.path[-_MOST_LEVELS:]))),
                Cell(duration(row.total_ns / roof.rank_steps)),
                Cell(format_percent(row.total_ns / roof.total_ns)),
                Cell(rate(row.flops / roof.rank_steps, "FLOP").removesuffix("FLOP/s").strip()),
                Cell(_rate(row.flops, row.total_ns, "FLOP")),
                *((Cell(format_percent(row.mfu)),) if roof.peaks else ()),
            )
            for row in rows[:top]
        ],
        "each with the modules within it; FLOP: of matrix products, attention and convolutions"
        + (f"; {len(rows) - top} more" if len(rows) > top else ""),
    )


def element_type(row: RooflineRow) -> str:
    """Return the type of a row's elements; what used tensor cores for float32 is called tf32."""
    return MISSING if row.dtype is None else "tf32" if row.tensor_cores else row.dtype


def _figure_columns(roof: Roofline) -> tuple[Column, ...]:
    bound = (Column("% of bound"),) if roof.peaks else ()
    return (Column("time"), Column("share"), Column("FLOP/s"), Column("B/s"), Column("FLOP/B"), *bound)


def _known(run: RunReport) -> Roofline | None:
    return run.roofline if run.roofline and run.roofline.modelled_ns and run.roofline.rank_steps else None


def _time(rows: Sequence[RooflineRow]) -> int:
    return sum(row.total_ns for row in rows)


def _figures(rows: Sequence[RooflineRow], roof: Roofline) -> tuple[Cell, ...]:
    total_ns, flops, moved = _time(rows), sum(row.flops for row in rows), sum(row.bytes for row in rows)
    bound = (Cell(format_percent(_share(rows)), _bound(rows)),) if roof.peaks else ()
    return (
        Cell(duration(total_ns / roof.rank_steps)),
        Cell(format_percent(total_ns / roof.total_ns)),
        Cell(_rate(flops, total_ns, "FLOP")),
        Cell(_rate(moved, total_ns, "B")),
        Cell(figures(flops / moved) if flops and moved else MISSING),
        *bound,
    )


def _rate(amount: float, ns: int, unit: str) -> str:
    """Return a rate without the `/s` and the unit that the column's title has."""
    return rate(amount / ns * 1e9, unit).removesuffix(f"{unit}/s").strip() if amount and ns else MISSING


def _bound(rows: Sequence[RooflineRow]) -> str:
    """Return what bounds operators: of several, what bounds more of the time comes first; empty if unknown."""
    time = {bound: sum(row.total_ns for row in rows if row.bound == bound) for bound in ("compute", "memory")}
    return ", ".join(name for name, ns in sorted(time.items(), key=lambda pair: -pair[1]) if ns)


def _share(rows: Sequence[RooflineRow]) -> float | None:
    """Return the least time / time; None unless it is known of all."""
    total_ns = _time(rows)
    bounds = [row.bound_ns for row in rows]
    return sum(one for one in bounds if one is not None) / total_ns if total_ns and None not in bounds else None


def _peaks(roof: Roofline) -> str:
    if roof.peaks is None:
        return f"no share of a bound: {escape_unprintable(roof.reason or '')}"
    types = {element_type(row) for row in roof.rows if row.kind in MATRIX_KINDS}
    peaks = [(name, value) for name, value in roof.peaks.tflops.items() if name in types]
    tflops = "".join(f"{name} {rate(value * 1e12, 'FLOP')}, " for name, value in peaks)
    name, source = escape_unprintable(roof.peaks.name), escape_unprintable(roof.peaks.source or "no source")
    return f"{name}: {tflops}memory {rate(roof.peaks.bytes_per_s, 'B')} ({source})"


def _not_modelled(roof: Roofline) -> str:
    """Return how much of the time is not modelled, by reason, with the largest of the operators."""
    left_ns = roof.total_ns - roof.modelled_ns
    if not left_ns:
        return "all of the compute time is modelled"
    parts = []
    for reason, words in _REASONS.items():
        rows = [row for row in roof.unmodelled if row.reason == reason]
        spent = sum(row.total_ns for row in rows)
        if spent >= _SMALLEST_SHARE * roof.total_ns:
            parts.append(f"{words} {format_percent(spent / roof.total_ns)}{_names(rows, roof)}")
    listed = f": {'; '.join(parts)}" if parts else ""
    return f"not modelled: {format_percent(left_ns / roof.total_ns)} of compute{listed}"


def _names(rows: Sequence[UnmodelledOperator], roof: Roofline) -> str:
    named = [row for row in rows if row.total_ns >= _SMALLEST_SHARE * roof.total_ns][:_MOST_NAMED]
    return f" ({', '.join(shorten(escape_unprintable(row.operator), _LONGEST_NAME) for row in named)})" if named else ""
