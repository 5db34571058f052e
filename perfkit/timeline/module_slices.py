"""The modules that work belongs to: of each kernel or operator, and as slices for a separate track.

Work is that of metrics.md section 20: kernels and copies, or operators without a device. Backward belongs to the
modules whose forward operators caused it.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.analysis.per_rank.attribution.call_paths import PathTable
from perfkit.analysis.per_rank.attribution.call_sites import LABELS
from perfkit.analysis.per_rank.attribution.views import Located
from perfkit.analysis.per_rank.classify import Device
from perfkit.schema.per_rank.work import WORK_PHASES
from perfkit.timeline.collective_links import Spans
from perfkit.trace.events import MODULE, EventKind, Events
from perfkit.trace.intervals import Ints
from perfkit.trace.module_names import shown_module

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
        located: the work of the trace.
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
