"""Find what a rank's waits for batches were spent on, from how the batches were fetched (metrics.md section 24)."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.engine.breakdown import load_rows
from perfkit.engine.kinds.classify import Names, data_loading_rows, rows_by_key
from perfkit.engine.samples import HostSamples
from perfkit.engine.steps.windows import Steps
from perfkit.records.per_rank.loading import (
    WAIT_CAUSES,
    LoadingPart,
    RankLoading,
    RecordedFetch,
    SlowSample,
    WaitNs,
    WorkerFetches,
    add_parts,
)
from perfkit.records.samples import RecordedSamples
from perfkit.subjects.input.parts import parts_in, without_workers
from perfkit.trace.events import Events
from perfkit.trace.intervals import Ints, union

MAIN_PROCESS: Final = -1
"""Number of the worker of a loader without workers."""
_SLOW_WORKER: Final = 2.0
"""Ratio of a worker's median batch and that of the others from which it is slow."""
_FEWEST: Final = 3
"""Batches of a worker from which its median means something."""
_SLOW_SAMPLE: Final = 5.0
"""Ratio of a sample and its worker's median sample from which it is slow; it must also take half of its batch ..."""
_LEAST_SLOW_NS: Final = 1_000_000
"""... and this long."""
_MOST_SAMPLES: Final = 10
_NEXT: Final = "enumerate(DataLoader)#"
_PLACE: Final = {cause: place for place, cause in enumerate(WAIT_CAUSES)}

Bools = NDArray[np.bool_]


class Fetches(NamedTuple):
    """Fetches by their end; columns of shape (f,)."""

    worker: Ints
    begin: Ints
    got: Ints
    """When all samples were there."""
    end: Ints
    cpu_ns: Ints
    samples: Ints
    slowest: Ints
    slowest_ns: Ints

    @property
    def length(self) -> Ints:
        """From the first sample to the collated batch."""
        return np.asarray(self.end - self.begin)


def explain_loading(
    events: Events,
    names: Names,
    steps: Steps,
    recorded: Sequence[RecordedFetch] | None,
    samples: HostSamples | None = None,
    worker_samples: Sequence[RecordedSamples] = (),
) -> RankLoading | None:
    """Return what the loads of the steps were spent on; None if neither fetches nor samples tell it."""
    loads = load_rows(events, names, steps)
    loads = loads[steps.within(events.start_ns[loads])]
    spans = union(events.start_ns[loads], events.end_ns[loads])
    parts = [] if samples is None else parts_in(samples, spans)
    fetches = fetch_columns(recorded or ())
    paused = steps.pauses.at(fetches.begin)  # an evaluation has its own loader, as a rule
    fetches = Fetches(*(column[~paused] for column in fetches))
    total_ns = int((events.end_ns - events.start_ns)[loads].sum())
    if not len(loads) or not (len(fetches.end) or parts):
        return None
    if not len(fetches.end):
        return RankLoading(waits_ns=WaitNs(other=total_ns), workers=[], parts=parts)
    slow_workers = _slow_workers(fetches)
    slow = slow_samples(fetches)
    calls = _next_calls(events, names, steps)
    start, end = events.start_ns[calls], events.end_ns[calls]
    needed = _needed(start, end, fetches)
    waits = _Waits(start, end, needed)
    by_cause = _split(waits, fetches, np.isin(fetches.worker, slow_workers), slow)
    by_cause[_PLACE["other"]] += max(0, total_ns - by_cause.sum())
    waited_for = np.unique(needed[needed >= 0])
    parts = without_workers(parts, _parts_of_workers(waits, fetches, worker_samples))
    _divide_reading(by_cause, parts)
    return RankLoading(
        waits_ns=WaitNs(**dict(zip(WAIT_CAUSES, by_cause.tolist(), strict=True))),
        workers=[_worker(fetches, rows) for rows in _by_worker(fetches).values()],
        slow_workers=slow_workers,
        slow_samples=_named(fetches, waited_for[slow[waited_for]]),
        parts=parts,
    )


