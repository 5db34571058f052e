"""The tables of a run's roofline: what its operators achieved, by kind and by shapes, against the device's peaks."""

from collections.abc import Iterator, Sequence
from typing import Final

from perfkit.base.formatting import MISSING, duration, escape_unprintable, figures, format_percent, rate
from perfkit.records.per_rank.operator_work import MATRIX_KINDS, WORK_WORDS, NotModelled, UnmodelledOperator
from perfkit.records.per_rank.work_trees import merge_work
from perfkit.records.roofline import Roofline, RooflineRow
from perfkit.records.run import RunReport
from perfkit.tables.kernel_names import shorten
from perfkit.tables.specification import (
    RUN,
    Cell,
    Field,
    Listing,
    Table,
    data,
    data_of,
    joined,
    make_table,
    name,
    number,
    of_runs,
    words,
)

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


def tables(run: RunReport, top: int) -> Iterator[Table | None]:
    """Yield what operators achieved, by kind, by shapes and by module; none without recorded shapes."""
    roof = run.roofline
    if roof and roof.modelled_ns and roof.rank_steps:
        yield _by_kind(roof)
        yield _by_shapes(run, roof, top)
        yield _by_module(roof, top)


def _by_kind(roof: Roofline) -> Table | None:
    groups = {kind: [row for row in roof.rows if row.kind == kind] for kind in WORK_WORDS}
    ordered = sorted((rows for rows in groups.values() if rows), key=lambda rows: -_time(rows))
    columns = (words("kind", lambda rows: WORK_WORDS[rows[0].kind]), *_figures(roof))
    title = "Operators against the device's limits (mean per step and rank)"
    return make_table(title, ordered, columns, f"{_peaks(roof)}; {_not_modelled(roof)}")


def _by_shapes(run: RunReport, roof: Roofline, top: int) -> Table | None:
    """Return what operators achieved, by their shapes, longest time first."""
    listed = [row for row in roof.rows if row.shapes]
    left = [row for row in roof.rows if not row.shapes] + listed[top:]
    columns = (Field("operator and shapes", lambda rows: _operator(rows[0]), "words"), *_figures(roof))
    remark = joined(_left(left, roof), _by_itself(run), by=". ")
    title = "Operators by shape (mean per step and rank)"
    return make_table(title, [[row] for row in listed], columns, remark, top=top)


def _operator(row: RooflineRow) -> Cell:
    return Cell(escape_unprintable(row.operator).removeprefix("aten::"), f"{row.shapes} {element_type(row)}")


def _left(rows: Sequence[RooflineRow], roof: Roofline) -> str:
    return f"{len(rows):,} more rows, {duration(_time(rows) / roof.rank_steps)}" if rows else ""


def _by_itself(run: RunReport) -> str:
    """Return where the parts of these rows are, if they are shown: an operator counts with those that it calls."""
    work = merge_work(run.ranks)
    if work is None or not any(row.inputs for row in work.kernels):
        return ""
    what = "Device time by kernel" if work.on == "device" else "Operators' time by operator"
    return f"Each row includes what the operator calls; for the parts alone, see '{what} and inputs'"


def _by_module(roof: Roofline, top: int) -> Table | None:
    """Return the share of the device's peak by class of module; None without modules or products."""
    rows = [row for row in roof.modules if row.flops and row.total_ns]
    columns = (
        name("module", lambda row: " > ".join(row.path[-_MOST_LEVELS:])),
        number("time", lambda row: row.total_ns / roof.rank_steps, duration),
        number("share", lambda row: row.total_ns / roof.total_ns, format_percent),
        number("FLOP", lambda row: rate(row.flops / roof.rank_steps, "FLOP").removesuffix("FLOP/s").strip()),
        number("FLOP/s", lambda row: _rate(row.flops, row.total_ns, "FLOP")),
        *([number("MFU", lambda row: row.mfu, format_percent)] if roof.peaks else []),
    )
    remark = "each with the modules within it; FLOP: of matrix products, attention and convolutions"
    remark = joined(remark, f"{len(rows) - top} more" if len(rows) > top else "")
    title = "Modules against the device's peak (compute time, mean per step and rank)"
    return make_table(title, rows, columns, remark, top=top)


def element_type(row: RooflineRow) -> str:
    """Return the type of a row's elements; what used tensor cores for float32 is called tf32."""
    return MISSING if row.dtype is None else "tf32" if row.tensor_cores else row.dtype


