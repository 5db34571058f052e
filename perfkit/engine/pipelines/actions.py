"""What a rank computes in a pipeline: micro-batches of its stages, and the bubble of each step (metrics.md section 13).

The annotations of perfkit's own pipelines and of torch's multi-stage runtime (`PP:1F0`) name stage, kind and
micro-batch. Without any, autograd and the messages tell kind and micro-batch; the stage is only known when ranks are
compared.
"""

import re
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from perfkit.engine.breakdown import Activity
from perfkit.engine.communication.collective_metadata import CollectiveKey, flagged
from perfkit.engine.communication.collectives import Collectives
from perfkit.engine.communication.dimensions import PIPELINE, described_dimension
from perfkit.engine.communication.message_batches import EXCHANGE, RECEIVE, SEND, is_exchange
from perfkit.engine.kinds.classify import Device
from perfkit.engine.pipelines.inferred_actions import infer_actions
from perfkit.engine.steps.windows import Steps
from perfkit.phases import PIPELINE_ACTION
from perfkit.records.trace_header import RecordedPipeline
from perfkit.trace.events import EventKind, Events, Header
from perfkit.trace.intervals import Ints, Union, difference, envelopes, measure, merge, union

if TYPE_CHECKING:
    from perfkit.engine.trace_context import TraceContext

KINDS: Final = ("F", "B", "I", "W")
"""Forward; the whole backward; its two parts, the gradients of the input and of the weights."""
ACTION_COLUMNS: Final = ("step", "stage", "kind", "micro_batch", "begin_ns", "work_ns", "work_begin_ns", "work_end_ns")
NO_STAGE: Final = -1
"""The stage of actions that nothing names."""
STEP_COLUMNS: Final = ("step", "bubble_ns", "is_first")
_ACTION: Final = r"(\d{1,6})([FBIW])(\d{1,6})"
_DATA_DIMENSIONS: Final = frozenset({"replicate", "dp", "shard"})
_MOST_RANKS: Final = 4096
"""Ranks of a pipeline: a larger group is none, and would be kept with each trace."""


class PipelineActions(Struct, frozen=True, kw_only=True):
    """The actions of one trace: what its stages compute of each micro-batch."""

    recorded: RecordedPipeline | None
    """As the run recorded it, without its messages; None in traces of other programs."""
    actions: bytearray
    """int64, `ACTION_COLUMNS` concatenated, each of shape (a,), in order of begin. `kind` is an index into `KINDS`;
    `begin_ns` is by the clock of the host; `work_ns` the action's time without exposed communication of the pipeline
    and between data-parallel ranks; `work_begin_ns` and `work_end_ns` are when its work begins and ends, by the same
    clock. `stage` is `NO_STAGE` if the program does not annotate micro-batches."""
    group: tuple[int, ...] | None = None
    """Ranks of the one process group that the program calls that of its pipeline; None if it names none or several."""
    steps: bytearray
    """int64, `STEP_COLUMNS` concatenated, each of shape (k,). `is_first` is 1 for the first step of the trace."""

    def action(self, name: str) -> Ints:
        """Return a column of the actions by name, shape (a,)."""
        return _column(self.actions, ACTION_COLUMNS, name)

    def step(self, name: str) -> Ints:
        """Return a column of the steps by name, shape (k,)."""
        return _column(self.steps, STEP_COLUMNS, name)

    @property
    def names_stages(self) -> bool:
        return bool((self.action("stage") != NO_STAGE).all())

    def at_stage(self, stage: int) -> "PipelineActions":
        """Return the actions as those of one stage."""
        table = np.frombuffer(self.actions, np.int64).reshape(len(ACTION_COLUMNS), -1).copy()
        table[ACTION_COLUMNS.index("stage")] = stage
        return replace(self, actions=bytearray(table))


def _column(table: bytearray, names: tuple[str, ...], name: str) -> Ints:
    return np.asarray(np.frombuffer(table, np.int64).reshape(len(names), -1)[names.index(name)])


class _Spans(NamedTuple):
    """Communication of a rank, apart by what it is for."""

    receives: Union
    """Receives of the pipeline, and all its communication outside of the actions."""
    busy: Union
    """Computation, and communication in other dimensions."""
    not_work: Union
    """Exposed communication of the pipeline and between data-parallel ranks."""