def _parts_of_workers(waits: "_Waits", fetches: Fetches, recorded: Sequence[RecordedSamples]) -> list[LoadingPart]:
    """Return what workers did of the fetches that were waited for, while they were."""
    known = waits.needed >= 0
    needed = waits.needed[known]
    begin = np.maximum(waits.start[known], fetches.begin[needed])
    end = np.minimum(waits.end[known], fetches.end[needed])
    found: list[LoadingPart] = []
    for one in recorded:
        own = (fetches.worker[needed] == one.worker) & (end > begin)
        found += parts_in(HostSamples(one), union(begin[own], end[own]))
    return add_parts(found)


def _divide_reading(by_cause: Ints, parts: Sequence[LoadingPart]) -> None:
    """Take from the time in which processes did not run what samples show to be no reading of files."""
    ns = {name: sum(part.ns for part in parts if part.activity == name) for name in ("reading", "waiting", "core")}
    not_running = int(by_cause[_PLACE["reading"]])
    if not (all_ns := sum(ns.values())):
        return
    for name in ("waiting", "core"):
        by_cause[_PLACE[name]] = moved = not_running * ns[name] // all_ns
        by_cause[_PLACE["reading"]] -= moved


def _next_calls(events: Events, names: Names, steps: Steps) -> Ints:
    """Return torch's annotations of waiting for a batch."""
    is_call = events.shapes.beginning_with(_NEXT)
    rows = data_loading_rows(events, names)
    rows = rows[is_call[events.name[rows]]]
    return rows[steps.within(events.start_ns[rows])]


def _needed(start: Ints, end: Ints, fetches: Fetches) -> Ints:
    """Return the fetch that each wait waited for longest; -1 if none ended in it: its batch was there already.

    Not the last one to end: a worker goes on with its next batch before the process that waits has noticed.
    """
    first = np.searchsorted(fetches.end, start, side="right")
    last = np.searchsorted(fetches.end, end, side="right")
    needed = np.full(len(start), -1, np.int64)
    for place in np.flatnonzero(last > first).tolist():
        among = slice(first[place], last[place])
        overlap = fetches.end[among] - np.maximum(fetches.begin[among], start[place])
        needed[place] = first[place] + int(np.argmax(overlap))
    return needed


def _by_worker(fetches: Fetches) -> dict[int, Ints]:
    return rows_by_key(fetches.worker)


def fetch_columns(recorded: Sequence[RecordedFetch]) -> Fetches:
    """Return fetches as columns."""
    table = np.array(
        [
            (one.worker, one.begin_ns, one.get_ns, one.cpu_ns, one.collate_ns, one.samples, one.slowest, one.slowest_ns)
            for one in recorded
        ],
        np.int64,
    ).reshape(-1, 8)
    worker, begin, get, cpu, collate, samples, slowest, slowest_ns = table.T
    order = np.argsort(begin + get + collate, kind="stable")
    got = begin + get
    columns = (worker, begin, got, got + collate, np.minimum(cpu, get), samples, slowest, slowest_ns)
    return Fetches(*(column[order] for column in columns))


def _slow_workers(fetches: Fetches) -> list[int]:
    """Return the workers whose median batch takes twice as long as that of the others.

    The process that trains is none: its loader is another one, of other samples.
    """
    medians = {
        worker: float(np.median(fetches.length[rows]))
        for worker, rows in _by_worker(fetches).items()
        if worker != MAIN_PROCESS and len(rows) >= _FEWEST
    }
    return [
        worker
        for worker, median in medians.items()
        if (others := [other for key, other in medians.items() if key != worker])
        and median >= max(_SLOW_WORKER * float(np.median(others)), _LEAST_SLOW_NS)
    ]


def slow_samples(fetches: Fetches) -> Bools:
    """Return which fetches have one sample that explains why they are long."""
    usual = np.zeros(len(fetches.end))
    for rows in _by_worker(fetches).values():
        per_sample = (fetches.got - fetches.begin)[rows] / np.maximum(fetches.samples[rows], 1)
        usual[rows] = np.median(per_sample)
    get_ns = fetches.got - fetches.begin
    is_long = fetches.slowest_ns >= np.maximum(_SLOW_SAMPLE * usual, _LEAST_SLOW_NS)
    return np.asarray((fetches.samples > 0) & is_long & (2 * fetches.slowest_ns >= get_ns))


