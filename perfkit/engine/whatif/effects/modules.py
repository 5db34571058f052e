"""Changes of modules: what their calls compute, forward and backward."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from perfkit.engine.step_graph.graph import COMPUTE, FIRST_CAUSE, HOST, KINDS, MEMCPY, StepGraph
from perfkit.engine.step_graph.modules import GraphModule, class_paths, shown_paths
from perfkit.engine.whatif.altered import Mask
from perfkit.engine.whatif.changes import ScaleModule
from perfkit.engine.whatif.effects.effect import Effect, Subject, matches, nothing_matches, time_per_step
from perfkit.errors import UsageError

_PROFILER: Final = KINDS.index("profiler")


def scale_module(subject: Subject, change: ScaleModule) -> Effect:
    """Scale what the calls of modules do, with the modules within them, and the backward operators that they cause.

    On a device these are the kernels and copies that they launch, and only without any the host's time in them.

    Raises:
        UsageError: the traces contain no calls of modules, or no module has such a name.
    """
    state, graph = subject.state, subject.state.graph
    if not any(module.is_module for module in graph.modules):
        raise UsageError(
            f"change {subject.text}: the traces contain no calls of modules: record them with --with-stack "
            "(with_stack=True)"
        )
    of_module = np.append(matching_modules(graph.modules, change.pattern), False)
    within = of_module[graph.parts.module]
    kind = graph.parts.kind
    on_device = np.isin(kind, (COMPUTE, MEMCPY)) & _is_device_work(graph)
    chosen = within & on_device
    assumptions = ["kernels change, and the host takes as long to launch them"]
    if not chosen.any():
        chosen = within & (np.isin(kind, (HOST, COMPUTE)) | ((kind >= FIRST_CAUSE) & (kind != _PROFILER)))
        assumptions = ["operators and the Python code between them change; collectives take as long as before"]
        if on_device.any():
            assumptions = ["only the host's time in these modules changes: they launch no kernel"]
    if not chosen.any():
        raise nothing_matches(subject.text, "module that takes time", _by_time(graph))
    if not any(module.names for module in graph.modules):
        assumptions.append("the traces have classes and numbers of modules, not their names in the program")
    count = int((of_module[:-1] & _is_own(graph, chosen)).sum())
    what = f"{count} {'module' if count == 1 else 'modules'}"
    return Effect(
        state.scaled(chosen, change.factor), f"{what}, {time_per_step(graph, state.part_ns, chosen)}", assumptions
    )


def matching_modules(modules: Sequence[GraphModule], pattern: str) -> Mask:
    """Return which modules match, or are called by one that does.

    The pattern is a glob of a qualified name, of the class and number, or of the last classes of the path.
    """
    own = matches(pattern, [module.instance for module in modules])
    paths = class_paths(modules)
    own |= matches(pattern, paths) | matches(f"*.{pattern}", paths)
    for place, module in enumerate(modules):
        own[place] |= bool(matches(pattern, module.names).any())
        own[place] &= module.is_module
        if module.parent >= 0:
            own[place] |= own[module.parent]
    return own


def _is_device_work(graph: StepGraph) -> Mask:
    """Return which parts are nodes of a device: each is one kernel or copy."""
    return np.asarray(np.isin(graph.nodes.kind, (COMPUTE, MEMCPY))[graph.parts.node])


def _is_own(graph: StepGraph, chosen: Mask) -> Mask:
    """Return which modules some of the parts belong to directly."""
    found = np.zeros(len(graph.modules), np.bool_)
    found[graph.parts.module[chosen]] = True
    return found


def _by_time(graph: StepGraph) -> list[str]:
    """Return what modules with parts are called, those with the most time first."""
    own = graph.parts.module >= 0
    total = np.bincount(graph.parts.module[own], weights=graph.parts.ns[own], minlength=len(graph.modules))
    shown = shown_paths(graph.modules)
    order = [place for place in np.argsort(-total, kind="stable").tolist() if graph.modules[place].is_module]
    return list(dict.fromkeys(shown[place][-1] for place in order if total[place]))
