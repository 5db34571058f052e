"""A synthetic trace of one GPU in PyTorch's format, with realistic proportions.

An operator in four calls, two runtime calls, the flows between them and a kernel, with the arguments and the layout
of kineto's files; every twentieth operator issues an all-reduce on a stream of its own. In each 100 MB are about
300,000 events that an analysis uses, as in traces of convolutional networks.
"""

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_STEPS: Final = 3
_OPERATORS: Final = 1000
"""A step."""
_PID, _TID = 2910249, 2919752
_KERNELS: Final = (
    "void cudnn::bn_bw_1C11_kernel_new<float, float, float2, 32, true, 1>(float, float, float, float, float const*)",
    "void at::native::vectorized_elementwise_kernel<4, at::native::AUnaryFunctor<float, float, float, at::native::"
    "binary_internal::MulFunctor<float> >, at::detail::Array<char*, 2> >(int, at::detail::Array<char*, 2>)",
    "ampere_sgemm_128x64_nn",
)
_COLLECTIVE: Final = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
_CALLS: Final = ("aten::conv2d", "aten::convolution", "aten::_convolution", "aten::cudnn_convolution")
_OPERATOR_US, _STEP_US = 40, 45_000


def write_gpu_trace(path: Path) -> Path:
    """Write a gzip trace of three steps, about 6 MB of text, and return its path."""
    text = _HEAD + ",\n".join(event for step in range(_STEPS) for event in _step(step)) + _TAIL
    path.write_bytes(gzip.compress(text.encode(), 6, mtime=0))
    return path


_HEAD: Final = """{
  "schemaVersion": 1,
  "deviceProperties": [{"id": 0, "name": "NVIDIA A100-SXM4-40GB", "totalGlobalMem": 42297524224}],
  "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 2},
  "displayTimeUnit": "ms",
  "baseTimeNanoseconds": 1700000000000000000,
  "traceEvents": [
"""
_TAIL: Final = """
  ],
  "traceName": "rank0.json"
}
"""


def _step(step: int) -> Iterator[str]:
    begin_us = 1000 + step * _STEP_US
    yield _event("user_annotation", f"ProfilerStep#{step + 3}", _TID, begin_us, _STEP_US - 10, '"External id": 1')
    for number in range(_OPERATORS):
        yield from _operator(step * _OPERATORS + number, begin_us + 10 + number * _OPERATOR_US)


def _operator(number: int, at_us: int) -> Iterator[str]:
    collective = number % 20 == 19
    names = ("c10d::allreduce_", "record_param_comms") if collective else _CALLS
    for depth, name in enumerate(names):
        arguments = f'"External id": {8 * number + depth + 1},"Record function id": 0, "Ev Idx": {4 * number + depth}'
        if name == "record_param_comms":
            arguments += (
                ', "Collective name": "allreduce", "In msg nelems": 262144, "Out msg nelems": 262144, "Group size": 2, '
                '"dtype": "Float", "Process Group Name": "0", "Process Group Ranks": "[0, 1]"'
            )
        yield _event("cpu_op", name, _TID, at_us + depth, 36 - 2 * depth, arguments)
    for call, name in enumerate(("cudaStreamIsCapturing", "cudaLaunchKernel")):
        launch = 2 * number + call + 1
        yield _event("cuda_runtime", name, _TID, at_us + 8 + 6 * call, 4, f'"cbid": 211, "correlation": {launch}')
        yield _flow("s", launch, _PID, _TID, at_us + 8 + 6 * call)
    stream, name = (20, _COLLECTIVE) if collective else (7, _KERNELS[number % len(_KERNELS)])
    arguments = (
        f'"External id": {8 * number + 1},      "queued": 0, "device": 0, "context": 1,      "stream": {stream}, '
        f'"correlation": {launch},      "registers per thread": 40,      "shared memory": 400,      '
        '"blocks per SM": 4.740741,      "grid": [512, 1, 1],      "block": [512, 1, 1]'
    )
    yield _event("kernel", name, stream, at_us + 20, 60 if collective else 30, arguments, pid=0)
    yield _flow("f", launch, 0, stream, at_us + 20)


def _event(category: str, name: str, tid: int, at_us: int, for_us: int, arguments: str, pid: int = _PID) -> str:
    return (
        f'  {{\n    "ph": "X", "cat": "{category}", "name": "{name}", "pid": {pid}, "tid": {tid},\n'
        f'    "ts": {at_us}.250, "dur": {for_us}.125,\n    "args": {{\n      {arguments}\n    }}\n  }}'
    )


def _flow(phase: str, number: int, pid: int, tid: int, at_us: int) -> str:
    return (
        f'  {{\n    "ph": "{phase}", "id": {number}, "pid": {pid}, "tid": {tid}, "ts": {at_us}.250,\n'
        '    "cat": "ac2g", "name": "ac2g", "bp": "e"\n  }'
    )
