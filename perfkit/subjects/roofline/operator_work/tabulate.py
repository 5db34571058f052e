"""Add up the work and the time of a rank's operators, by operator and shapes (metrics.md section 18)."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.engine.attribution.call_paths import PathTable, PathTexts, sum_by
from perfkit.engine.attribution.views import Located
from perfkit.engine.breakdown import Activity
from perfkit.engine.kinds.classify import (
    Device,
    Names,
    data_loading_rows,
    in_compilation,
    innermost_at_launch,
    nested_on_thread,
)
from perfkit.engine.steps.windows import Steps
from perfkit.engine.trace_context import TraceContext
from perfkit.records.per_rank.operator_work import (
    FLOAT32_OR_TF32,
    MATRIX_KINDS,
    MOST_WORK,
    TF32,
    ModuleWork,
    NotModelled,
    OperatorWork,
    RankWork,
    UnmodelledOperator,
    add_modules,
    add_operator_work,
    add_unmodelled,
)
from perfkit.subjects.roofline.operator_work.known_work import (
    DistinctCall,
    KnownWork,
    Owners,
    find_known_work,
    find_owners,
)
from perfkit.trace.events import EventKind, Events
from perfkit.trace.intervals import Ints

_TENSOR_CORES: Final = re.compile(r"tf32|s1688|xf32", re.IGNORECASE)
_NO_TENSOR_CORES: Final = re.compile(r"sgemm|simt|ffma", re.IGNORECASE)
"""What names of float32 kernels tell: cutlass_80_tensorop_s1688gemm, sm80_xmma_gemm_f32f32_tf32f32_f32; ampere_sgemm,
cutlass_80_simt_sgemm."""
_UNKNOWN, _WITHOUT, _WITH = range(3)


class _Time(NamedTuple):
    """Time, by the operator that it belongs to; columns of shape (t,)."""

    row: Ints
    """Row in `Events` of the operator or kernel."""
    place: Ints
    """Place of the operator among the rows; -1 if unknown."""
    name: Ints
    """Name of the operator, or of the kernel if its operator is unknown."""
    ns: Ints
    tensor_cores: Ints
    """What the kernel's name shows of them."""


def tabulate_operator_work(trace: TraceContext) -> RankWork | None:
    """Return the work of the operators in the steps; None without recorded shapes, or if their times are unknown."""
    events, names, device, steps = trace.events, trace.names, trace.device, trace.steps
    if trace.is_light or not len(events.operator_args.inputs_row) or trace.lacks_device_events:
        return None
    rows = events.rows(EventKind.OPERATOR)
    if not len(device.row):
        rows = _computing(events, names, rows[steps.within(events.start_ns[rows])])
    known = find_known_work(events, rows)
    composite = np.array([call.is_composite for call in known.calls], np.bool_)
    is_modelled = known.call >= 0
    is_composite = is_modelled & composite[known.call] if len(composite) else is_modelled
    owners = find_owners(events, rows, is_modelled, is_composite)
    times = _on_device(events, device, steps, rows) if len(device.row) else _on_host(events, trace.activity, rows)
    if len(device.row):  # what launches kernels itself is not waiting for those that it calls
        owners = owners._replace(calls_others=np.zeros_like(owners.calls_others))
    return _tabulate(events, rows, known, owners, times, trace.located)


def _computing(events: Events, names: Names, rows: Ints) -> Ints:
    """Return the operators that compute: neither communicate nor load data nor belong to a compiler."""
    loading = nested_on_thread(events, rows, data_loading_rows(events, names))
    return rows[~loading & ~in_compilation(events, names, rows) & ~names.communication_operator[events.name[rows]]]


def _on_host(events: Events, activity: Activity, rows: Ints) -> _Time:
    return _Time(
        rows, np.arange(len(rows)), events.name[rows].astype(np.int64), activity.self_ns[rows], np.zeros_like(rows)
    )


