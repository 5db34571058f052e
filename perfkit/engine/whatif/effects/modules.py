"""Changes of modules: what their calls compute, forward and backward."""

from collections.abc import Sequence
from typing import ClassVar, Final

import numpy as np

from perfkit.engine.step_graph.graph import COMPUTE, FIRST_CAUSE, HOST, KINDS, MEMCPY, StepGraph
from perfkit.engine.step_graph.modules import GraphModule, class_paths, shown_paths
from perfkit.engine.whatif.altered import Mask
from perfkit.engine.whatif.change import ChangedRun, ChangeError, Effect
from perfkit.engine.whatif.parts import matches, nothing_matches, time_per_step
from perfkit.engine.whatif.values import ScaleNamed
from perfkit.records.facts import fact

_PROFILER: Final = KINDS.index("profiler")


class ScaleModule(ScaleNamed, frozen=True):
    """What calls of modules compute, forward and backward, takes `factor` of its time, with the modules within them.

    On a device these are the kernels and copies that they launch, and only without any the host's time in them. The
    pattern is a glob of qualified names, or of the classes from some module inwards.
    """

    example: ClassVar = "module:PATH=0.7x"
    examples: ClassVar = "module:layers.*=0.7x"
    help: ClassVar = "modules by name or class; needs --with-stack"
    subject: ClassVar = r"module:(.+)"

    def apply(self, run: ChangedRun) -> Effect:
        """Scale what the modules do."""
        state, graph = run.state, run.graph
        if not any(module.is_module for module in graph.modules):
            raise ChangeError(fact("no_modules"))
        of_module = np.append(matching_modules(graph.modules, self.pattern), False)
        within = of_module[graph.parts.module]
        kind = graph.parts.kind
        on_device = np.isin(kind, (COMPUTE, MEMCPY)) & _is_device_work(graph)
        chosen = within & on_device
        assumption = "launching_stays"
        if not chosen.any():
            chosen = within & (np.isin(kind, (HOST, COMPUTE)) | ((kind >= FIRST_CAUSE) & (kind != _PROFILER)))
            assumption = "modules_launch_nothing" if on_device.any() else "module_code_changes"
        if not chosen.any():
            raise nothing_matches("module", _by_time(graph))
        unnamed = [] if any(module.names for module in graph.modules) else [fact("modules_unnamed")]
        count = int((of_module[:-1] & _is_own(graph, chosen)).sum())
        what = fact("modules", count=count), *time_per_step(state, chosen)
        return Effect(state.scaled(chosen, self.factor), what, [fact(assumption), *unnamed])


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
