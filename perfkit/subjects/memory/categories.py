"""What each block of memory is for, by what the host did when it was allocated and how long it lived (section 11)."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from perfkit.engine.idle.host_thread import spans_of_rows
from perfkit.engine.kinds.classify import Names, data_loading_rows, rows_by_key
from perfkit.engine.steps.passes import NO_PASS, Passes
from perfkit.engine.steps.windows import Steps
from perfkit.phases import annotation
from perfkit.records.per_rank.memory import MemoryCategory
from perfkit.records.per_rank.sharding import PASS_PHASES, PassPhase
from perfkit.subjects.memory.blocks import CODE, NEVER_NS, NOT_RECORDED, UNDECIDED, Blocks, KnownTensors
from perfkit.subjects.memory.holders import named
from perfkit.trace.events import EventKind, Events
from perfkit.trace.intervals import Ints, Union, covers, uncovered_from

Flags = NDArray[np.bool_]
_SHARDING: Final = "FSDP::"
"""Begins the annotations of FSDP2, in which only it allocates: it gathers and reduces parameters there."""
_TO_DEVICE: Final = annotation("to_device")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostActivity:
    """Spans of the host, of all threads or by thread."""

    steps: Steps
    passes: Passes
    input: Union
    operators: dict[int, Union]
    communication: dict[int, Union]

    def begins_of(self, phase: PassPhase) -> Ints:
        """Return when the passes of a phase begin, in order."""
        return np.asarray(self.passes.begin[self.passes.phase == PASS_PHASES.index(phase)])


def find_host_activity(events: Events, names: Names, steps: Steps, passes: Passes) -> HostActivity:
    """Return what of the host's events shows what memory is for."""
    annotations, operators = events.rows(EventKind.ANNOTATION), events.rows(EventKind.OPERATOR)
    sharding = named(events, annotations, lambda name: name.startswith(_SHARDING))
    to_device = named(events, annotations, _TO_DEVICE.__eq__)
    moved = annotations[to_device[events.name[annotations]]]
    loading = np.concatenate((data_loading_rows(events, names), moved))
    communicating = np.concatenate(
        (
            operators[names.communication_operator[events.name[operators]]],
            annotations[names.backend_annotation[events.name[annotations]]],
            annotations[sharding[events.name[annotations]]],
        )
    )
    return HostActivity(
        steps=steps,
        passes=passes,
        input=spans_of_rows(events, loading),
        operators=_by_thread(events, operators),
        communication=_by_thread(events, communicating),
    )


def _by_thread(events: Events, rows: Ints) -> dict[int, Union]:
    return {thread: spans_of_rows(events, own) for thread, own in rows_by_key(events.thread, rows).items()}


def categorize(blocks: Blocks, known: KnownTensors, host: HostActivity) -> Ints:
    """Return the category of each block, as an index into `MEMORY_CATEGORIES`: of the rules, the first that applies."""
    life = _Life(blocks, host)
    rules: tuple[tuple[MemoryCategory, Flags], ...] = (
        ("before", blocks.begin == NOT_RECORDED),
        ("input", covers(host.input, blocks.begin_ns)),
        ("optimizer_state", life.made_in("optimizer") & life.outlives_pass & ~life.state_is_known(known)),
        # Before gradients: FSDP also allocates other buffers in backward that live until the optimizer steps.
        ("communication", life.within(host.communication)),
        ("gradients", life.made_in("backward") & life.reaches_optimizer & ~life.noted_in_step(known)),
        ("temporary", life.is_short),
        ("activations", life.made_before_backward & life.reaches_backward & life.released_before_next),
    )
    category = np.select([flags for _, flags in rules], [CODE[name] for name, _ in rules], CODE["other"])
    return np.where(known.category == UNDECIDED, category, known.category)


