"""Findings about work whose origin is not in the trace: of graphs, without a launch, or in compiled regions."""

import re
from typing import Final

import numpy as np
from numpy.typing import NDArray

from perfkit.engine.breakdown import Activity
from perfkit.engine.kinds.classify import Device
from perfkit.engine.kinds.runtime_calls import call_patterns
from perfkit.engine.steps.windows import Steps
from perfkit.records.common import Observation
from perfkit.trace.events import EventKind, Events
from perfkit.trace.intervals import Ints

_LEAST_SHARE: Final = 0.01
"""Of the time of all device work in the steps; less is not worth a line."""
_SERIOUS_SHARE: Final = 0.05
"""The same; less changes no conclusion."""
_COMPILED: Final = re.compile(r"## Call CompiledFxGraph |Torch-Compiled Region")
"""Operators of torch.compile whose own time on the CPU is that of fused kernels."""


def unknown_origins(events: Events, device: Device, activity: Activity, steps: Steps) -> list[Observation]:
    """Return the findings about a trace."""
    return [*_on_device(events, device, steps), *_compiled(events, activity)]


def _compiled(events: Events, activity: Activity) -> list[Observation]:
    """Return a finding if fused kernels, which have no events on the CPU, take much of its work."""
    if not len(activity.self_ns):
        return []
    rows = events.rows(EventKind.OPERATOR)
    is_compiled = events.shapes.starting_with(_COMPILED)
    total_ns = int(activity.self_ns[rows].sum())
    own_ns = int(activity.self_ns[rows[is_compiled[events.name[rows]]]].sum())
    if own_ns < _LEAST_SHARE * total_ns or not own_ns:
        return []
    return [Observation("compilation_hides_operators", {"share": own_ns / total_ns})]


def _on_device(events: Events, device: Device, steps: Steps) -> list[Observation]:
    """Return findings about kernels; none without any call of the device's runtime, because then there is no host."""
    calls = events.rows(EventKind.LAUNCH)
    in_steps = steps.device_step >= 0
    rows, launches = device.row[in_steps], device.launch_row[in_steps]
    if not len(calls) or not len(rows):
        return []
    is_graph = events.shapes.starting_with(call_patterns().graph_launch)
    in_graph = (launches >= 0) & is_graph[events.name[launches]]
    return [*_in_graphs(events, rows, launches, in_graph), *_without_launch(events, rows, launches < 0)]


def _in_graphs(events: Events, rows: Ints, launches: Ints, chosen: NDArray[np.bool_]) -> list[Observation]:
    share = _share(events, rows, chosen)
    if share < _LEAST_SHARE:
        return []
    return [Observation("graphs_hide_operators", {"share": share, "launches": len(np.unique(launches[chosen]))})]


def _without_launch(events: Events, rows: Ints, chosen: NDArray[np.bool_]) -> list[Observation]:
    share = _share(events, rows, chosen)
    if share < _LEAST_SHARE:
        return []
    values = {"activities": int(chosen.sum()), "of": len(rows), "share": share}
    return [Observation("launches_missing", values, severity="warning" if share >= _SERIOUS_SHARE else "info")]


def _share(events: Events, rows: Ints, chosen: NDArray[np.bool_]) -> float:
    length = (events.end_ns[rows] - events.start_ns[rows]).astype(np.float64)
    total = float(length.sum())
    return float(length[chosen].sum()) / total if total else 0.0
