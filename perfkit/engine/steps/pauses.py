"""Find the pauses of training in a trace: checkpoints, evaluations and logging (metrics.md section 23).

A run of perfkit's lists them in the header of the trace. In other traces annotations tell by their names, or Python
functions of torch (`with_stack`).
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from perfkit.engine.kinds.classify import Device
from perfkit.records.aggregate import REPORTED_SHARE
from perfkit.records.cross_rank import FEWEST_COMPARED_STEPS
from perfkit.records.per_run.pauses import PausePhase
from perfkit.trace.events import EventKind, Events, PythonFrames, RankTrace
from perfkit.trace.intervals import EMPTY, Ints, Union, covers, difference, measure, outermost, union
from perfkit.trace.name_matching import NameShapes

_ANNOTATIONS: Final[tuple[tuple[str, PausePhase], ...]] = (
    (r"perfkit\.checkpoint$", "checkpoint"),
    (r"perfkit\.evaluation$", "evaluation"),
    (r"perfkit\.logging$", "logging"),
    (r"\[pl\]\[.*\]ModelCheckpoint\b", "checkpoint"),
    (r"\[pl\]\[.*\.(validation|test)_step$", "evaluation"),
    (r"(save|write|store)[ _]?(model[ _]?)?(checkpoint|ckpt)$", "checkpoint"),
    (r"(checkpoint|ckpt)[ _]?(save|saving|write)$", "checkpoint"),
    (r"(run[ _])?(evaluation|validation)([ _](step|loop|epoch|pass|phase))?$", "evaluation"),
    (r"(evaluate|validate|eval)[ _](loop|epoch|phase)$", "evaluation"),
    (r"run[ _](evaluate|validate|eval)$", "evaluation"),
)
"""Names that programs give to pauses, and of which none is common for anything else. `checkpoint` alone is left out: it
is also what recomputing activations is called; `evaluate` too: what reinforcement learning calls a forward pass."""
_FRAMES: Final[tuple[tuple[str, PausePhase], ...]] = (
    (r".*torch[/\\]serialization\.py\(\d+\): save$", "checkpoint"),
    (r".*torch[/\\]distributed[/\\]checkpoint[/\\]state_dict_saver\.py\(\d+\): (async_)?save$", "checkpoint"),
)
ENGINE: Final = "autograd::engine::evaluate_function"


class FoundPause(NamedTuple):
    """A pause on the host."""

    phase: PausePhase | None
    """None for what lies between steps that the program marked."""
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pauses:
    """The pauses of one trace."""

    found: Sequence[FoundPause] = ()
    """On the host, in order; they do not overlap."""
    host: Union = field(default_factory=lambda: EMPTY)
    """The same as spans."""
    spans: Union = field(default_factory=lambda: EMPTY)
    """When training pauses: on a device once it has done what was launched before, until it has done what the pause
    launched."""
    named: bool = False
    """Whether only names tell of them: the run does not list its pauses."""

    def at(self, instant_ns: Ints) -> NDArray[np.bool_]:
        """Return whether the host pauses at each instant."""
        return covers(self.host, instant_ns)

    def time_in(self, start_ns: Ints, end_ns: Ints) -> Ints:
        """Return how long training pauses in each window."""
        return measure(self.spans, start_ns, end_ns)


NONE: Final = Pauses()
MOST_PAUSES: Final = 10_000
"""Most pauses of a trace that a report is made from."""


class TracedPause(Struct, frozen=True, kw_only=True):
    """A pause in a trace: picklable."""

    phase: PausePhase
    begin_ns: int
    """On the host, by the clock of the trace."""
    end_ns: int
    step_ns: int
    """Its time within the windows of steps."""
    window_ns: int = 0
    """Begin of the window that it begins in; before the first, and without steps, 0."""


def traced(pauses: Pauses, bounds: Ints) -> list[TracedPause]:
    """Return the pauses of a trace; `bounds` are those of the steps' windows, shape (k + 1,)."""
    inside, begins = union(bounds[:1], bounds[-1:]), [-int(bounds[0]), *bounds[:-1].tolist()]
    return [
        TracedPause(
            phase=one.phase,
            begin_ns=one.start_ns,
            end_ns=one.end_ns,
            step_ns=int(measure(inside, np.array([one.start_ns]), np.array([one.end_ns]))[0]),
            window_ns=begins[int(np.searchsorted(bounds[:-1], one.start_ns, side="right"))],
        )
        for one in pauses.found
        if one.phase is not None
    ][:MOST_PAUSES]


def find_pauses(trace: RankTrace, device: Device, thread: Callable[[], int]) -> Pauses:
    """Return the pauses of a trace; `thread` finds the one that trains: background threads write checkpoints, too."""
    events, header = trace.events, trace.header
    listed = header.perfkit.pauses if header.perfkit else None
    found = _apart(
        _of_names(events, trace.frames, thread)
        if listed is None
        else [FoundPause(one.phase, one.begin_ns, one.end_ns) for one in listed]
    )
    return _of(found, events, device, named=listed is None)