class _Life:
    """How long blocks lived, compared with the passes and operators that allocated them; flags of shape (b,)."""

    def __init__(self, blocks: Blocks, host: HostActivity) -> None:
        self._blocks = blocks
        self._host = host
        self._pass = host.passes.of(blocks.begin_ns)
        self._step = host.steps.of(blocks.begin_ns)

    def made_in(self, phase: PassPhase) -> Flags:
        """Allocated in a pass of this phase."""
        phases = np.append(self._host.passes.phase, NO_PASS)  # the last is for blocks in no pass
        return np.asarray(phases[self._pass] == PASS_PHASES.index(phase))

    def within(self, spans: dict[int, Union]) -> Flags:
        """Allocated in a span of its thread."""
        found = np.zeros(len(self._blocks.begin), np.bool_)
        for thread, places in rows_by_key(self._blocks.thread).items():
            if thread in spans:
                found[places] = covers(spans[thread], self._blocks.begin_ns[places])
        return found

    @property
    def outlives_pass(self) -> Flags:
        """Still allocated when its pass ended."""
        ends = np.append(self._host.passes.end, NEVER_NS)[self._pass]
        after: Flags = self._blocks.end_ns > ends
        return after

    @property
    def made_before_backward(self) -> Flags:
        """Allocated in a forward pass, or by an operator in no pass at all."""
        in_no_pass = (self._pass == NO_PASS) & self.within(self._host.operators)
        return np.asarray(self.made_in("forward") | in_no_pass)

    @property
    def reaches_backward(self) -> Flags:
        """Still allocated when the next backward pass of its step begins."""
        return self._reaches(self._host.begins_of("backward"))

    @property
    def reaches_optimizer(self) -> Flags:
        """Still allocated when the optimizer's next step begins, in the same step."""
        return self._reaches(self._host.begins_of("optimizer"))

    def _reaches(self, begins: Ints) -> Flags:
        """Return whether blocks are still allocated at the first of these instants after theirs, in the same step."""
        is_next, instant = self._next(begins)
        return np.asarray(is_next & (self._blocks.end_ns > instant))

    def _next(self, begins: Ints) -> tuple[Flags, Ints]:
        """Return whether one of these instants follows in a block's step, and the first of them after it."""
        following = np.searchsorted(begins, self._blocks.begin_ns, side="left")
        step = np.append(self._host.steps.of(begins), -2)[following]
        return np.asarray(step == self._step), np.append(begins, NEVER_NS)[following]

    @property
    def released_before_next(self) -> Flags:
        """Released before the first backward pass of a later step, or, in the last step, while it was recorded."""
        begins = self._host.begins_of("backward")
        later = np.searchsorted(self._host.steps.of(begins), self._step, side="right")
        limit = np.append(begins, NEVER_NS - 1)[later]
        return np.asarray(self._blocks.end_ns <= limit)

    @property
    def is_short(self) -> Flags:
        """Released in its pass; in no pass, in the operator that allocated it, or before the next backward pass."""
        in_pass = (self._pass != NO_PASS) & ~self.outlives_pass
        in_operator = np.zeros(len(in_pass), np.bool_)
        operators = self._host.operators
        for thread, places in rows_by_key(self._blocks.thread, np.flatnonzero(self._pass == NO_PASS)).items():
            if thread in operators:
                begin_ns = self._blocks.begin_ns[places]
                in_operator[places] = self._blocks.end_ns[places] <= uncovered_from(operators[thread], begin_ns)
        has_backward, backward_ns = self._next(self._host.begins_of("backward"))
        unused = self.made_before_backward & has_backward & (self._blocks.end_ns <= backward_ns)
        return np.asarray(in_pass | in_operator | unused)

    def noted_in_step(self, known: KnownTensors) -> Flags:
        """Allocated in a step in which the run noted what the gradients are."""
        noted = self._host.steps.of(np.array(known.noted_ns, np.int64))
        return np.isin(self._step, noted)

    def state_is_known(self, known: KnownTensors) -> Flags:
        """Allocated when the run had noted what the optimizer's state is, or still allocated when it next did."""
        next_noted = np.searchsorted(known.noted_ns, self._blocks.begin_ns, side="right")
        instant = np.append(np.array(known.noted_ns, np.int64), NEVER_NS)[next_noted]
        return np.asarray((self._blocks.begin_ns > known.state_noted_ns) | (self._blocks.end_ns > instant))
