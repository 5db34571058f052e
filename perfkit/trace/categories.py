"""Categories of events as PyTorch's profiler (kineto) names them: one ordered table, first match wins."""

import re
from functools import lru_cache
from typing import Final

from perfkit.trace.events import EventKind

_DEVICE: Final = "(gpu|cuda|hip|xpu|mtia|gcu|privateuse1)"

KINDS: Final[tuple[tuple[str, EventKind], ...]] = (
    (r"kernel|mtia_ccp_events", EventKind.KERNEL),
    (rf"({_DEVICE}_)?mem(cpy|set)", EventKind.COPY),
    (r"cpu_op|operator", EventKind.OPERATOR),
    (r"user_annotation", EventKind.ANNOTATION),
    (r"(\w+_)?(runtime|driver)|hpu_op", EventKind.LAUNCH),
    (r"python_function", EventKind.PYTHON),
    # Copies of host annotations on the device's timeline, and waits: not device work.
    (rf"gpu_user_annotation|{_DEVICE}_(sync|event)", EventKind.OTHER),
    (
        r"trace|overhead|cpu_instant_event|external_correlation|collective_comm|(cuda|gcu)_profiler_range",
        EventKind.OTHER,
    ),
    (r"mtia_(insight|counters|workloadd)|gpu_pm_counter", EventKind.OTHER),
    (r"ac2g|async_cpu_to_gpu|async_gpu|fwdbwd|forward_backward|__metadata", EventKind.OTHER),
)
"""Tried without case: before 2022 kineto wrote `Kernel`, `Memcpy`, `Memset`, `Operator`, `Runtime`."""

COMMUNICATION_OPERATORS: Final = r"record_param_comms$|c10d::|_c10d_functional::|(nccl|gloo|mpi|ucc|xccl):"
"""Host operators, and annotations of backends, that issue or wait for communication (metrics.md section 2)."""

_OLD_ANNOTATION: Final = re.compile(r"ProfilerStep#\d+$|enumerate\(DataLoader\)#|perfkit\.data_loading$")
"""Before annotations had a category of their own, they were written as `Operator`."""


def is_legacy_annotation(name: str) -> bool:
    """Return whether an event of category `Operator` (and not `cpu_op`) with this name is an annotation."""
    return _OLD_ANNOTATION.match(name) is not None


@lru_cache(maxsize=256)
def kind_of(category: str) -> EventKind:
    """Return the kind of complete events (`ph == "X"`) of a category; see `is_legacy_annotation` for the exception."""
    for pattern, kind in KINDS:
        if re.fullmatch(pattern, category, re.IGNORECASE):
            return kind
    return EventKind.UNKNOWN
