"""Sum the pieces of a rank's idle time by cause, detail and step."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from perfkit.analysis.per_rank.breakdown import Activity
from perfkit.analysis.per_rank.classify import Device
from perfkit.analysis.per_rank.idle import pieces as causes
from perfkit.analysis.per_rank.idle.attribution import Threads, attribute, find_gaps
from perfkit.analysis.per_rank.idle.host_thread import Host
from perfkit.analysis.per_rank.idle.pieces import Pieces, Texts, merge_neighbours
from perfkit.analysis.per_rank.steps import Steps
from perfkit.schema.aggregate import add_idle_causes
from perfkit.schema.per_rank.idle import CAUSES, IdleCause, IdleNs, IdleTime
from perfkit.trace.events import EventKind, Events
from perfkit.trace.intervals import Ints, Union

_SHORT_KERNEL_NS: Final = 5_000


class Idle(NamedTuple):
    """Why a rank was idle: in all its steps, and in each."""

    time: IdleTime
    steps: list[IdleNs]


def explain_idle(
    device: Device,
    activity: Activity,
    steps: Steps,
    host: Host,
    threads: Threads,
) -> Idle:
    """Return the causes of the steps' idle time; those of a step add up to its `overhead`.

    Args:
        device: the device's work.
        activity: when each category was active.
        steps: the steps.
        host: what the host's threads did, by `host_time`, as is the next.
        threads: its threads.
    """
    gaps = find_gaps(activity, steps)
    found = merge_neighbours(attribute(device, gaps, host, threads), gaps.start)
    kernel_ns = _kernel_ns(host.events, device, steps)
    time = IdleTime(
        causes=_rows(found, host.texts),
        begun_in_synchronisation_ns=_begun_waiting(found, gaps),
        kernels=len(kernel_ns),
        short_kernels=int((kernel_ns < _SHORT_KERNEL_NS).sum()),
        has_python_frames=bool(len(host.frames.name)),
    )
    return Idle(time, _by_step(found, steps))


def _kernel_ns(events: Events, device: Device, steps: Steps) -> Ints:
    rows = device.row[~device.is_copy & (steps.device_step >= 0)]
    rows = rows[events.kind[rows] == EventKind.KERNEL]
    return np.asarray(events.end_ns[rows] - events.start_ns[rows])


def _begun_waiting(found: Pieces, gaps: Union) -> int:
    """Return the length of the gaps that begin while the host waits for the device."""
    waits = found.start[found.cause == causes.SYNCHRONISATION]
    begun = np.isin(gaps.start, waits, assume_unique=True)
    return int((gaps.end - gaps.start)[begun].sum())


def _by_step(found: Pieces, steps: Steps) -> list[IdleNs]:
    step = np.searchsorted(steps.bounds, found.start, side="right") - 1
    total_ns = np.zeros((len(steps.number), len(CAUSES)), np.int64)
    np.add.at(total_ns, (step, found.cause), found.end - found.start)
    return [IdleNs(**dict(zip(CAUSES, row, strict=True))) for row in total_ns.tolist()]


def _rows(found: Pieces, texts: Texts) -> list[IdleCause]:
    """Return one row per cause, detail and context."""
    key = (found.cause.astype(np.int64) * len(texts) + found.detail) * (len(texts) + 1) + found.context + 1
    keys, place = np.unique(key, return_inverse=True)
    length = found.end - found.start
    count = np.bincount(place, minlength=len(keys))
    total_ns, max_ns = np.zeros(len(keys), np.int64), np.zeros(len(keys), np.int64)
    np.add.at(total_ns, place, length)
    np.maximum.at(max_ns, place, length)
    parts = zip(keys.tolist(), count.tolist(), total_ns.tolist(), max_ns.tolist(), strict=True)
    return add_idle_causes(_row(key, texts, figures) for key, *figures in parts)


def _row(key: int, texts: Texts, figures: Sequence[int]) -> IdleCause:
    rest, context = divmod(key, len(texts) + 1)
    cause, detail = divmod(rest, len(texts))
    count, total_ns, max_ns = figures
    return IdleCause(
        cause=CAUSES[cause],
        detail=texts.text(detail) or "",
        context=texts.text(context - 1),
        count=count,
        total_ns=total_ns,
        max_ns=max_ns,
    )
