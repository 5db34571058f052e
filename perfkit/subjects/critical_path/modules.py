"""Sum the critical path by module, as a tree of bounded size (metrics.md section 16)."""

import numpy as np

from perfkit.engine.step_graph.graph import StepGraph
from perfkit.engine.step_graph.modules import shown_paths
from perfkit.records.per_rank.work import OUTSIDE
from perfkit.records.per_rank.work_trees import Path, Weights, build_tree
from perfkit.records.per_run.critical_path import PathModuleTime
from perfkit.trace.intervals import Ints


def path_by_module(graph: StepGraph, module: Ints, ns: Ints) -> list[PathModuleTime]:
    """Return the time on the path of modules with those within them; the roots add up to all of it.

    Args:
        graph: the graph.
        module: of each piece of the path, an index into the graph's modules, or `NO_MODULE`.
        ns: their time.
    """
    if not any(one.is_module for one in graph.modules):
        return []
    own_ns = np.zeros(len(graph.modules) + 1, np.int64)
    np.add.at(own_ns, module, ns)  # the last is that of -1
    paths = [*shown_paths(graph.modules), (OUTSIDE,)]
    inclusive: dict[Path, Weights] = {}
    for path, time_ns in zip(paths, own_ns.tolist(), strict=True):
        for length in range(1, len(path) + 1) if time_ns else ():
            own = Weights(total_ns=time_ns, self_ns=time_ns if length == len(path) else 0)
            inclusive[path[:length]] = inclusive.get(path[:length], Weights()).plus(own)
    return [
        PathModuleTime(depth=node.depth, name=node.name, total_ns=node.total_ns, self_ns=node.self_ns)
        for node in build_tree("class", inclusive).nodes
    ]
