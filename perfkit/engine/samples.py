"""What the main thread ran, from samples of its stack: which function of the program, and at which line.

A sample stands for the time since the one before. Where Python could note it at once, the thread may have changed what
it does at any instant in between: the halves of the interval count for the samples at their ends.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.engine.breakdown import NO_WAITS, Activity, OperatorWaits
from perfkit.engine.kinds.classify import Names, rows_by_key
from perfkit.engine.steps.windows import Steps
from perfkit.python_functions import is_own
from perfkit.records.common import CATEGORIES, Category
from perfkit.records.samples import (
    MOST_CODE_TIMES,
    CodeLocation,
    CodeTime,
    RecordedSamples,
    SampledFunction,
    SampledPlace,
)
from perfkit.trace.events import LONGEST_NS, EventKind, Events
from perfkit.trace.intervals import Ints, Union, complement, covers, difference, merge, segments_of, split, union

_RUNS: Final = 0.5
"""Share of a sample's time from which the thread ran, and did not wait."""
_MOST_FRAMES: Final = 200

_HOOKS: Final = (
    "perfkit/record/script/hooks/",
    "perfkit/record/monitor/",
    "perfkit/record/recording/loader_fetches.py",
    "perfkit/record/recording/loader_watch.py",
)
"""Functions of perfkit around calls of the program: what runs in them runs in their callers."""
_WORKER_LOOP: Final = "torch/utils/data/_utils/worker.py"

Bools = NDArray[np.bool_]


class Frame(NamedTuple):
    """A function on a stack."""

    file: str
    name: str
    """Qualified."""
    call: str
    """What it calls, as the source writes it; empty if nothing."""
    is_own: bool = False
    """Whether it is the program's."""
    first_line: int = 0


