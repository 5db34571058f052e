"""Slices for tracks of their own: fetched batches, modules, the critical path, micro-batches and bubbles.

How long a batch's samples took, and how much of that the processor worked for them, is recorded; which sample was read
when is not. So the samples are one slice, named by what most of it was (metrics.md section 24). A module's work is that
of metrics.md section 20: kernels and copies, or operators without a device; backward belongs to the modules whose
forward operators caused it. Perfetto chooses a slice's colour by its name without numbers: all forwards have one
colour, and all bubbles another.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.base.formatting import duration, whole_percent
from perfkit.base.parsing import Ranges
from perfkit.engine.attribution.call_paths import PathTable
from perfkit.engine.attribution.views import LABELS, Located
from perfkit.engine.kinds.classify import Device, rows_by_key
from perfkit.engine.pipelines.actions import PipelineSpans
from perfkit.engine.step_graph.graph import EDGE_KINDS, StepGraph
from perfkit.engine.step_graph.path_pieces import PathPieces, lag_name
from perfkit.engine.steps.windows import Steps
from perfkit.records.per_rank.loading import RecordedFetch
from perfkit.records.per_rank.work import WORK_PHASES
from perfkit.subjects.input.waits import MAIN_PROCESS, Fetches, fetch_columns, slow_samples
from perfkit.tools.merge.collective_links import Spans
from perfkit.trace.events import MODULE, EventKind, Events
from perfkit.trace.intervals import Ints
from perfkit.trace.module_names import shown_module

BATCH: Final = "batch"
COLLATING: Final = "collating"
_SLOW: Final = "samples: one slow sample"
_READING, _TRANSFORMING = "samples: reading", "samples: transforming"


def loader_track(worker: int) -> str:
    return "perfkit: data loading" if worker == MAIN_PROCESS else f"perfkit: loader worker {worker}"


def loader_slices(
    recorded: list[RecordedFetch], start_ns: Ints, end_ns: Ints
) -> dict[int, tuple[Spans, list[str | None]]]:
    """Return the slices of each worker by its number, with a note or None for each slice.

    Args:
        start_ns: starts of the windows to show, disjoint and in order; shape (w,).
    """
    fetches = fetch_columns(recorded)
    kind = np.where(slow_samples(fetches), 2, np.where(2 * fetches.cpu_ns >= fetches.got - fetches.begin, 1, 0))
    window = np.searchsorted(end_ns, fetches.begin, side="right")
    shown = np.append(start_ns, np.iinfo(np.int64).max)[window] < fetches.end
    found = {}
    for worker in np.unique(fetches.worker[shown]).tolist():
        rows = np.flatnonzero(shown & (fetches.worker == worker))
        found[worker] = _of_worker(fetches, rows, kind[rows].tolist())
    return found


def _of_worker(fetches: Fetches, rows: Ints, kinds: list[int]) -> tuple[Spans, list[str | None]]:
    names = (_READING, _TRANSFORMING, _SLOW)
    spans = Spans(
        np.concatenate((fetches.begin[rows], fetches.begin[rows], fetches.got[rows])),
        np.concatenate((fetches.end[rows], fetches.got[rows], fetches.end[rows])),
        [BATCH] * len(rows) + [names[kind] for kind in kinds] + [COLLATING] * len(rows),
    )
    nothing: list[str | None] = [None] * len(rows)
    return spans, nothing + [_note(fetches, row) for row in rows.tolist()] + nothing


def _note(fetches: Fetches, row: int) -> str:
    """Return what is known of the samples of a batch."""
    get_ns, slowest_ns = int(fetches.got[row] - fetches.begin[row]), int(fetches.slowest_ns[row])
    parts = [f"processor {whole_percent(int(fetches.cpu_ns[row]) / max(get_ns, 1))} of the time"]
    if fetches.samples[row] > 1:  # one may be a whole batch
        parts.insert(0, f"{fetches.samples[row]} samples")
        if slowest_ns:
            index = f" (number {fetches.slowest[row]})" if fetches.slowest[row] >= 0 else ""
            parts.append(f"the slowest{index} took {duration(slowest_ns)}")
    return ", ".join(parts)


_DEEPEST: Final = 64
"""Modules within modules that are drawn; of work further in, the outer ones are."""


class ModuleWork(NamedTuple):
    """Work by module."""

    spans: Spans
    """Consecutive work of one module and phase, by the rank's own clock; inner modules nest in outer ones."""
    of_event: Ints
    """Index into `texts` of the module that each event belongs to, the innermost; -1 for none; shape (n,)."""
    texts: list[str]


def find_module_work(located: Located, device: Device, shown: NDArray[np.bool_]) -> ModuleWork | None:
    """Return work by module; None if the trace has no calls of modules.

    Args:
        device: its activities; only those that compute are drawn, without a device the operators of the busiest thread.
        shown: mask of the steps whose work is drawn, shape (k,).
    """
    if not located.has("module"):
        return None
    table, items = PathTable(), located.items
    path = located.paths("module", table)
    name = table.name
    labels = [number for number, text in enumerate(located.texts) if text in LABELS]
    # The path of what belongs to no module is a label.
    known = (path > 0) & ~np.isin(name[path], labels) & (items.row >= 0)
    of_event = np.full(len(located.events.kind), -1, np.int64)
    of_event[items.row[known]] = name[path[known]]
    texts = [*located.texts]
    _name_calls(located, of_event, texts)
    in_step = (items.step >= 0) & shown[np.clip(items.step, 0, len(shown) - 1)]
    drawn = known & in_step & np.isin(items.row, _drawn_rows(located, device))
    group = items.step[drawn] * len(WORK_PHASES) + located.phase[drawn]
    start, end, text = _slices(located.events, items.row[drawn], path[drawn], group, table)
    return ModuleWork(Spans(start, end, [located.texts[number] for number in text.tolist()]), of_event, texts)