def _on_device(events: Events, device: Device, steps: Steps, rows: Ints) -> _Time:
    """Return the time of compute kernels, by the innermost operator at their launch."""
    computing = device.is_compute & (steps.device_step >= 0)
    kernel = device.row[computing]
    operator = innermost_at_launch(events, device.launch_row[computing], events.kind == EventKind.OPERATOR)
    place = np.where(operator >= 0, np.searchsorted(rows, operator), -1)
    of_name = np.zeros(len(events.names), np.int64)
    for name in events.names_of(kernel).tolist():
        text = events.names[name]
        of_name[name] = _WITH if _TENSOR_CORES.search(text) else _WITHOUT if _NO_TENSOR_CORES.search(text) else _UNKNOWN
    return _Time(
        kernel,
        place,
        events.name[np.where(operator >= 0, operator, kernel)].astype(np.int64),
        events.end_ns[kernel] - events.start_ns[kernel],
        of_name[events.name[kernel]],
    )


def _tabulate(events: Events, rows: Ints, known: KnownWork, owners: Owners, times: _Time, located: Located) -> RankWork:
    place = np.where(times.place >= 0, owners.place[times.place], -1) if len(rows) else times.place
    owned = place >= 0
    calls = known.calls
    return RankWork(
        total_ns=int(times.ns.sum()),
        operators=add_operator_work(
            _modelled(calls, known.call, place[owned], times.ns[owned], times.tensor_cores[owned])
        ),
        unmodelled=add_unmodelled(_unmodelled(events, rows, known, owners, times, ~owned)),
        modules=tabulate_modules(located, times.row, times.ns, _matrix_flops(known, place, times.tensor_cores))
        if located.has("module")
        else [],
    )


def _matrix_flops(known: KnownWork, owner: Ints, tensor_cores: Ints) -> dict[str, Ints]:
    """Return the operations of matrix products at the first piece of time of each call, by the type of their peak."""
    called, first, which = np.unique(owner, return_index=True, return_inverse=True)
    cores = np.zeros(len(called), np.int64)
    np.maximum.at(cores, which, tensor_cores)
    counts = called >= 0
    first, cores, call = first[counts], cores[counts], known.call[called[counts]]
    found: dict[str, Ints] = {}
    for name in sorted({peak for one in known.calls for peak in _peaks_of(one) if peak}):
        flops = np.array(
            [[peak == name and one.work.flops for peak in _peaks_of(one)] for one in known.calls], np.int64
        )
        column = np.zeros(len(owner), np.int64)
        column[first] = np.array(flops, np.int64)[call, cores]
        found[name] = column
    return found


def _peaks_of(call: DistinctCall) -> tuple[str, str, str]:
    """Return the peak that a call is compared with, by what its kernels tell of tensor cores; empty for none."""
    if call.kind not in MATRIX_KINDS or call.work.dtype is None:
        return "", "", ""
    if call.work.dtype != "float32":
        return call.work.dtype, call.work.dtype, call.work.dtype
    return FLOAT32_OR_TF32, "float32", TF32