def besides_steps(pauses: Pauses, start_ns: Ints, events: Events, device: Device) -> Pauses:
    """Return the pauses without those that are part of the steps.

    Evaluations are (pseudo labels, rollouts) if there are three steps or more, and each has one; of any phase those
    that take less than a hundredth of the median step: callbacks that had nothing to do.

    Args:
        pauses: those of a trace; what a run of perfkit's lists stays.
        start_ns: when each step begins on the host, in order.
    """
    if not pauses.named:
        return pauses
    least_ns = REPORTED_SHARE * float(np.median(np.diff(start_ns))) if len(start_ns) > 1 else 0.0
    kept = [one for one in pauses.found if one.end_ns - one.start_ns >= least_ns]
    evaluations = [one.start_ns for one in kept if one.phase == "evaluation"]
    steps = np.unique(np.searchsorted(start_ns, np.array(evaluations, np.int64), side="right"))
    if len(start_ns) >= FEWEST_COMPARED_STEPS and np.count_nonzero(steps) == len(start_ns):
        kept = [one for one in kept if one.phase != "evaluation"]
    return pauses if len(kept) == len(pauses.found) else _of(kept, events, device, named=True)


def with_gaps(pauses: Pauses, start_ns: Ints, end_ns: Ints, events: Events, device: Device) -> Pauses:
    """Return the pauses, and what lies between steps: from `start_ns` to `end_ns` of each gap, shape (g,)."""
    gaps = difference(union(start_ns, np.maximum(start_ns, end_ns)), pauses.host)
    between = [FoundPause(None, *span) for span in zip(gaps.start.tolist(), gaps.end.tolist(), strict=True)]
    return _of(sorted([*pauses.found, *between], key=lambda one: one.start_ns), events, device, named=pauses.named)


def _of(found: list[FoundPause], events: Events, device: Device, *, named: bool) -> Pauses:
    if not found:
        return NONE
    host = union(np.array([one.start_ns for one in found], np.int64), np.array([one.end_ns for one in found], np.int64))
    return Pauses(found=found, host=host, spans=_on_device(events, device, host), named=named)


def _apart(pauses: Sequence[FoundPause]) -> list[FoundPause]:
    """Return the pauses in order, without those that begin within another one; that one ends with the later."""
    apart: list[FoundPause] = []
    for pause in sorted(pauses, key=lambda one: (one.start_ns, -one.end_ns)):
        if apart and pause.start_ns < apart[-1].end_ns:
            apart[-1] = apart[-1]._replace(end_ns=max(apart[-1].end_ns, pause.end_ns))
        elif pause.end_ns > pause.start_ns:
            apart.append(pause)
    return apart


# ---- by their names ------------------------------------------------------------------------------------------------


def _of_names(events: Events, frames: PythonFrames, thread: Callable[[], int]) -> list[FoundPause]:
    """Return the pauses on the thread that trains; an 'evaluation' with a backward pass in it is none."""
    annotated = events.rows(EventKind.ANNOTATION)
    found = _named(events.shapes, events.name[annotated], _ANNOTATIONS)
    rows = {phase: annotated[mask] for phase, mask in found.items()}
    parts: list[tuple[PausePhase, Ints, Ints, NDArray[Any]]] = [
        (phase, events.start_ns[chosen], events.end_ns[chosen], events.thread[chosen]) for phase, chosen in rows.items()
    ]
    parts += [
        (phase, frames.start_ns[mask], frames.end_ns[mask], frames.thread[mask])
        for phase, mask in _named(NameShapes(frames.names), frames.name, _FRAMES).items()
    ]
    if not parts:
        return []
    main = thread()
    backward = backward_starts(events)
    pauses: list[FoundPause] = []
    for phase, start, end, ran_on in parts:
        here = ran_on == main
        if phase == "evaluation":
            here &= np.searchsorted(backward, start) == np.searchsorted(backward, end)
        whole = outermost(start[here], end[here])
        spans = zip(start[here][whole].tolist(), end[here][whole].tolist(), strict=True)
        pauses += [FoundPause(phase, begin, until) for begin, until in spans]
    return pauses


def _named(
    shapes: NameShapes, name: Ints | NDArray[np.int32], rules: Sequence[tuple[str, PausePhase]]
) -> dict[PausePhase, NDArray[np.bool_]]:
    """Return, by phase, which of the events with these names are pauses."""
    if not len(name):
        return {}
    found: dict[PausePhase, NDArray[np.bool_]] = {}
    unmatched = np.ones(len(shapes.names), np.bool_)
    for pattern, phase in rules:  # the first rule that matches decides
        matched = unmatched & shapes.starting_with(re.compile(pattern, re.IGNORECASE))
        unmatched &= ~matched
        found[phase] = found.get(phase, False) | matched[name]
    return {phase: mask for phase, mask in found.items() if mask.any()}


def backward_starts(events: Events) -> Ints:
    """Return when the engine of autograd begins to run nodes, in order."""
    is_backward = events.shapes.beginning_with(ENGINE)
    rows = events.rows(EventKind.OPERATOR)
    return np.sort(events.start_ns[rows[is_backward[events.name[rows]]]])


# ---- on a device ---------------------------------------------------------------------------------------------------


def _on_device(events: Events, device: Device, host: Union) -> Union:
    """Return the spans during which the device is in the pauses of the host, behind which it runs."""
    if not len(device.row):
        return host
    order = np.argsort(device.launched_ns, kind="stable")
    launched, end = device.launched_ns[order], events.end_ns[device.row[order]]
    reach = np.maximum.accumulate(np.append(np.iinfo(np.int64).min, end))
    before, until = np.searchsorted(launched, host.start), np.searchsorted(launched, host.end)
    start_ns = np.maximum(host.start, reach[before])
    has_work = until > before
    end_ns = np.maximum(host.end, np.where(has_work, reach[until], host.end))
    return union(start_ns, np.maximum(start_ns, end_ns))