class HostSamples:
    """The samples of one thread; columns of shape (s,).

    Args:
        recorded: as the trace's header has them, possibly damaged.
    """

    def __init__(self, recorded: RecordedSamples) -> None:
        rows = [(one.ns, one.cpu_ns, one.waits, one.stack) for one in recorded.samples]
        table = np.array(rows, np.int64).reshape(-1, 4)
        known = (table[:, 3] >= 0) & (table[:, 3] < len(recorded.stacks)) & (table[:, 0] >= 0)
        elapsed, cpu, waits, self._stack = table[known].T
        elapsed = np.minimum(elapsed, LONGEST_NS)
        self.seen_ns: Ints = recorded.begin_ns + np.cumsum(elapsed)
        """When each was taken."""
        interval = min(max(0, recorded.interval_ns), LONGEST_NS)
        half = np.minimum(elapsed, interval) // 2
        half[:1] = 0  # before the first there is none
        self.bounds: Ints = np.append(self.seen_ns - elapsed + half, self.seen_ns[-1:] + interval)
        """Each lasts from its bound to the next one, shape (s + 1,); empty without samples."""
        self.waits: Bools = (cpu < _RUNS * elapsed) & (waits > 0)
        """Whether the thread waited for most of it, and not for a core."""
        off = (elapsed - np.clip(cpu, 0, elapsed))[self.waits]
        self.waiting: Union = union(self.seen_ns[self.waits] - off, self.seen_ns[self.waits])
        """When it did not run in these: a sample is taken as soon as the thread runs on."""
        self.starves: Bools = (cpu < _RUNS * elapsed) & (waits == 0)
        """Whether it waited for a core."""
        whole = all(0 <= place.function < len(recorded.functions) for place in recorded.places)
        self._functions = recorded.functions
        self._places = recorded.places if whole else []
        self._all = [self._valid(stack) for stack in recorded.stacks]
        hooks = {number for number, place in enumerate(self._places) if self._function(place).file.startswith(_HOOKS)}
        self._stacks = [[place for place in stack if place not in hooks] for stack in self._all]

    def __len__(self) -> int:
        return len(self.seen_ns)

    def _valid(self, stack: Sequence[int]) -> list[int]:
        valid = [place for place in stack[:_MOST_FRAMES] if 0 <= place < len(self._places)]
        # Below the loop of a forked worker are functions of the process that it was forked from.
        files = [self._function(self._places[place]).file for place in valid]
        return valid[: files.index(_WORKER_LOOP)] if _WORKER_LOOP in files else valid

    def _function(self, place: SampledPlace) -> SampledFunction:
        return self._functions[place.function]

    def at(self, instant: Ints) -> Ints:
        """Return the sample of each instant; -1 before and after all."""
        place = np.searchsorted(self.bounds, instant, side="right") - 1
        return np.where(place < len(self), place, -1)

    def within(self, sample: Ints, start: Ints, end: Ints) -> Ints:
        """Return samples with those taken outside their span replaced by the nearest in it, where one was.

        Args:
            sample: the samples, shape (n,); -1 for none.
            start: begin of each one's span.
            end: its end.
        """
        first = np.searchsorted(self.seen_ns, start)
        last = np.searchsorted(self.seen_ns, end, side="right") - 1
        return np.where((sample >= 0) & (first <= last), np.clip(sample, first, last), sample)

    def frames(self, sample: int) -> list[Frame]:
        """Return the stack of a sample, innermost function first, perfkit's hooks included."""
        return self._frames[self._stack[sample]]

    @cached_property
    def _frames(self) -> list[list[Frame]]:
        rows = []
        for place in self._places:
            one, own = self._function(place), self._is_own[place.function]
            rows.append(Frame(one.file, one.name, place.call, bool(own), one.first_line))
        return [[rows[place] for place in stack] for stack in self._all]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Of each function the name that torch's profiler gives it, as in `train.py(12): main`."""
        return tuple(f"{one.file}({one.first_line}): {one.name.rpartition('.')[2]}" for one in self._functions)

    @cached_property
    def _is_own(self) -> Bools:
        return np.array([is_own(name) for name in self.names], np.bool_)

    @cached_property
    def _depths(self) -> Ints:
        """Of each stack the depth, from inside, of the innermost function of the program; -1 without any."""
        own = self._is_own
        return np.array(
            [
                next((depth for depth, place in enumerate(stack) if own[self._places[place].function]), -1)
                for stack in self._stacks
            ],
            np.int64,
        )

    def _of_stack(self, values: Sequence[int]) -> Ints:
        return np.asarray(np.array(values, np.int64)[self._stack])

    @cached_property
    def own_place(self) -> Ints:
        """Place in the innermost function of the program; -1 without any."""
        pairs = zip(self._stacks, self._depths.tolist(), strict=True)
        return self._of_stack([stack[depth] if depth >= 0 else -1 for stack, depth in pairs])

    def _function_at(self, depth: Ints) -> Ints:
        pairs = zip(self._stacks, depth.tolist(), strict=True)
        return self._of_stack(
            [self._places[stack[at]].function if 0 <= at < len(stack) else -1 for stack, at in pairs],
        )

    @cached_property
    def innermost(self) -> Ints:
        """The innermost function; -1 without any."""
        return self._function_at(np.zeros(len(self._stacks), np.int64))

    @cached_property
    def own(self) -> Ints:
        """The innermost function of the program; -1 without any."""
        return self._function_at(self._depths)

    @cached_property
    def callee(self) -> Ints:
        """The function of a library that this one called; without one of the program, the innermost; else -1."""
        return self._function_at(np.where(self._depths < 0, 0, self._depths - 1))

    def within_own(self, flags: Bools) -> Ints:
        """Return the outermost function with a flag that runs within the innermost of the program; -1 without any.

        Args:
            flags: of each function, shape (number of functions,).
        """
        inner = zip(self._stacks, self._depths.tolist(), strict=True)
        functions = (
            [self._places[place].function for place in stack[: depth if depth >= 0 else None]] for stack, depth in inner
        )
        return self._of_stack([next((one for one in reversed(within) if flags[one]), -1) for within in functions])

    def overlaps(self, spans: Union) -> tuple[Ints, Ints, Ints]:
        """Return which samples the time of spans is in, and for how long; columns of shape (o,)."""
        if not len(self) or not len(spans.start):
            return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64)
        first = np.maximum(np.searchsorted(self.bounds, spans.start, side="right") - 1, 0)
        last = np.minimum(np.searchsorted(self.bounds, spans.end, side="left"), len(self))
        count = np.maximum(last - first, 0)
        span = np.repeat(np.arange(len(spans.start)), count)
        sample = np.arange(len(span)) - np.repeat(np.cumsum(count) - count, count) + np.repeat(first, count)
        begin = np.maximum(spans.start[span], self.bounds[sample])
        length = np.minimum(spans.end[span], self.bounds[sample + 1]) - begin
        kept = length > 0
        span = span[kept]
        return span, self.within(sample[kept], spans.start[span], spans.end[span]), length[kept]

    def taken_in(self, spans: Union) -> tuple[Ints, Ints]:
        """Return the samples that were taken in spans, and how much of the spans' time each has; shape (o,).

        In spans that only the host's Python is in. A sample of an operator is taken after it.
        """
        sample = np.flatnonzero(covers(spans, self.seen_ns))
        upto = np.cumsum(np.diff(self.bounds)[sample])
        whole_ns = int((spans.end - spans.start).sum())
        shared = np.round(upto / max(1, upto[-1:].sum()) * whole_ns).astype(np.int64)
        return sample, np.diff(shared, prepend=0)

    def functions_of(self, sample: Ints, length: Ints) -> list[CodeLocation]:
        """Return the functions of the program that samples were in, largest first.

        Args:
            sample: the samples, shape (o,).
            length: how much of each counts (ns).
        """
        own = self.own[sample]
        rows = rows_by_key(own, np.flatnonzero(own >= 0))
        found = [self._location(key, self.own_place[sample[at]], length[at]) for key, at in rows.items()]
        return sorted(found, key=lambda one: -one.ns)

    def _location(self, function: int, places: Ints, length: Ints) -> CodeLocation:
        by_line: dict[int, int] = {}
        by_call: dict[tuple[int, str], int] = {}
        for place, ns in zip(places.tolist(), length.tolist(), strict=True):
            one = self._places[place]
            by_line[one.line] = by_line.get(one.line, 0) + ns
            by_call[one.line, one.call] = by_call.get((one.line, one.call), 0) + ns
        line = max(by_line, key=lambda line: by_line[line])
        call = max((call for at, call in by_call if at == line), key=lambda call: by_call[line, call])
        own = self._functions[function]
        return CodeLocation(function=own.name, file=own.file, line=line, call=call or None, ns=int(length.sum()))


