"""What names of the host's events mean for idle time, as ordered tables of patterns; the first match wins."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from perfkit.analysis.per_rank.classify import Names
from perfkit.trace.events import EventKind, Events
from perfkit.trace.intervals import Ints

_ANY: Final = r"(cuda|cu|hip|hsa_|xpu|ze|musa|mu|cnrt|cn|aclrt|synapse|mtia)"

_SYNCHRONISING_CALL: Final = re.compile(
    rf"{_ANY}(Stream|Device|Event|Ctx|Thread)_?Synchronize"
    r"|(cuda|hip)Memcpy(2D|3D|ToSymbol|FromSymbol)?(_v\d+)?$|cuMemcpy(HtoD|DtoH|DtoD)?(_v2)?$|hipMemcpyWithStream"
    r"|hipMemcpy(HtoD|DtoH|DtoD)$|ze(Fence|Event|CommandQueue)(Host)?Synchronize"
)
"""Calls that return when the device, or the copy, is done."""

_ALLOCATING_CALL: Final = re.compile(
    r"(cuda|hip)(Ext)?(Malloc|Free|HostAlloc|HostFree|HostRegister|HostUnregister)"
    r"|cuMem(Alloc|Free|Create|Release|Map|Unmap|SetAccess|Address|HostAlloc|HostRegister)|hipMem(Create|Map|Unmap)"
    r"|ze(MemAlloc|MemFree)|hsa_amd_memory_pool_(allocate|free)|musaMalloc|musaFree|aclrtMalloc|aclrtFree"
)

_COMPILING_CALL: Final = re.compile(
    r"(cu|hip)(Module|Library)Load|(cuda|hip)LibraryLoad|(cu|hip)Link|nvrtcCompile|hiprtcCompile|zeModuleCreate"
)
"""Calls that load or link code."""

_GRAPH_LAUNCH: Final = re.compile(r"(cuda|cu|hip)GraphLaunch")

_SYNCHRONISING_OPERATOR: Final = re.compile(r"aten::(item|_local_scalar_dense|is_nonzero)$")
"""Operators that copy a value to the host and wait for it. On the CPU they are compute, and never in idle time."""

_COMPILING: Final = re.compile(r".* \(dynamo_timed\)$|(\w+\.)*compile_fx|Inductor::compile", re.DOTALL)
"""torch.compile's own operators and annotations while it compiles, not while it runs what it compiled."""

_WRAPPER: Final = re.compile(r"autograd::engine::|torch::autograd::|record_param_comms$")
"""Operators around the one that tells a reader something."""

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
    call[calls] = [_call(events.names[name]) for name in calls.tolist()]
    compiling = _matching(events, tools, _COMPILING_TOOL.match)
    neutral = _matching(events, tools, _NEUTRAL_TOOL.match)
    profiling = np.zeros(len(events.names), np.bool_)
    profiling[tools] = True
    context = np.zeros(len(events.names), np.bool_)
    context[annotations] = True
    return HostNames(
        call=call,
        launches_graph=_matching(events, calls, _GRAPH_LAUNCH.match),
        synchronising_operator=_matching(events, operators, _SYNCHRONISING_OPERATOR.match),
        compiling=_matching(events, np.union1d(operators, annotations), _COMPILING.match),
        wrapper=_matching(events, operators, _WRAPPER.match),
        compiling_tool=compiling,
        profiling_tool=profiling & ~compiling & ~neutral,
        context=context & ~is_step & ~names.backend_annotation & ~names.whole_span_annotation,
    )


def is_wrapper(operator: str) -> bool:
    """Return whether an operator is one around the one that tells a reader something."""
    return _WRAPPER.match(operator) is not None


def is_graph_launch(call: str) -> bool:
    """Return whether a runtime call launches a whole graph."""
    return _GRAPH_LAUNCH.match(call) is not None


def _used(events: Events, kind: EventKind) -> Ints:
    return np.flatnonzero(np.bincount(events.name[events.kind == kind], minlength=len(events.names)))


def _call(name: str) -> int:
    table = ((_SYNCHRONISING_CALL, SYNCHRONISING), (_ALLOCATING_CALL, ALLOCATING), (_COMPILING_CALL, COMPILING))
    return next((kind for pattern, kind in table if pattern.match(name)), ISSUING)


def _matching(events: Events, names: Ints, matches: Callable[[str], object]) -> NDArray[np.bool_]:
    found = np.zeros(len(events.names), np.bool_)
    found[names] = [matches(events.names[name]) is not None for name in names.tolist()]
    return found


def flags(names: Iterable[str], matches: Callable[[str], bool]) -> NDArray[np.bool_]:
    """Return what `matches` returns for each name."""
    return np.fromiter(map(matches, names), np.bool_)