class _Waits(NamedTuple):
    """Waits for batches; columns of shape (w,)."""

    start: Ints
    end: Ints
    needed: Ints
    """The fetch that it waited for; -1 if none."""


def _split(waits: _Waits, fetches: Fetches, in_slow_worker: Bools, slow_sample: Bools) -> Ints:
    """Return the waiting time by cause, in the order of `WAIT_CAUSES`; it adds up to the waits."""
    total = np.zeros(len(WAIT_CAUSES), np.int64)
    known = waits.needed >= 0
    # The process that trains hands nothing over to itself.
    has_workers = bool((fetches.worker != MAIN_PROCESS).any())
    total[_PLACE["transfer" if has_workers else "other"]] += int((waits.end - waits.start)[~known].sum())
    start, end, needed = waits.start[known], waits.end[known], waits.needed[known]

    def within(begin: Ints, until: Ints) -> Ints:
        return np.asarray(np.maximum(np.minimum(end, until) - np.maximum(start, begin), 0))

    before = within(np.full(len(start), np.iinfo(np.int64).min), fetches.begin[needed])
    busy = np.minimum(within(np.full(len(start), np.iinfo(np.int64).min), _freed(fetches)[needed]), before)
    getting = within(fetches.begin[needed], fetches.got[needed])
    collating = within(fetches.got[needed], fetches.end[needed])
    after = (end - start) - before - getting - collating
    get_ns = np.maximum((fetches.got - fetches.begin)[needed], 1)
    computing = np.minimum(np.rint(getting * (fetches.cpu_ns[needed] / get_ns)).astype(np.int64), getting)
    is_slow, is_sample = in_slow_worker[needed], slow_sample[needed] & ~in_slow_worker[needed]
    usual = ~is_slow & ~is_sample
    total[_PLACE["slow_worker"]] += int((before + getting + collating)[is_slow].sum())
    total[_PLACE["slow_sample"]] += int(getting[is_sample].sum())
    total[_PLACE["reading"]] += int((getting - computing)[usual].sum())
    total[_PLACE["transforming"]] += int(computing[usual].sum())
    total[_PLACE["collating"]] += int(collating[~is_slow].sum())
    is_main = fetches.worker[needed] == MAIN_PROCESS
    total[_PLACE["workers_busy"]] += int(busy[~is_slow & ~is_main].sum())
    total[_PLACE["starting"]] += int((before - busy)[~is_slow & ~is_main].sum())
    total[_PLACE["other"]] += int(before[~is_slow & is_main].sum())
    total[_PLACE["other"]] += int(after[is_main].sum())
    total[_PLACE["transfer"]] += int(after[~is_main].sum())
    return total


def _freed(fetches: Fetches) -> Ints:
    """Return when each fetch's worker had fetched its batch before; 0 if that was its first."""
    freed = np.zeros(len(fetches.end), np.int64)
    for rows in _by_worker(fetches).values():
        freed[rows[1:]] = fetches.end[rows[:-1]]
    return freed


def _worker(fetches: Fetches, rows: Ints) -> WorkerFetches:
    return WorkerFetches(
        worker=int(fetches.worker[rows[0]]),
        batches=len(rows),
        median_ns=round(float(np.median(fetches.length[rows]))),
        get_ns=int((fetches.got - fetches.begin)[rows].sum()),
        cpu_ns=int(fetches.cpu_ns[rows].sum()),
        collate_ns=int((fetches.end - fetches.got)[rows].sum()),
    )


def _named(fetches: Fetches, rows: Ints) -> list[SlowSample]:
    rows = rows[np.argsort(-fetches.slowest_ns[rows], kind="stable")][:_MOST_SAMPLES]
    return [
        SlowSample(index=int(fetches.slowest[row]), worker=int(fetches.worker[row]), ns=int(fetches.slowest_ns[row]))
        for row in rows.tolist()
        if fetches.slowest[row] >= 0
    ]
