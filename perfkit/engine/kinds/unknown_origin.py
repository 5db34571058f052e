"""Findings about work that is not in the trace, or whose origin is not: of a device, of graphs, of compiled regions."""

import re
from typing import Final

import numpy as np
from numpy.typing import NDArray

from perfkit.accelerators import device_backends
from perfkit.engine.breakdown import Activity
from perfkit.engine.kinds.classify import Device
from perfkit.engine.kinds.runtime_calls import call_patterns
from perfkit.engine.steps.windows import Steps
from perfkit.records.aggregate import REPORTED_SHARE
from perfkit.records.common import Observation
from perfkit.trace.events import EventKind, Events, RankTrace
from perfkit.trace.intervals import Ints

_SERIOUS_SHARE: Final = 0.05
"""Of the time of all device work in the steps; less changes no conclusion."""
_COMPILED: Final = re.compile(r"## Call CompiledFxGraph |Torch-Compiled Region")
"""Operators of torch.compile whose own time on the CPU is that of fused kernels."""
_STARTS_WORK: Final = re.compile(r"launch(?!hostfunc)|enqueue|mem_?cpy|mem_?copy|memorycopy|mem_?set|memoryfill", re.I)
"""Names of calls that give a device work: cudaLaunchKernel, hipMemcpyAsync, urEnqueueKernelLaunch and the like. Every
other call also occurs where no work follows: torch asks for devices and their properties on import."""


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
    if own_ns < REPORTED_SHARE * total_ns or not own_ns:
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
    if share < REPORTED_SHARE:
        return []
    return [Observation("graphs_hide_operators", {"share": share, "launches": len(np.unique(launches[chosen]))})]


def _without_launch(events: Events, rows: Ints, chosen: NDArray[np.bool_]) -> list[Observation]:
    share = _share(events, rows, chosen)
    if share < REPORTED_SHARE:
        return []
    values = {"activities": int(chosen.sum()), "of": len(rows), "share": share}
    return [Observation("launches_missing", values, severity="warning" if share >= _SERIOUS_SHARE else "info")]


def _share(events: Events, rows: Ints, chosen: NDArray[np.bool_]) -> float:
    length = (events.end_ns[rows] - events.start_ns[rows]).astype(np.float64)
    total = float(length.sum())
    return float(length[chosen].sum()) / total if total else 0.0


def lost_device(trace: RankTrace) -> list[Observation]:
    """Return a finding for a trace without device activity if the program used a device."""
    signs = {
        "launches": _starts_work(trace.events),
        "backend": _is_device_backend(trace.header.backend or ""),
        "collectives": _has_device_collective(trace.events),
    }
    seen = [sign for sign, there in signs.items() if there]
    return [Observation("no_device_events", {"signs": seen, "backend": trace.header.backend})] if seen else []


def _starts_work(events: Events) -> bool:
    names = events.names_of(events.rows(EventKind.LAUNCH))
    return bool(len(names) and events.shapes.containing(_STARTS_WORK)[names].any())


def _is_device_backend(backend: str) -> bool:
    """Return whether a backend runs on devices only; torch writes it with or without the device's type."""
    return re.fullmatch(rf"(\w+:)?({_backends()})", backend) is not None


def _has_device_collective(events: Events) -> bool:
    pattern = re.compile(rf"record_param_comms$|({_backends()}):")
    return bool(events.shapes.starting_with(pattern).any())


def _backends() -> str:
    return "|".join(map(re.escape, device_backends()))
