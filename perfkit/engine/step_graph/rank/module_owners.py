"""The modules that parts of the graph belong to (metrics.md section 20)."""

import numpy as np

from perfkit.engine.attribution.call_paths import ROOT, PathTable
from perfkit.engine.attribution.views import LABELS, CallSites, Located
from perfkit.engine.kinds.classify import rows_by_key
from perfkit.engine.step_graph.modules import NO_MODULE, GraphModule
from perfkit.trace.events import MODULE
from perfkit.trace.intervals import Ints, distinct


class ModuleOwners:
    """Calls of modules, within each other."""

    def __init__(self, located: Located) -> None:
        self._located = located
        self._table = PathTable()
        frames, chosen = located.frames, located.module_frames()
        self._bounds = {
            thread: distinct(np.concatenate((frames.start_ns[rows], frames.end_ns[rows])))
            for thread, rows in rows_by_key(frames.thread, chosen).items()
        }

    def bounds(self, thread: int) -> Ints:
        """Return when calls of modules begin or end on a thread, in order."""
        return self._bounds.get(thread, np.zeros(0, np.int64))

    def of(self, thread: Ints, instant: Ints) -> Ints:
        """Return what runs at instants on threads belongs to: indices into `modules()`, or `NO_MODULE`.

        A trace without calls of modules has none.
        """
        if not self._bounds:
            return np.full(len(thread), NO_MODULE, np.int64)
        located = self._located
        sites = CallSites(located.events, located.phases, thread, instant)
        spans = located.module_spans
        around = sites.around(spans)
        path = spans.paths(around.span, self._table)
        bare = np.flatnonzero(around.span < 0)
        label = len(located.frames.names) + around.label[bare]
        path[bare] = self._table.extend(np.full(len(bare), ROOT, np.int64), label)
        return path - 1

    def modules(self) -> list[GraphModule]:
        """Return the modules that `of` has found, each after the one that called it."""
        frames = self._located.frames
        instances = [name.removeprefix(MODULE) for name in frames.names] + list(LABELS)
        rows = zip(self._table.parent[1:].tolist(), self._table.name[1:].tolist(), strict=True)
        return [
            GraphModule(parent - 1, instances[name], frames.modules.get(instances[name], ())) for parent, name in rows
        ]
