"""Sum the pieces of a rank's idle time by cause, detail and step."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from perfkit.engine.breakdown import Activity, idle_beside
from perfkit.engine.idle import pieces as causes
from perfkit.engine.idle.attribution import attribute, find_gaps
from perfkit.engine.idle.host_thread import BETWEEN_OPERATORS_NS, Host
from perfkit.engine.idle.pieces import Pieces, Texts, merge_neighbours
from perfkit.engine.idle.possible_loading import possible_loading
from perfkit.engine.kinds.classify import Device, rows_by_key
from perfkit.engine.samples import HostSamples
from perfkit.engine.steps.windows import Steps
from perfkit.records.aggregate import MOST_IDLE_CAUSES, OTHER_DETAILS, add_idle_causes
from perfkit.records.per_rank.idle import CAUSES, Cause, IdleCause, IdleNs, IdleTime
from perfkit.records.samples import CodeLocation
from perfkit.trace.events import EventKind
from perfkit.trace.intervals import Ints, Union, difference, rows_of

if TYPE_CHECKING:
    from perfkit.engine.trace_context import TraceContext

_SHORT_KERNEL_NS: Final = 5_000


class Idle(NamedTuple):
    """Why a rank was idle: in all its steps, and in each."""

    time: IdleTime
    steps: list[IdleNs]


def explain_idle(trace: "TraceContext") -> Idle:
    """Return the causes of the steps' idle time; those of a step add up to its `overhead`.

    In the gaps none of the process's devices works; while one does, the others are idle beside it.
    """
    device, activity, steps, host = trace.device, trace.activity, trace.steps, trace.host
    gaps = find_gaps(activity, steps)
    found = merge_neighbours(attribute(device, gaps, host, trace.threads), gaps.start)
    rows = device.row[~device.is_copy & (steps.device_step >= 0)]
    rows = rows[host.events.kind[rows] == EventKind.KERNEL]
    kernel_ns = host.events.end_ns[rows] - host.events.start_ns[rows]
    has_loading = bool(len(activity.data_loading.start))
    time = IdleTime(
        causes=add_idle_causes([*_rows(found, host), *_beside_others(device, activity, steps, gaps)]),
        kernels=len(kernel_ns),
        short_kernels=int((kernel_ns < _SHORT_KERNEL_NS).sum()),
        has_python_frames=bool(len(host.frames.name)) or host.by_samples is not None,
        possible_loading=None if has_loading or trace.is_light else possible_loading(trace, gaps),
    )
    return Idle(time, _by_step(found, steps, idle_beside(activity, steps)))


def _beside_others(device: Device, activity: Activity, steps: Steps, gaps: Union) -> Iterator[IdleCause]:
    """Yield a row for each of several devices, of its time in which another one works, as part of the mean."""
    for number, one in zip(device.numbers, activity.devices, strict=True):
        beside = difference(find_gaps(one, steps), gaps)
        length = beside.end - beside.start
        if len(length):
            total_ns = int(length.sum()) // len(device.numbers)
            yield _row_of("other_device", f"device {number}", len(length), total_ns, int(length.max()))


def _by_step(found: Pieces, steps: Steps, beside_ns: Ints) -> list[IdleNs]:
    step = np.searchsorted(steps.bounds, found.start, side="right") - 1
    total_ns = np.zeros((len(steps.number), len(CAUSES)), np.int64)
    np.add.at(total_ns, (step, found.cause), found.end - found.start)
    total_ns[:, causes.INDEX["other_device"]] = beside_ns
    return [IdleNs(**dict(zip(CAUSES, row, strict=True))) for row in total_ns.tolist()]


def _rows(found: Pieces, host: Host) -> list[IdleCause]:
    """Return one row per cause, detail and context; of many, the smaller are added up by cause."""
    texts = host.texts
    key = (found.cause.astype(np.int64) * len(texts) + found.detail) * (len(texts) + 1) + found.context + 1
    keys, place = np.unique(key, return_inverse=True)
    length = found.end - found.start
    count = np.bincount(place, minlength=len(keys))
    total_ns, max_ns = np.zeros(len(keys), np.int64), np.zeros(len(keys), np.int64)
    np.add.at(total_ns, place, length)
    np.maximum.at(max_ns, place, length)
    listed, rest = _largest(total_ns)
    code = _code(found, place, host)
    rows = [_row(keys[k], texts, count[k], total_ns[k], max_ns[k], code.get(k)) for k in listed.tolist()]
    cause = keys[rest] // (len(texts) * (len(texts) + 1))
    for number in np.unique(cause).tolist():
        own = rest[cause == number]
        sums = int(count[own].sum()), int(total_ns[own].sum()), int(max_ns[own].max())
        rows.append(_row_of(CAUSES[number], OTHER_DETAILS, *sums))
    return rows


def _largest(total_ns: Ints) -> tuple[Ints, Ints]:
    """Return the places of the rows that may be listed, and of the others.

    A program may put a counter into each name: a record of each would cost more than all else.
    """
    order = np.argsort(-total_ns, kind="stable")
    return order[:MOST_IDLE_CAUSES], order[MOST_IDLE_CAUSES:]


_QUEUED: Final = causes.INDEX["dependency"]


def _code(found: Pieces, place: Ints, host: Host) -> dict[int, CodeLocation | None]:
    """Return the line of the program that most of each row's time was in, by the row's place.

    Queued work waits for the device: what the host does meanwhile is no reason.
    """
    samples = host.samples
    if samples is None:
        return {}
    waits = found.cause == causes.INDEX["synchronisation"]
    of_host = ~waits & (found.cause != _QUEUED)
    piece, sample, length = samples.overlaps(Union(found.start[of_host], found.end[of_host]))
    waiting, returned, lasts = _returned(rows_of(found, waits), host.waits, samples)
    row = np.concatenate((place[of_host][piece], place[waits][waiting]))
    sample, length = np.concatenate((sample, returned)), np.concatenate((length, lasts))
    by_row = rows_by_key(row)
    return {row: next(iter(samples.functions_of(sample[own], length[own])), None) for row, own in by_row.items()}


def _returned(found: Pieces, waits: Union, samples: HostSamples) -> tuple[Ints, Ints, Ints]:
    """Return pieces of calls that wait, the sample that was taken when each returned, and how long the call lasted.

    Python cannot be sampled within a call, and its neighbours are elsewhere: of other calls the line is not known.
    """
    call = np.searchsorted(waits.start, found.start, side="right") - 1
    piece = np.flatnonzero(call >= 0)
    call = call[piece]
    sample = np.minimum(np.searchsorted(samples.seen_ns, waits.end[call]), len(samples) - 1)
    late_ns = samples.seen_ns[sample] - waits.end[call]
    at_once = (late_ns >= 0) & (late_ns < BETWEEN_OPERATORS_NS) & (waits.end[call] > found.start[piece])
    return piece[at_once], sample[at_once], (waits.end - waits.start)[call[at_once]]


def _row(key: int, texts: Texts, count: int, total_ns: int, max_ns: int, code: CodeLocation | None) -> IdleCause:
    rest, context = divmod(int(key), len(texts) + 1)
    cause, detail = divmod(rest, len(texts))
    return IdleCause(
        cause=CAUSES[cause],
        detail=texts.text(detail) or "",
        context=texts.text(context - 1),
        count=int(count),
        total_ns=int(total_ns),
        max_ns=int(max_ns),
        code=code,
    )


def _row_of(cause: Cause, detail: str, count: int, total_ns: int, max_ns: int) -> IdleCause:
    return IdleCause(cause=cause, detail=detail, context=None, count=count, total_ns=total_ns, max_ns=max_ns)
