"""Find kernels that count as compute, but may be communication of a library that the rules do not know.

Two signs together: nothing shows that the kernel computes (no rule, no common name of a compute kernel, no operator of
PyTorch that launched it), and its stream carries communication and nothing else, or carries nothing else at all and
runs beside the compute of other streams. Programs that compute on several streams give known names to most of it, so
that a stream with a known compute kernel proves nothing and is left alone.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.engine.kinds.classify import Device, Names, innermost_at_launch
from perfkit.engine.kinds.kernel_rules import NO_RULE, bare_names
from perfkit.records.aggregate import MAJORITY, REPORTED_SHARE
from perfkit.records.common import Observation
from perfkit.trace.events import EventKind, Events
from perfkit.trace.intervals import Ints, measure, union

_MAX_OTHER_SHARE: Final = 0.05
"""Largest share of other compute on a stream that still counts as dedicated to the kernel."""
_LONGEST_NAME: Final = 80

_KNOWN_LIBRARIES: Final = (
    r"(at|aten|c10|torch|cub|thrust|cutlass|cute|ck|ck_tile|rocprim|hipcub|xla|fbgemm\w*|transformer_engine|marlin)::"
    r"|triton_"
)
"""Start of the names of libraries that only compute; Inductor's Triton kernels may contain any word."""
_COMMUNICATES: Final = (
    r"all_?gather|all_?reduce|reduce_?scatter|all_?to_?all|a2a|broadcast|send|recv|dispatch|combine|barrier|signal"
    r"|notify|peer|p2p|remote|shmem|rdma|nvlink|ipc_"
)
_COMPUTES: Final = (
    r"gemm|gemv|matmul|mma|conv(?!ert)|winograd|cijk_|cublas|cutlass|cudnn|miopen|nvjet|xmma|split_?k|stream_?k"
    r"|sm\d\d_|ampere_|volta_|turing_|hopper_|fprop|dgrad|wgrad|flash|fmha|attention|attn|mla_|moe_align"
    r"|softmax|norm|relu|gelu|silu|swiglu|sigmoid|tanh|rope|rotary|dropout|embedding|loss|cross_entropy|pool"
    r"|elementwise|vectorized|reduce|reduction|scan|sort|radix|topk|top_k|sampl|argmax|histogram|unique|nonzero"
    r"|index|gather|scatter|select|permut|transpose|copy|concat|fill|zero|arange|cast|convert|quant|scale"
    r"|multi_tensor|adam|sgd|lamb|optimizer|axpy|random|distribution"
    r"|(^|_|::)(cat|pad|dot|mul|add|sub|div|exp|fft)(_|$)"
)
"""Common in the names of kernels that compute."""


class _Suspect(NamedTuple):
    name: int
    beside_communication: bool
    total_ns: int
    kernels: int


def possible_communication(events: Events, names: Names, device: Device, world_size: int | None) -> list[Observation]:
    """Return a finding if kernels that count as compute may be communication.

    Args:
        events: the trace.
        names: classes of its names.
        device: its device activities.
        world_size: world size in the header; None if it has none. A single rank does not communicate.
    """
    if world_size == 1 or not len(device.row):
        return []
    suspects = sorted(_suspects(events, names, device), key=lambda suspect: -suspect.total_ns)
    if not suspects:
        return []
    kernels = device.row[~device.is_copy]
    total_ns = int((events.end_ns[kernels] - events.start_ns[kernels]).sum())
    first = suspects[0]
    ns = sum(suspect.total_ns for suspect in suspects)
    values = {
        "name": _shortened(events.names[first.name]),
        "kernels": first.kernels,
        "other_names": len(suspects) - 1,
        "ns": ns,
        "share": ns / total_ns,
        "beside_communication": first.beside_communication,
    }
    return [Observation("possible_communication", values)]


def _shortened(name: str) -> str:
    bare = bare_names(name)[0]
    return bare if len(bare) <= _LONGEST_NAME else f"{bare[:_LONGEST_NAME]}…"


def _suspects(events: Events, names: Names, device: Device) -> Iterator[_Suspect]:
    is_kernel = ~device.is_copy
    row = device.row[is_kernel]
    name, duration_ns = events.name[row], events.end_ns[row] - events.start_ns[row]
    unknown = device.is_compute[is_kernel] & (names.kernel[name] == NO_RULE)
    unknown &= np.isin(name, _unknown_names(events, name[unknown], duration_ns[unknown], int(duration_ns.sum())))
    unknown[unknown] = ~_launched_by_torch(events, device.launch_row[is_kernel][unknown])
    if not unknown.any():
        return
    communicates, stream = device.is_communication[is_kernel], events.thread[row]
    for which in np.unique(stream[unknown]).tolist():
        here = stream == which
        if not _carries_nothing_else(duration_ns, here, unknown, communicates):
            continue
        beside = bool(communicates[here].any())
        others = union(events.start_ns[row[~here & ~communicates]], events.end_ns[row[~here & ~communicates]])
        for one in np.unique(name[here & unknown]).tolist():
            own = row[here & unknown & (name == one)]
            ns = int((events.end_ns[own] - events.start_ns[own]).sum())
            overlap_ns = int(measure(others, events.start_ns[own], events.end_ns[own]).sum())
            if beside or overlap_ns >= MAJORITY * ns:
                yield _Suspect(one, beside, ns, len(own))


def _unknown_names(events: Events, name: NDArray[np.int32], duration_ns: Ints, total_ns: int) -> Ints:
    """Return the names with enough time that are not common for compute kernels; few have enough."""
    ns = np.zeros(len(events.names), np.int64)
    np.add.at(ns, name, duration_ns)
    long = np.flatnonzero(ns >= max(1, REPORTED_SHARE * total_ns)).tolist()
    return np.array([one for one in long if not _computes(bare_names(events.names[one])[0])], np.int64)


def _computes(name: str) -> bool:
    if re.match(_KNOWN_LIBRARIES, name):
        return True
    return not re.search(_COMMUNICATES, name, re.IGNORECASE) and bool(re.search(_COMPUTES, name, re.IGNORECASE))


def _launched_by_torch(events: Events, launch_row: Ints) -> NDArray[np.bool_]:
    """Return for each launch whether one of PyTorch's own operators made it: then the kernel is no library's."""
    launched_by = innermost_at_launch(events, launch_row, events.kind == EventKind.OPERATOR)
    own = events.shapes.beginning_with("aten::", "torch::")
    return np.asarray((launched_by >= 0) & own[events.name[launched_by]])


def _carries_nothing_else(
    duration_ns: Ints, here: NDArray[np.bool_], unknown: NDArray[np.bool_], communicates: NDArray[np.bool_]
) -> bool:
    """Return whether a stream has no known compute, and another stream has more compute than it."""
    own_ns = int(duration_ns[here & unknown].sum())
    other_ns = int(duration_ns[here & ~unknown & ~communicates].sum())
    elsewhere_ns = int(duration_ns[~here & ~unknown & ~communicates].sum())
    return other_ns <= _MAX_OTHER_SHARE * int(duration_ns[here].sum()) and elsewhere_ns > own_ns
