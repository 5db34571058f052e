"""The stacks of a trace's work, and what each weighs: for files of flame graphs, and those of a page."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, Literal, get_args

import numpy as np

from perfkit.base.parsing import Ranges
from perfkit.engine.attribution.call_paths import PathTable, PathTexts, sum_by
from perfkit.engine.samples import Frame
from perfkit.engine.trace_context import TraceContext
from perfkit.records.per_run.flame_graph import FlameGraph, FlameView, FlameWeight
from perfkit.records.per_run.step_timeline import NAME_LENGTH, TimelineLane
from perfkit.trace.events import EventKind
from perfkit.trace.intervals import Ints, Union

Weight = Literal["device", "exposed", "host", "communication-bytes"]
By = Literal["python", "module", "operator"]
BYS: Final[tuple[By, ...]] = get_args(By)
Stack = tuple[str, ...]
"""Names from the outermost to the innermost."""

_VIEWS: Final[tuple[FlameView, ...]] = get_args(FlameView)
_LEAST_SHARE: Final = 1 / 1000
"""Frames that take less of the whole are left out: about one pixel of a page of 1,200."""
MOST_FRAMES: Final = 600
"""Of a graph, the longest: at most 25 kB of a page. Five recorded runs have 43 to 213, in up to 8 kB."""
_DEEPEST: Final = 64


def stacks_of(work: TraceContext, weight: Weight, by: By, wanted: Ranges | None = None) -> dict[Stack, int]:
    """Return what each stack of a trace weighs (ns or bytes), in all steps or those of `wanted`."""
    located, table = work.located, PathTable()
    path = located.paths(by, table)
    if by != "operator":
        path = _with_work(work, path, table)
    columns = {"exposed": located.items.exposed_ns, "communication-bytes": located.items.communication_bytes}
    values = columns.get(weight, located.items.total_ns)
    if wanted is not None:
        shown = np.array([step is not None and step in wanted for step in work.steps.number], np.bool_)
        values = np.where((located.items.step >= 0) & shown[located.items.step], values, 0)
    sums = sum_by(path, values, len(table.parent))
    texts = PathTexts(table, located.texts)
    found: defaultdict[Stack, int] = defaultdict(int)
    for number in np.flatnonzero(sums).tolist():
        found[texts[number]] += int(sums[number])
    return found


def _with_work(work: TraceContext, path: Ints, table: PathTable) -> Ints:
    """Return the paths extended by the innermost operator and the kernel: what runs at the end of the stack."""
    located, events = work.located, work.located.events
    operator, row = located.operator_row, located.items.row
    path = path.copy()
    for own, of in ((operator, operator >= 0), (row, (row >= 0) & (events.kind[row] != EventKind.OPERATOR))):
        path[of] = table.extend(path[of], events.name[own[of]].astype(np.int64))
    return path


def flame_graphs(work: TraceContext, *, rank: int | None, trace: str) -> list[FlameGraph]:
    """Return the flame graphs of a trace's mean step: of samples, functions and modules those that were recorded."""
    weight: Literal["device", "host"] = "device" if work.has_device else "host"
    lanes = _lanes(work)
    steps = max(len(work.steps.number), 1)
    recorded: list[tuple[FlameWeight, FlameView, dict[Stack, int]]] = [("samples", "python", sampled_stacks(work))]
    recorded += [(weight, by, stacks_of(work, weight, by)) for by in _VIEWS if work.located.has(by)]
    found = []
    for kind, by, stacks in recorded:
        per_step = {stack: total // steps for stack, total in stacks.items()}
        found.append(flame_graph(per_step, lanes, rank=rank, trace=trace, weight=kind, by=by))
    return [graph for graph in found if graph.name]


def sampled_stacks(work: TraceContext) -> dict[Stack, int]:
    """Return how long the main thread was in each stack in the steps (ns); empty without samples.

    A stack has the functions of the program, and the one of a library that the innermost of them called.
    """
    found: defaultdict[Stack, int] = defaultdict(int)
    if work.samples is None:
        return found
    _, sample, length = work.samples.overlaps(Union(work.steps.bounds[:1], work.steps.bounds[-1:]))
    for number, ns in zip(sample.tolist(), length.tolist(), strict=True):
        found[_sampled_stack(work.samples.frames(number))] += ns
    return found


def _sampled_stack(frames: Sequence[Frame]) -> Stack:
    shown = [frame for frame in frames if frame.is_own or not frame.file.startswith("perfkit/")]
    inner = next((place for place, frame in enumerate(shown) if frame.is_own), 1)
    kept = [*shown[max(inner - 1, 0) : inner], *(frame for frame in shown[inner:] if frame.is_own)]
    return tuple(f"{frame.file}({frame.first_line}): {frame.name}" for frame in reversed(kept))


def flame_graph(
    stacks: Mapping[Stack, int],
    lanes: Mapping[str, TimelineLane],
    *,
    rank: int | None,
    trace: str,
    weight: FlameWeight,
    by: FlameView,
) -> FlameGraph:
    """Return a flame graph.

    Args:
        stacks: stacks, and the nanoseconds that each takes.
        lanes: what the names are; others are functions and modules.
    """
    tree, total_ns = _Frames(stacks), sum(stacks.values())
    large = [one for one, ns in enumerate(tree.ns) if one and ns > total_ns * _LEAST_SHARE]
    # A caller comes before what it calls: it takes as long or longer, and its number is smaller.
    kept = sorted(large, key=lambda one: (-tree.ns[one], one))[:MOST_FRAMES]
    frames = tree.depth_first(kept)
    names = list(dict.fromkeys(tree.name[one] for one, _ in frames))
    numbers = {name: number for number, name in enumerate(names)}
    return FlameGraph(
        rank=rank,
        trace=trace,
        weight=weight,
        by=by,
        total_ns=total_ns,
        names=[name[:NAME_LENGTH] for name in names],
        lanes=[lanes.get(name, "annotation") for name in names],
        depth=[depth for _, depth in frames],
        name=[numbers[tree.name[one]] for one, _ in frames],
        duration_ns=[tree.ns[one] for one, _ in frames],
        left_out=len(tree.ns) - 1 - len(frames),
    )


class _Frames:
    """The frames of stacks by number; 0 is around all."""

    def __init__(self, stacks: Mapping[Stack, int]) -> None:
        self.name, self.ns, self._caller = [""], [0], [-1]
        known: dict[tuple[int, str], int] = {}
        for stack, ns in stacks.items():
            at = 0
            for name in stack[:_DEEPEST]:
                caller, at = at, known.setdefault((at, name), len(self.name))
                if at == len(self.name):
                    self.name.append(name)
                    self.ns.append(0)
                    self._caller.append(caller)
                self.ns[at] += ns

    def depth_first(self, kept: Sequence[int]) -> list[tuple[int, int]]:
        """Return frames with their depth in the order in which they are drawn; those of one caller as in `kept`."""
        called: defaultdict[int, list[int]] = defaultdict(list)
        for one in reversed(kept):
            called[self._caller[one]].append(one)
        found, waiting = [], [(one, 0) for one in called[0]]
        while waiting:
            one, depth = waiting.pop()
            found.append((one, depth))
            waiting += [(inner, depth + 1) for inner in called[one]]
        return found


def _lanes(work: TraceContext) -> dict[str, TimelineLane]:
    """Return what the names of events are: operators, or kernels by what they do."""
    events, device = work.events, work.device
    lanes: dict[str, TimelineLane] = {}
    kinds: tuple[tuple[TimelineLane, Ints], ...] = (
        ("operator", events.rows(EventKind.OPERATOR)),
        ("compute", device.row[device.is_compute]),
        ("communication", device.row[device.is_communication]),
        ("copy", device.row[device.is_copy]),
    )
    for lane, rows in kinds:
        lanes |= {events.names[name]: lane for name in np.unique(events.name[rows]).tolist()}
    return lanes