def _name_calls(located: Located, of_event: Ints, texts: list[str]) -> None:
    """Add the modules that Python frames are calls of, if perfkit recorded their qualified names."""
    events, modules = located.events, located.frames.modules
    named = np.full(len(events.names) + 1, -1, np.int64)  # the last is that of no name
    for number, name in enumerate(events.names):
        instance = name.removeprefix(MODULE)
        if name != instance and instance in modules:
            named[number] = len(texts)
            texts.append(shown_module(instance, modules[instance]))
    calls = events.rows(EventKind.PYTHON)
    of_event[calls] = named[events.name[calls]]


def _drawn_rows(located: Located, device: Device) -> Ints:
    if len(device.row):
        return np.asarray(device.row[device.is_compute])
    rows = located.items.row[located.items.row >= 0]
    threads = located.events.thread[rows]
    return np.asarray(rows[threads == np.argmax(np.bincount(threads))]) if len(rows) else rows


def _slices(events: Events, rows: Ints, path: Ints, group: Ints, table: PathTable) -> tuple[Ints, Ints, Ints]:
    """Return start, end and name of the slices at all depths."""
    order = np.argsort(events.start_ns[rows], kind="stable")
    start, end = events.start_ns[rows][order], events.end_ns[rows][order]
    path, group = path[order], group[order]
    parts = []
    for level in _levels(path, table):
        first = np.flatnonzero(np.diff(level, prepend=-1) | np.diff(group, prepend=-1))
        if not len(first):
            break
        # The next work of another module may begin before this one's has ended, on another stream.
        until = np.minimum(np.maximum.reduceat(end, first), np.append(start[first[1:]], np.iinfo(np.int64).max))
        kept = level[first] > 0
        parts.append((start[first][kept], until[kept], table.name[level[first][kept]]))
    empty = np.zeros(0, np.int64)
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)] if parts else [empty] * 3
    return columns[0], columns[1], columns[2]


def _levels(path: Ints, table: PathTable) -> list[Ints]:
    """Return the paths' ancestors at each depth, the outermost first; 0 where a path is shorter."""
    parent = table.parent
    depth = np.zeros(len(parent), np.int64)
    for number in range(1, len(parent)):  # a parent's number is smaller
        depth[number] = depth[parent[number]] + 1
    deepest = min(int(depth[path].max(initial=0)), _DEEPEST)
    levels = []
    for wanted in range(deepest, 0, -1):
        current = path.copy()
        while (above := depth[current] > wanted).any():
            current[above] = parent[current[above]]
        levels.append(np.where(depth[current] == wanted, current, 0))
    return levels[::-1]


def path_slices(graph: StepGraph, steps: Ranges | None) -> dict[int, Spans]:
    """Return the slices of each rank, by the reference clock.

    A node is called what it mostly ran, a lag what it waited for.
    """
    path = PathPieces(graph)
    shown = np.array([steps is None or (number is not None and number in steps) for number in graph.steps])
    wanted = shown[graph.nodes.step[path.node]] & (path.rank >= 0)
    nodes = np.flatnonzero(wanted & (path.end > path.start))
    lags = np.flatnonzero(wanted & (path.lag_end > path.lag_start))
    start = np.concatenate((path.start[nodes], path.lag_start[lags]))
    until = np.concatenate((path.end[nodes], path.lag_end[lags]))
    kinds = graph.edges.kind[path.edge[lags]].tolist()
    label = _labels(graph, path.node[nodes]) + [lag_name(EDGE_KINDS[kind]) for kind in kinds]
    rank = np.concatenate((path.rank[nodes], path.rank[lags]))
    return {
        number: Spans(start[rows], until[rows], [label[row] for row in rows.tolist()])
        for number, rows in rows_by_key(rank).items()
    }


def _labels(graph: StepGraph, nodes: Ints) -> list[str]:
    """Return the name of each node's largest part."""
    order = np.lexsort((-graph.parts.ns, graph.parts.node))
    owner = graph.parts.node[order]
    largest = order[np.minimum(np.searchsorted(owner, nodes), len(order) - 1)] if len(order) else order
    names = graph.parts.name[largest].tolist()
    return [graph.names[name] if name >= 0 else "communication" for name in names]


_KINDS: Final = ("forward", "backward", "backward of input", "backward of weights")
"""Names of the kinds of actions, as `perfkit.engine.pipelines.actions.KINDS` orders them."""
BUBBLE: Final = "bubble"


def pipeline_slices(spans: PipelineSpans, steps: Steps, shown: NDArray[np.bool_]) -> Spans:
    """Return the micro-batches and bubbles of the shown steps."""
    worked = shown[spans.step] & (spans.end > spans.begin)
    step = np.searchsorted(steps.bounds, spans.bubble.start, side="right") - 1
    inside = (step >= 0) & (step < len(shown))
    waited = inside & shown[np.clip(step, 0, len(shown) - 1)]
    names = [
        f"{_KINDS[kind]} {batch}, stage {stage}"
        for stage, kind, batch in zip(*spans.keys[:, worked].tolist(), strict=True)
    ]
    return Spans(
        np.concatenate((spans.begin[worked], spans.bubble.start[waited])),
        np.concatenate((spans.end[worked], spans.bubble.end[waited])),
        names + [BUBBLE] * int(waited.sum()),
    )
