"""Find what may be the loading of batches in a trace without any that is known as such (metrics.md section 14)."""

from typing import TYPE_CHECKING, Final

import numpy as np

from perfkit.engine.idle.host_thread import Host
from perfkit.engine.steps.passes import Passes
from perfkit.engine.steps.windows import Steps
from perfkit.phases import PASS_NAMES
from perfkit.records.per_rank.idle import PossibleLoading
from perfkit.records.per_rank.sharding import PASS_PHASES, PassPhase
from perfkit.trace.events import EventKind
from perfkit.trace.intervals import Ints, Union, measure, merge, outermost, union

if TYPE_CHECKING:
    from perfkit.engine.trace_context import TraceContext

_OPTIMIZER: Final = "Optimizer."
"""What torch's annotations of an optimizer's methods begin with: `zero_grad` prepares a step, too."""


def possible_loading(trace: "TraceContext", gaps: Union) -> PossibleLoading | None:
    """Return the annotation or function with most idle time of those that prepare each step, as loading does.

    It runs in every step, on the thread that trains, before the backward pass and outside of forward passes: those of
    `HostPhases`, and calls of modules in traces with stacks. None without any forward pass, or without such a span.
    """
    host, thread, steps, passes = trace.host, trace.threads.main, trace.steps, trace.passes
    frames, calls = host.frames, host.frames.module_rows
    calls = calls[frames.thread[calls] == thread]
    forward = merge(_passes(passes, "forward"), union(frames.start_ns[calls], frames.end_ns[calls]))
    if not steps.from_annotations or not len(forward.start):
        return None
    start, end, name = _spans(host, thread)
    step = steps.of(start)  # -1, before the first, is the place of what is appended
    backward = _passes(passes, "backward")
    fits = (step >= 0) & (end <= np.append(_first_in(forward, backward, steps), -1)[step])
    fits &= measure(merge(forward, backward), start, end) == 0
    start, end, name, step = start[fits], end[fits], name[fits], step[fits]
    outer = outermost(start, end)
    names, place = np.unique(name[outer], return_inverse=True)
    idle_ns = np.zeros(len(names), np.int64)
    np.add.at(idle_ns, place, measure(gaps, start[outer], end[outer]))
    count = len(steps.number)
    in_steps = np.bincount(np.unique(place * count + step[outer]) // count, minlength=len(names))
    idle_ns[in_steps < count] = 0
    if not idle_ns.any():
        return None
    longest = int(idle_ns.argmax())
    return PossibleLoading(name=host.texts.text(int(names[longest])) or "", total_ns=int(idle_ns[longest]))


def _passes(passes: Passes, phase: PassPhase) -> Union:
    of = passes.phase == PASS_PHASES.index(phase)
    return union(passes.begin[of], passes.end[of])


def _first_in(forward: Union, backward: Union, steps: Steps) -> Ints:
    """Return until when a step's batch is needed: its first backward pass, else its first forward pass; -1: neither."""
    needed_ns = np.full(len(steps.number), -1, np.int64)
    for spans in (forward, backward):
        step, first = np.unique(steps.of(spans.start), return_index=True)
        in_steps = step >= 0
        needed_ns[step[in_steps]] = spans.start[first[in_steps]]
    return needed_ns


def _spans(host: Host, thread: int) -> tuple[Ints, Ints, Ints]:
    """Return start, end and number of the text of the thread's annotations, and functions of the program."""
    events, frames = host.events, host.frames
    wanted = host.names.context.copy()
    if len(events.names):
        wanted &= ~events.shapes.beginning_with(*PASS_NAMES, _OPTIMIZER)[: len(wanted)]
    rows = events.rows(EventKind.ANNOTATION)
    rows = rows[(events.thread[rows] == thread) & wanted[events.name[rows]]]
    calls = rows[:0]
    if len(frames.name):
        calls = np.flatnonzero((frames.thread == thread) & host.frame_names.own[frames.name])
    return (
        np.concatenate((events.start_ns[rows], frames.start_ns[calls])),
        np.concatenate((events.end_ns[rows], frames.end_ns[calls])),
        np.concatenate(
            (
                host.texts.of_event_name(events.name[rows].astype(np.int64)),
                host.texts.of_frame_name(frames.name[calls].astype(np.int64)),
            )
        ),
    )
