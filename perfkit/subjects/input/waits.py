"""Find what a rank's waits for batches were spent on, from how the batches were fetched (metrics.md section 24)."""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.engine.kinds.classify import Names, data_loading_rows, rows_by_key
from perfkit.engine.samples import Frame, HostSamples
from perfkit.engine.steps.windows import Steps
from perfkit.engine.trace_context import TraceContext
from perfkit.records.per_rank.loading import (
    MOST_PARTS,
    WAIT_CAUSES,
    LoadActivity,
    LoadingPart,
    RankLoading,
    RecordedFetch,
    SlowSample,
    WaitNs,
    WorkerFetches,
    add_parts,
)
from perfkit.records.samples import RecordedSamples
from perfkit.records.trace_header import PerfkitHeader
from perfkit.trace.events import Events
from perfkit.trace.intervals import Ints, Union, covers, union

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


def explain_loading(trace: TraceContext, own: PerfkitHeader) -> RankLoading | None:
    """Return what the loads of the steps were spent on; None if neither fetches nor samples tell it."""
    events, names, steps, samples = trace.events, trace.names, trace.steps, trace.samples
    loads = trace.loads
    loads = loads[steps.within(events.start_ns[loads])]
    spans = union(events.start_ns[loads], events.end_ns[loads])
    parts = [] if samples is None else parts_in(samples, spans)
    fetches = fetch_columns(own.fetches or ())
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
    calls = calls[covers(spans, events.start_ns[calls])]
    start, end = events.start_ns[calls], events.end_ns[calls]
    needed = _needed(start, end, fetches)
    waits = _Waits(start, end, needed)
    by_cause = _split(waits, fetches, np.isin(fetches.worker, slow_workers), slow)
    by_cause[_PLACE["other"]] += max(0, total_ns - by_cause.sum())
    waited_for = np.unique(needed[needed >= 0])
    parts = without_workers(parts, _parts_of_workers(waits, fetches, own.worker_samples or []))
    _divide_reading(by_cause, parts)
    return RankLoading(
        waits_ns=WaitNs(**dict(zip(WAIT_CAUSES, by_cause.tolist(), strict=True))),
        workers=[_worker(fetches, rows) for rows in rows_by_key(fetches.worker).values()],
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
        for worker, rows in rows_by_key(fetches.worker).items()
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
    for rows in rows_by_key(fetches.worker).values():
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
    for rows in rows_by_key(fetches.worker).values():
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


# ---- what ran in the waits, from samples (metrics.md section 28) -----------------------------------------------------


_READING: Final = re.compile(
    r"(^|[. ])(open|read\w*|pread\w*|fromfile|memmap|listdir|scandir|stat|exists|i?glob|recv\w*|urlopen|get_object)$"
)
_READING_FILES: Final = re.compile(
    r"(h5py|zarr|lmdb|pyarrow|fsspec|s3fs|gcsfs|requests|urllib3?|botocore|webdataset|numpy/lib/_?npyio|numpy/memmap)\b"
    r"|(pathlib|tarfile|zipfile|glob|genericpath|posixpath|os)(\.py$|/)|torch/serialization\.py"
)
_DECODING: Final = re.compile(r"(^|[. ])(imdecode|imread|decode\w*|loads?|decompress\w*|Image\.open|safe_load)$")
_DECODING_FILES: Final = re.compile(
    r"(PIL|cv2|imageio|skimage/io|torchvision/io|torchaudio|soundfile|librosa|av|decord|json|csv|yaml|lxml|gzip|bz2"
    r"|lzma|pickle)\b"
)
_WORKERS: Final = "_MultiProcessingDataLoaderIter."
"""Methods of torch's in which a process waits for its loader's workers, or takes over their batches."""
_NO_CODE: Final[frozenset[LoadActivity]] = frozenset({"workers", "transfer", "pinning"})
"""What the program's own code does not do."""


def parts_in(samples: HostSamples, spans: Union) -> list[LoadingPart]:
    """Return what ran in spans, largest first."""
    return _parts(samples, *samples.taken_in(spans))


def _parts(samples: HostSamples, sample: Ints, length: Ints) -> list[LoadingPart]:
    by_activity: defaultdict[LoadActivity, list[int]] = defaultdict(list)
    for place, number in enumerate(sample.tolist()):
        by_activity[_activity(samples, number)].append(place)
    found: list[LoadingPart] = []
    for activity, places in by_activity.items():
        at, left = np.array(places), int(length[places].sum())
        codes = [] if activity in _NO_CODE else samples.functions_of(sample[at], length[at])
        found += [LoadingPart(activity=activity, code=code, ns=code.ns) for code in codes]
        if rest := left - sum(code.ns for code in codes):
            found.append(LoadingPart(activity=activity, ns=rest))
    return sorted(found, key=lambda part: -part.ns)[:MOST_PARTS]


def _activity(samples: HostSamples, number: int) -> LoadActivity:
    """Return what a sample shows."""
    frames = samples.frames(number)
    activity = _shown_by(frames)
    if activity in ("transfer", "pinning"):
        return "workers" if activity == "transfer" and samples.waits[number] else activity
    if samples.starves[number]:
        return "core"
    if samples.waits[number]:
        return "reading" if activity in ("reading", "decoding") else "waiting"
    return activity


def _shown_by(frames: Sequence[Frame]) -> LoadActivity:
    """Return what a stack, innermost frame first, is part of."""
    names = {frame.name.rpartition(".")[2] for frame in frames}
    if any(frame.file.endswith("data/_utils/pin_memory.py") for frame in frames):
        return "pinning"
    if any(frame.name.startswith(_WORKERS) for frame in frames):
        return "transfer"
    inner = frames[: next((depth for depth, frame in enumerate(frames) if frame.is_own), len(frames)) + 1]
    files = [frame.file for frame in inner if not frame.is_own]
    calls = [frame.call for frame in inner]
    if any(map(_READING.search, calls)) or any(map(_READING_FILES.match, files)):
        return "reading"
    if any(map(_DECODING.search, calls)) or any(map(_DECODING_FILES.match, files)):
        return "decoding"
    collates = "timed_collate" in names or any("data/_utils/collate.py" in frame.file for frame in frames)
    return "collating" if collates else "transforming"


def without_workers(parts: Iterable[LoadingPart], of_workers: Sequence[LoadingPart]) -> list[LoadingPart]:
    """Return the parts of the process that trains, with what workers did in place of waiting for them."""
    left = sum(part.ns for part in of_workers)
    found = list(of_workers)
    for part in parts:
        taken = min(left, part.ns) if part.activity == "workers" else 0
        left -= taken
        if part.ns > taken:
            found.append(LoadingPart(activity=part.activity, code=part.code, ns=part.ns - taken))
    return sorted(found, key=lambda part: -part.ns)[:MOST_PARTS]