def _time(rows: Sequence[RooflineRow]) -> int:
    return sum(row.total_ns for row in rows)


def _figures(roof: Roofline) -> tuple[Field, ...]:
    """Return the columns of figures of several rows of the roofline."""

    def flops(rows: Sequence[RooflineRow]) -> float:
        return sum(row.flops for row in rows)

    def moved(rows: Sequence[RooflineRow]) -> float:
        return sum(row.bytes for row in rows)

    return (
        number("time", lambda rows: _time(rows) / roof.rank_steps, duration),
        number("share", lambda rows: _time(rows) / roof.total_ns, format_percent),
        number("FLOP/s", lambda rows: _rate(flops(rows), _time(rows), "FLOP")),
        number("B/s", lambda rows: _rate(moved(rows), _time(rows), "B")),
        number("FLOP/B", lambda rows: flops(rows) / moved(rows) if flops(rows) and moved(rows) else None, figures),
        *([number("% of bound", _share, format_percent, note=_bound)] if roof.peaks else []),
    )


def _rate(amount: float, ns: int, unit: str) -> str:
    """Return a rate without the `/s` and the unit that the column's title has."""
    return rate(amount / ns * 1e9, unit).removesuffix(f"{unit}/s").strip() if amount and ns else MISSING


def _bound(rows: Sequence[RooflineRow]) -> str:
    """Return what bounds operators: of several, what bounds more of the time comes first; empty if unknown."""
    time = {bound: sum(row.total_ns for row in rows if row.bound == bound) for bound in ("compute", "memory")}
    return ", ".join(bound for bound, ns in sorted(time.items(), key=lambda pair: -pair[1]) if ns)


def _share(rows: Sequence[RooflineRow]) -> float | None:
    """Return the least time / time; None unless it is known of all."""
    total_ns = _time(rows)
    bounds = [row.bound_ns for row in rows]
    return sum(one for one in bounds if one is not None) / total_ns if total_ns and None not in bounds else None


def _peaks(roof: Roofline) -> str:
    if roof.peaks is None:
        return f"no share of a bound: {escape_unprintable(roof.reason or '')}"
    types = {element_type(row) for row in roof.rows if row.kind in MATRIX_KINDS}
    peaks = [(dtype, value) for dtype, value in roof.peaks.tflops.items() if dtype in types]
    tflops = "".join(f"{dtype} {rate(value * 1e12, 'FLOP')}, " for dtype, value in peaks)
    device, source = escape_unprintable(roof.peaks.name), escape_unprintable(roof.peaks.source or "no source")
    return f"{device}: {tflops}memory {rate(roof.peaks.bytes_per_s, 'B')} ({source})"


def _not_modelled(roof: Roofline) -> str:
    """Return how much of the time is not modelled, by reason, with the largest of the operators."""
    left_ns = roof.total_ns - roof.modelled_ns
    if not left_ns:
        return "all of the compute time is modelled"
    parts = []
    for reason, why in _REASONS.items():
        rows = [row for row in roof.unmodelled if row.reason == reason]
        spent = sum(row.total_ns for row in rows)
        if spent >= _SMALLEST_SHARE * roof.total_ns:
            parts.append(f"{why} {format_percent(spent / roof.total_ns)}{_names(rows, roof)}")
    listed = f": {'; '.join(parts)}" if parts else ""
    return f"not modelled: {format_percent(left_ns / roof.total_ns)} of compute{listed}"


def _names(rows: Sequence[UnmodelledOperator], roof: Roofline) -> str:
    named = [row for row in rows if row.total_ns >= _SMALLEST_SHARE * roof.total_ns][:_MOST_NAMED]
    return f" ({', '.join(shorten(escape_unprintable(row.operator), _LONGEST_NAME) for row in named)})" if named else ""


LISTINGS: Final = {
    "roofline": Listing(
        of_runs(lambda run: run.roofline.rows if run.roofline else ()),
        (
            RUN,
            data("device", str, lambda row: row.run.roofline.device),
            *data_of(RooflineRow, bytes=int | None),
            data("flops_per_s", float | None, lambda row: row.of.flops_per_s),
            data("bytes_per_s", float | None, lambda row: row.of.bytes_per_s),
            data("intensity", float | None, lambda row: row.of.intensity),
            data("share", float | None, lambda row: row.of.share),
        ),
    )
}
