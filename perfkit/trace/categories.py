"""Categories of events as PyTorch's profiler (kineto) names them: one ordered table, the first match wins."""

import re
from functools import cache, lru_cache
from typing import Final

from perfkit.accelerators import HOST_BACKENDS, accelerators, device_backends
from perfkit.trace.events import EventKind

_UNLISTED_PREFIXES: Final = ("gpu", "gcu")
"""What categories of devices begin with, beside those of the known accelerators."""

_UNLISTED_BACKENDS: Final = ("cncl", "mccl")
"""Backends of devices that have no row: Cambricon's and Moore Threads'."""

LEGACY_ANNOTATION: Final = re.compile(r"ProfilerStep#\d+$|enumerate\(DataLoader\)#|perfkit\.data_loading$")
"""Names of annotations among the events of category `Operator` (not `cpu_op`): they had no separate category."""


@lru_cache(maxsize=256)
def kind_of(category: str) -> EventKind:
    """Return the kind of complete events (`ph == "X"`) of a category; see `LEGACY_ANNOTATION` for the exception."""
    for pattern, kind in _kinds():
        if pattern.fullmatch(category):
            return kind
    return EventKind.UNKNOWN


@cache
def communication_operators() -> "re.Pattern[str]":
    """Return what matches operators and annotations that issue or wait for communication (metrics.md section 2)."""
    return re.compile(rf"record_param_comms$|c10d::|_c10d_functional::|({'|'.join(_backends())}):")


@cache
def backend_annotations() -> "re.Pattern[str]":
    """Return what matches annotations that count as operators when the innermost one at a launch is searched for."""
    return re.compile(rf"({'|'.join(_backends())}):")


@cache
def whole_span_annotations() -> "re.Pattern[str]":
    """Return what matches annotations that, in a CPU-only trace, are communication for their whole span."""
    return re.compile(rf"({'|'.join(HOST_BACKENDS)}):")


def _backends() -> tuple[str, ...]:
    return tuple(map(re.escape, (*device_backends(), *_UNLISTED_BACKENDS, *HOST_BACKENDS)))


@cache
def _kinds() -> "tuple[tuple[re.Pattern[str], EventKind], ...]":
    """Compile the table; matched without case: before 2022 kineto wrote `Kernel`, `Memcpy`, `Operator`, `Runtime`."""
    rows = accelerators()
    device = "|".join(dict.fromkeys((*_UNLISTED_PREFIXES, *(re.escape(row.category) for row in rows))))
    kernels = [re.escape(category) for row in rows for category in row.kernel_categories]
    launches = [re.escape(category) for row in rows for category in row.launch_categories]
    table = (
        ("|".join(["kernel", *kernels]), EventKind.KERNEL),
        (rf"(({device})_)?mem(cpy|set)", EventKind.COPY),
        (r"cpu_op|operator", EventKind.OPERATOR),
        (r"user_annotation", EventKind.ANNOTATION),
        ("|".join([r"(\w+_)?(runtime|driver)", *launches]), EventKind.LAUNCH),
        (r"python_function", EventKind.PYTHON),
        (rf"({device})_user_annotation", EventKind.DEVICE_ANNOTATION),
        # Waits: not device work.
        (rf"({device})_(sync|event)", EventKind.OTHER),
        (r"overhead", EventKind.TOOL),
        (r"trace|cpu_instant_event|external_correlation|collective_comm|gcu_profiler_range", EventKind.OTHER),
        ("|".join(category for row in rows for category in row.other_categories), EventKind.OTHER),
        (r"ac2g|async_cpu_to_gpu|async_gpu|fwdbwd|forward_backward|__metadata", EventKind.OTHER),
    )
    return tuple((re.compile(pattern, re.IGNORECASE), kind) for pattern, kind in table)
