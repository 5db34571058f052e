"""What names of the host's events mean for idle time, by patterns."""

import re
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from perfkit.engine.kinds.classify import Names, matching
from perfkit.engine.kinds.runtime_calls import call_patterns
from perfkit.trace.events import EventKind, Events

_SYNCHRONISING_OPERATOR: Final = re.compile(r"aten::(item|_local_scalar_dense|is_nonzero)$")
"""Operators that copy a value to the host and wait for it. On the CPU they are compute, and never in idle time."""

_WRAPPER: Final = re.compile(r"autograd::engine::|torch::autograd::|record_param_comms$")
"""Wrappers around the operator that is informative."""

_COMPILING_TOOL: Final = re.compile(r"Driver Compiler|Runtime Triggered Module Loading|Lazy Function Loading")
"""CUPTI's names (`CUpti_ActivityOverheadKind`) of what is not the profiler's doing."""
_NEUTRAL_TOOL: Final = re.compile(r"Command Buffer Full|Unknown|Unrecognized")

SYNCHRONISING, ALLOCATING, COMPILING, ISSUING = range(4)
"""Kinds of runtime calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostNames:
    """Classes by name; each column has shape (number of names,)."""

    call: NDArray[np.int8]
    """Kind of a runtime call of this name."""
    launches_graph: NDArray[np.bool_]
    synchronising_operator: NDArray[np.bool_]
    compiling: NDArray[np.bool_]
    """Operators and annotations that compile."""
    wrapper: NDArray[np.bool_]
    compiling_tool: NDArray[np.bool_]
    profiling_tool: NDArray[np.bool_]
    context: NDArray[np.bool_]
    """Annotations that tell where in the program the host is: neither steps nor collectives."""


def host_names(events: Events, names: Names, is_step: NDArray[np.bool_]) -> HostNames:
    """Classify the names of the host's events, each only as what it occurs as."""
    calls, tools = _used(events, EventKind.LAUNCH), _used(events, EventKind.TOOL)
    operators, annotations = _used(events, EventKind.OPERATOR), _used(events, EventKind.ANNOTATION)
    call = np.full(len(events.names), ISSUING, np.int8)
    does = call_patterns()
    kinds = ((does.compiling, COMPILING), (does.allocating, ALLOCATING), (does.synchronising, SYNCHRONISING))
    for pattern, kind in kinds:  # the last that matches counts
        call[matching(events, calls, pattern)] = kind
    compiling = matching(events, tools, _COMPILING_TOOL)
    return HostNames(
        call=call,
        launches_graph=matching(events, calls, does.graph_launch),
        synchronising_operator=matching(events, operators, _SYNCHRONISING_OPERATOR),
        compiling=names.compiling,
        wrapper=matching(events, operators, _WRAPPER),
        compiling_tool=compiling,
        profiling_tool=tools & ~compiling & ~matching(events, tools, _NEUTRAL_TOOL),
        context=annotations & ~is_step & ~names.backend_annotation & ~names.whole_span_annotation,
    )


def is_wrapper(operator: str) -> bool:
    """Return whether an operator is a wrapper around an informative one."""
    return _WRAPPER.match(operator) is not None


def _used(events: Events, kind: EventKind) -> NDArray[np.bool_]:
    used = np.zeros(len(events.names), np.bool_)
    used[events.names_of(events.kind == kind)] = True
    return used
