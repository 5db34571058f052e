"""Categories of events as PyTorch's profiler (kineto) names them: one ordered table, first match wins."""

import re
from functools import lru_cache
from typing import Final

from perfkit.trace.events import Kind

KINDS: Final[tuple[tuple[str, Kind], ...]] = (
    (r"kernel|mtia_ccp_events", Kind.KERNEL),
    (r"(gpu_)?mem(cpy|set)", Kind.COPY),
    (r"cpu_op|operator", Kind.OPERATOR),
    (r"user_annotation", Kind.ANNOTATION),
    (r"(\w+_)?(runtime|driver)", Kind.LAUNCH),
    (r"python_function", Kind.PYTHON),
    # Copies of host annotations on the device's timeline, and waits: not device work.
    (r"gpu_user_annotation|cuda_sync|cuda_event", Kind.OTHER),
    (r"trace|overhead|cpu_instant_event|external_correlation|collective_comm|cuda_profiler_range", Kind.OTHER),
    (r"ac2g|async_cpu_to_gpu|async_gpu|fwdbwd|forward_backward|__metadata", Kind.OTHER),
)
"""Tried without case: before 2022 kineto wrote `Kernel`, `Memcpy`, `Memset`, `Operator`, `Runtime`."""

COMMUNICATION_OPERATORS: Final = r"record_param_comms$|c10d::|_c10d_functional::|(nccl|gloo|mpi|ucc|xccl):"
"""Host operators, and annotations of backends, that issue or wait for communication (METRICS section 2)."""

_OLD_ANNOTATION: Final = re.compile(r"ProfilerStep#\d+$|enumerate\(DataLoader\)#|perfkit\.data_loading$")
"""Before annotations had a category of their own, they were written as `Operator`."""


def kind_of(category: str, name: object) -> Kind:
    """Return the kind of a complete event (`ph == "X"`) of this `cat` and name."""
    kind = _kind_of_category(category)
    if kind is Kind.OPERATOR and category != "cpu_op" and isinstance(name, str) and _OLD_ANNOTATION.match(name):
        return Kind.ANNOTATION
    return kind


@lru_cache(maxsize=256)
def _kind_of_category(category: str) -> Kind:
    for pattern, kind in KINDS:
        if re.fullmatch(pattern, category, re.IGNORECASE):
            return kind
    return Kind.UNKNOWN