def _modelled(
    calls: Sequence[DistinctCall], call: Ints, owner: Ints, ns: Ints, tensor_cores: Ints
) -> Iterable[OperatorWork]:
    """Yield a row per distinct call; a call of an operator counts once, however many kernels it launched."""
    at, which = np.unique(owner, return_inverse=True)
    total_ns = sum_by(which, ns, len(at))
    # One kernel with tensor cores is enough: others of the call convert or add up.
    cores = np.zeros(len(at), np.int64)
    np.maximum.at(cores, which, tensor_cores)
    key = call[at] * 3 + cores
    distinct, of = np.unique(key, return_inverse=True)
    spent = sum_by(of, total_ns, len(distinct))
    counts = np.bincount(of, minlength=len(distinct))
    for one, count, spent_ns in zip(distinct.tolist(), counts.tolist(), spent.tolist(), strict=True):
        found = calls[one // 3]
        is_float32 = found.kind in MATRIX_KINDS and found.work.dtype == "float32"
        yield OperatorWork(
            kind=found.kind,
            operator=found.operator,
            shapes=found.shapes,
            dtype=found.work.dtype,
            tensor_cores={_WITH: True, _WITHOUT: False}.get(one % 3) if is_float32 else None,
            count=count,
            total_ns=spent_ns,
            flops=min(count * found.work.flops, MOST_WORK),
            bytes=min(count * found.work.bytes, MOST_WORK),
        )


def _unmodelled(
    events: Events, rows: Ints, known: KnownWork, owners: Owners, times: _Time, without: NDArray[np.bool_]
) -> Iterable[UnmodelledOperator]:
    place, name, ns = times.place[without], times.name[without], times.ns[without]
    has_place = place >= 0
    reason = np.full(len(place), 3, np.int64)
    if len(rows):
        at = place[has_place]
        without_shapes = known.has_model & (known.call < 0)
        reason[has_place] = np.select([without_shapes[at], owners.calls_others[at]], [1, 2], 0)
    key = name * len(_REASONS) + reason
    distinct, which = np.unique(key, return_inverse=True)
    total_ns = sum_by(which, ns, len(distinct))
    count = np.bincount(which, minlength=len(distinct))
    for one, spent, times_seen in zip(distinct.tolist(), total_ns.tolist(), count.tolist(), strict=True):
        yield UnmodelledOperator(
            operator=events.names[one // len(_REASONS)],
            reason=_REASONS[one % len(_REASONS)],
            count=times_seen,
            total_ns=spent,
        )


_REASONS: Final[tuple[NotModelled, ...]] = ("no_model", "no_shapes", "calls_others", "no_operator")


# ---- modules ---------------------------------------------------------------------------------------------------------


MOST_PATHS = 10_000
"""Most paths of modules that are added up; the others count for the modules above them."""


def tabulate_modules(located: Located, row: Ints, ns: Ints, flops: Mapping[str, Ints]) -> list[ModuleWork]:
    """Return what the classes of modules need and take, each with the modules within it; empty without modules.

    Args:
        located: what the work of the trace belongs to.
        row: rows in `Events` of kernels or operators; shape (t,).
        ns: their time.
        flops: operations by the peak that they are compared with; each of shape (t,).
    """
    if not located.has("module"):
        return []
    table = PathTable()
    path = _paths_of(located, located.paths("class", table), row)
    sums = {name: _inclusive(path, values, table) for name, values in {"": ns, **flops}.items()}
    spent = sums.pop("")
    largest = [number for number in np.argsort(-spent, kind="stable")[:MOST_PATHS].tolist() if number and spent[number]]
    texts = PathTexts(table, located.texts)
    return add_modules(
        ModuleWork(
            path=list(texts[number]),
            total_ns=int(spent[number]),
            flops={name: int(values[number]) for name, values in sums.items() if values[number]},
        )
        for number in largest
    )


def _paths_of(located: Located, path: Ints, row: Ints) -> Ints:
    """Return the path of each row: that of its item; the root for rows that weigh nothing."""
    items = located.items.row
    order = np.argsort(items, kind="stable")
    place = np.minimum(np.searchsorted(items[order], row), max(len(items) - 1, 0))
    if not len(items):
        return np.zeros(len(row), np.int64)
    found = order[place]
    return np.where(items[found] == row, path[found], 0)


def _inclusive(path: Ints, values: Ints, table: PathTable) -> Ints:
    """Return the sum of values over each path and those below it; shape (paths,)."""
    sums, parent = sum_by(path, values, len(table.parent)).tolist(), table.parent.tolist()
    for number in range(len(sums) - 1, 0, -1):  # a path's parent is smaller
        sums[parent[number]] += sums[number]
    return np.array(sums, np.int64)