# ---- what the samples tell of the steps -----------------------------------------------------------------------------

_OF_THE_HOST: Final[tuple[Category, ...]] = ("data_loading", "overhead")
"""Categories in which the host does what takes the time, where a device computes."""


def tabulate_code(samples: HostSamples, activity: Activity, steps: Steps, has_device: bool) -> list[CodeTime]:
    """Return the functions of the program by time, largest first; those of samples within the steps."""
    rows = [
        CodeTime(category=category, code=code)
        for category, spans in _exclusive_spans(activity, steps)
        if not has_device or category in _OF_THE_HOST
        for code in samples.functions_of(*_in(samples, category, split(spans, steps.bounds)))
    ]
    return sorted(rows, key=lambda row: -row.code.ns)[:MOST_CODE_TIMES]


def _in(samples: HostSamples, category: Category, spans: Union) -> tuple[Ints, Ints]:
    return samples.taken_in(spans) if category == "data_loading" else samples.overlaps(spans)[1:]


def _exclusive_spans(activity: Activity, steps: Steps) -> Iterator[tuple[Category, Union]]:
    """Yield each category with the spans that count for it (metrics.md section 4)."""
    first, last = steps.bounds[[0, -1]].tolist()
    outside = merge(_outside(steps.bounds), steps.pauses.spans)
    busy = outside
    for category in CATEGORIES[:-1]:
        spans: Union = getattr(activity, category)
        yield category, difference(spans, busy)
        busy = merge(busy, spans)
    yield CATEGORIES[-1], complement(busy, first, last)


def _outside(bounds: Ints) -> Union:
    """Return the time before the first step and after the last."""
    far = 1 << 62
    return Union(np.array([-far, bounds[-1]], np.int64), np.array([bounds[0], far], np.int64))


def waits_in_operators(events: Events, names: Names, thread: int, samples: HostSamples) -> OperatorWaits:
    """Return when the thread waits in Python within operators that do not communicate, on a CPU-only trace.

    A hook that autograd runs, or an `autograd.Function`, may sleep or wait for a lock, a file, or another thread.
    Nothing is recorded of that but the operator around it; samples show that the thread did not run. A sample is
    taken between two instructions of Python: one within an operator is of Python that the operator runs. What an
    operator itself waits for, such as threads that compute for it, is its own.
    """
    rows = events.rows(EventKind.OPERATOR)
    rows = rows[events.thread[rows] == thread]
    seen = samples.seen_ns[samples.waits]
    if not len(rows) or not len(seen):
        return NO_WAITS
    first, last = int(events.start_ns[rows].min()), int(events.end_ns[rows].max())
    cut = segments_of(events.start_ns, events.end_ns, rows, first, last)
    if not len(cut.start):
        return NO_WAITS
    place = np.searchsorted(cut.start, seen, side="right") - 1
    place = np.unique(place[(place >= 0) & (cut.end[place] > seen)])
    place = place[~names.communication_operator[events.name[cut.owner[place]]]]
    inside = union(cut.start[place], cut.end[place])
    return OperatorWaits(thread, difference(samples.waiting, difference(samples.waiting, inside)))