class PipelineSpans(NamedTuple):
    """A rank's actions and its bubble in time."""

    step: Ints
    """Index of the step of each action, shape (a,)."""
    keys: Ints
    """Stage (or `NO_STAGE`), kind (an index into `KINDS`) and micro-batch of each, shape (3, a)."""
    issued: Ints
    """When the host began it."""
    begin: Ints
    """Begin of its work, on the device if that has any."""
    end: Ints
    waiting: Ints
    """Exposed communication in it that is not its work: that of the pipeline and between data-parallel ranks."""
    bubble: Union

    def at_stage(self, stage: int | None) -> "PipelineSpans | None":
        """Return the actions with the rank's stage where nothing names it; None if it is unknown, too."""
        if (self.keys[0] != NO_STAGE).all():
            return self
        return None if stage is None else self._replace(keys=np.vstack([np.full_like(self.step, stage), self.keys[1:]]))


def find_pipeline_spans(trace: "TraceContext") -> PipelineSpans | None:
    """Return what the rank computes in a pipeline, and its bubble; None if micro-batches are unknown.

    Without numbers of steps nothing is returned, because they cannot be compared between ranks.
    """
    events, device, steps = trace.events, trace.device, trace.steps
    if not steps.from_annotations:
        return None
    issued, until, keys = _annotated(events, steps)
    if not len(issued):
        inferred = infer_actions(events, steps)
        if inferred is None:
            return None
        issued, until, kind, batch = inferred
        keys = np.stack([np.full(len(kind), NO_STAGE), kind, batch])
    begin, end = _spans_of_work(events, device, issued, until)
    step = steps.of(issued)
    spans = _split_communication(trace.activity, trace.collectives, step, begin, end, on_host=not trace.has_device)
    waiting = measure(spans.not_work, begin, end)
    bubble = difference(spans.receives, spans.busy)
    return PipelineSpans(step, keys, issued, begin, end, waiting, bubble)


def find_pipeline_actions(trace: "TraceContext") -> PipelineActions | None:
    """Return the actions of a trace and the bubble of each step; None if no micro-batches are known."""
    spans, steps, header = trace.pipeline_spans, trace.steps, trace.header
    if spans is None:
        return None
    own = header.perfkit.pipeline if header.perfkit else None
    number = np.array(steps.number, np.int64)
    work_ns = spans.end - spans.begin - spans.waiting
    actions = _joined(np.vstack([spans.step, spans.keys, spans.issued, work_ns, spans.begin, spans.end]))
    actions[0] = number[actions[0]]
    bubble_ns = measure(spans.bubble, steps.bounds[:-1], steps.bounds[1:])
    is_first = np.arange(len(number)) == 0
    return PipelineActions(
        recorded=replace(own, messages=None) if own else None,
        actions=bytearray(np.ascontiguousarray(actions)),
        steps=bytearray(np.vstack([number, bubble_ns, is_first])),
        group=_pipeline_group(header),
    )


def _pipeline_group(header: Header) -> tuple[int, ...] | None:
    """Return the process group that the program calls that of the rank's pipeline, as the header lists it.

    gloo's sends and receives do not tell theirs. Smaller groups are those of first and last stages alone.
    """
    listed = {
        group.ranks
        for group in header.groups
        if group.ranks and header.rank in group.ranks and described_dimension(group.description) == PIPELINE
    }
    most = max(map(len, listed), default=0)
    largest = [ranks for ranks in listed if len(ranks) == most]
    return largest[0] if len(largest) == 1 and 1 < len(largest[0]) <= _MOST_RANKS else None


def _annotated(events: Events, steps: Steps) -> tuple[Ints, Ints, Ints]:
    """Return begin and end of the annotations of micro-batches; stage, kind and micro-batch of each, shape (3, a)."""
    rows = events.rows(EventKind.ANNOTATION)
    for prefix in (PIPELINE_ACTION, "PP:"):
        pattern = re.compile(re.escape(prefix) + _ACTION)
        candidates = np.flatnonzero(events.shapes.beginning_with(prefix)).tolist()
        matches = {name: match for name in candidates if (match := pattern.fullmatch(events.names[name]))}
        if not matches:
            continue
        found = np.full((3, len(events.names)), -1, np.int64)
        for name, match in matches.items():
            found[:, name] = int(match[1]), KINDS.index(match[2]), int(match[3])
        chosen = rows[found[0, events.name[rows]] >= 0]
        if len(chosen):
            chosen = chosen[np.argsort(events.start_ns[chosen], kind="stable")]
            chosen = chosen[(steps.of(events.start_ns[chosen]) >= 0) & steps.within(events.start_ns[chosen])]
            return events.start_ns[chosen], events.end_ns[chosen], found[:, events.name[chosen]]
    return rows[:0], rows[:0], np.zeros((3, 0), np.int64)


