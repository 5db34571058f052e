"""How batches were fetched, and what the waits for them were spent on (metrics.md section 24)."""

from collections.abc import Iterable
from operator import attrgetter
from typing import Annotated, Final, Literal, get_args

from msgspec import Meta, Struct

from perfkit.records.samples import CodeLocation, add_code
from perfkit.records.sums import add_all, add_rows

_Whole = Annotated[int, Meta(ge=-(2**61), le=2**61)]
_Length = Annotated[int, Meta(ge=0, le=2**61)]

WaitCause = Literal[
    "reading",
    "transforming",
    "collating",
    "transfer",
    "slow_worker",
    "slow_sample",
    "workers_busy",
    "starting",
    "waiting",
    "core",
    "other",
]
WAIT_CAUSES: Final[tuple[WaitCause, ...]] = get_args(WaitCause)


class RecordedFetch(Struct, frozen=True, array_like=True):
    """One batch, as the process that fetched it timed it."""

    worker: _Whole
    """Number of the loader's worker process; -1 in the process that trains."""
    begin_ns: _Whole
    """Absolute."""
    get_ns: _Length
    """Time for all its samples: `__getitem__`, or the iterator."""
    cpu_ns: _Length
    """Processor time in that time, of the thread (in the process that trains) or of all threads of the worker, but no
    longer than that time; the rest it waited, for storage as a rule."""
    collate_ns: _Length
    samples: _Length
    """Number of samples that were asked for one by one; 0 if all at once (`__getitems__`)."""
    slowest: _Whole
    """Index of the slowest sample; -1 if that is not a number, or no sample was timed by itself."""
    slowest_ns: _Length
    """0 if no sample was timed by itself: they take less than about 20 us."""


class WorkerFetches(Struct, frozen=True, kw_only=True):
    """Batches that one worker fetched while steps were recorded."""

    worker: int
    batches: int
    median_ns: int
    """Of a batch, collated."""
    get_ns: int
    """Of all samples."""
    cpu_ns: int
    collate_ns: int


class SlowWorker(Struct, frozen=True, kw_only=True):
    """The slowest worker of a rank, where it is slower than the others."""

    worker: int
    ns: int
    """Median of its batches."""
    usual_ns: int | None
    """Median of those of the rank's other workers; None without any that is not slow."""
    ranks: int
    """How many ranks have a slow worker."""
    of: int
    """Number of ranks."""


class SlowSample(Struct, frozen=True, kw_only=True):
    """A sample that took far longer than others of its worker."""

    index: int
    worker: int
    ns: int


class WaitNs(Struct, frozen=True, kw_only=True):
    """Waiting for batches by cause; adds up to the loads of the steps."""

    reading: int = 0
    transforming: int = 0
    collating: int = 0
    transfer: int = 0
    slow_worker: int = 0
    slow_sample: int = 0
    workers_busy: int = 0
    """The worker still fetched batches before."""
    starting: int = 0
    """The worker fetched nothing: it was only starting."""
    waiting: int = 0
    """For something else than files, such as a lock; part of `reading` where nothing was sampled, as is the next."""
    core: int = 0
    """For a free core."""
    other: int = 0
    """Outside of the loader's `__next__`, and of fetches in the process that trains."""


LoadActivity = Literal[
    "reading", "decoding", "transforming", "collating", "pinning", "transfer", "workers", "core", "waiting"
]
MOST_PARTS: Final = 20


class LoadingPart(Struct, frozen=True, kw_only=True):
    """What ran while a step waited for its batch: an activity in a function of the program."""

    activity: LoadActivity
    """`workers`: waiting for the loader's workers; `transfer`: taking over a finished batch; `waiting`: sleeping, or
    waiting for a lock."""
    code: CodeLocation | None = None
    """None where the program's own code does not run."""
    ns: int


class RankLoading(Struct, frozen=True, kw_only=True):
    """How one rank's batches were fetched in recorded steps."""

    waits_ns: WaitNs
    workers: list[WorkerFetches]
    slow_workers: list[int] = []
    slow_samples: list[SlowSample] = []
    """Those that a step waited for, longest first; at most 10."""
    parts: list[LoadingPart] = []
    """What ran in the waits, largest first, at most 20; empty if nothing was sampled."""


def add_loading(parts: Iterable[RankLoading | None]) -> RankLoading | None:
    """Add up the cycles of a rank; the median of a worker is that of the cycle with the longest."""
    known = [part for part in parts if part is not None]
    if len(known) < 2:
        return known[0] if known else None
    workers = add_rows(
        (row for part in known for row in part.workers),
        attrgetter("worker"),
        ("batches", "get_ns", "cpu_ns", "collate_ns"),
        lambda rows: {"median_ns": max(row.median_ns for row in rows)},
    )
    samples = {(one.index, one.worker): one for part in known for one in part.slow_samples}
    return RankLoading(
        waits_ns=add_all([part.waits_ns for part in known]),
        workers=sorted(workers, key=attrgetter("worker")),
        slow_workers=sorted({worker for part in known for worker in part.slow_workers}),
        parts=add_parts(row for part in known for row in part.parts),
        slow_samples=sorted(samples.values(), key=lambda one: -one.ns)[:10],
    )


def add_parts(parts: Iterable[LoadingPart]) -> list[LoadingPart]:
    """Return one part per activity and function, largest first."""
    added = add_rows(
        parts,
        lambda part: (part.activity, *((part.code.file, part.code.function) if part.code else ())),
        ("ns",),
        lambda group: {"code": add_code(part.code for part in group)},
    )
    return sorted(added, key=lambda part: -part.ns)[:MOST_PARTS]