def _spans_of_work(events: Events, device: Device, begin: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Return begin and end of each action's work: the host's, or those of the kernels that were launched in it."""
    if not len(device.row):
        return begin, end
    kernels = np.flatnonzero(device.is_compute)
    of = np.searchsorted(begin, device.launched_ns[kernels], side="right") - 1
    inside = (of >= 0) & (device.launched_ns[kernels] < end[of])
    kernels, of = kernels[inside], of[inside]
    rows = device.row[kernels]
    first, last = envelopes(of, events.start_ns[rows], events.end_ns[rows], len(begin))
    launched = last > first
    return np.where(launched, first, begin), np.where(launched, last, begin)


def _split_communication(
    activity: Activity, collectives: Collectives, step: Ints, begin: Ints, end: Ints, *, on_host: bool
) -> _Spans:
    """Return the rank's communication, apart by what it is for.

    Sends and receives whose dimension is unknown are the pipeline's, since the rank has one, and so is what else of
    unknown dimension runs in their groups.

    Args:
        step: step of each action.
        begin: its begin.
        end: its end.
        on_host: whether the host computes.
    """

    def kinds(wanted: Callable[[CollectiveKey], bool]) -> NDArray[np.bool_]:
        return flagged(collectives.kinds, collectives.kind, wanted)

    groups = {(kind.group, kind.members) for kind in collectives.kinds if _is_message(kind) and kind.group is not None}
    own = kinds(lambda kind: _is_of_pipeline(kind, groups))
    receive = kinds(lambda kind: kind.operator in (RECEIVE, EXCHANGE))
    count = int(max(step.max(initial=-1), collectives.step.max(initial=-1))) + 1
    first, last = envelopes(step, begin, end, count)
    outside = (collectives.end <= first[collectives.step]) | (collectives.start >= last[collectives.step])

    def spans(mask: NDArray[np.bool_]) -> Union:
        return union(collectives.start[mask], collectives.end[mask])

    data = kinds(_is_between_replicas)
    within = merge(activity.compute, spans(~own & ~data))
    # Between replicas a rank may wait anywhere; for its own messages only until they have arrived.
    free = _without_waiting(collectives.end[own & receive], begin, end) if on_host else union(begin[:0], end[:0])
    return _Spans(
        receives=difference(spans(own & (receive | outside)), free),
        busy=merge(within, spans(data)),
        not_work=difference(merge(difference(spans(own), free), spans(data)), within),
    )


def _without_waiting(received: Ints, begin: Ints, end: Ints) -> Union:
    """Return the part of each action in which it waits for no receive: after the last one that ends in it.

    Others may be open, issued ahead for later actions, and so may sends: whatever the host does meanwhile without an
    operator (Python, a lock) is the action's own time.

    Args:
        received: when the pipeline's receives end.
    """
    received = np.sort(received)
    last = np.searchsorted(received, end, side="right") - 1
    at = received[np.maximum(last, 0)] if len(received) else begin
    return union(np.where((last >= 0) & (at > begin), at, begin), end)


def _is_of_pipeline(kind: CollectiveKey, groups: Collection[tuple[str | None, str | None]]) -> bool:
    """Return whether a collective is the pipeline's: by its dimension, or else as a message, or in a group of some."""
    if kind.dimension is None:
        return _is_message(kind) or (kind.group, kind.members) in groups
    return PIPELINE in kind.dimension.split("+")


def _is_message(kind: CollectiveKey) -> bool:
    return kind.dimension is None and (kind.operator in (SEND, RECEIVE) or is_exchange(kind))


def _is_between_replicas(kind: CollectiveKey) -> bool:
    """Return whether a collective is one of ranks that train on different samples, such as a gradient all-reduce."""
    return kind.dimension is not None and _DATA_DIMENSIONS.issuperset(kind.dimension.split("+"))


def _joined(table: Ints) -> Ints:
    """Return the actions with the parts of each, such as the last stage's forward and its loss, added up."""
    order = np.lexsort(table[:4][::-1])
    table = table[:, order]
    starts = np.concatenate(([True], (table[:4, 1:] != table[:4, :-1]).any(axis=0)))
    first = np.flatnonzero(starts)
    added = (np.minimum, np.add, np.minimum, np.maximum)
    columns = [how.reduceat(column, first) for how, column in zip(added, table[4:], strict=True)]
    joined = np.vstack([table[:4, first], *columns])
    return np.asarray(joined[:, np.argsort(joined[4], kind="stable")])
