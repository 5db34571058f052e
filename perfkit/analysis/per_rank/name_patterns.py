"""Classify names by ordered tables of patterns; the first match wins.

A collective library that belongs to one vendor is part of its row in `perfkit.accelerators`; any other is a row here.
"""

import re
from functools import cache, lru_cache
from typing import Final

from perfkit.accelerators import accelerators

COMMUNICATION_KERNELS: Final[tuple[tuple[str, str], ...]] = (
    (r"mscclpp(::|_)", "MSCCL++"),
    (r"mcclKernel", "MCCL, of Moore Threads"),
    (r"cross_device_reduce_[12]stage", "custom all-reduce of vLLM, SGLang, AITER"),
    (r"allreduce_prototype_(one|two)shot", "quick reduce in AITER, vLLM, SGLang"),
    (r"reduce_scatter_cross_device", "custom reduce-scatter of AITER"),
    (r"c10d::(symmetric_memory|intra_node_comm)::", "PyTorch: barriers, signals, all-reduce"),
    (r"(one|two)_?shot_all_?reduce", "PyTorch's symmetric memory, Triton's examples"),
    (r"multimem_(one_shot_)?(all_reduce|reduce|all_gather|reduce_scatter)", "PyTorch, by NVLink multicast"),
    (
        r"(oneShot|twoShot|oneshot|twoshot|hybridCubeMesh)All[rR]educe",
        "PyTorch within a node, TensorRT-LLM, FlashInfer",
    ),
    (r"lamport_style_one_shot_all_reduce", "TensorRT-LLM"),
    (r"(moe\w*_)?allreduce_fusion_kernel", "FlashInfer, TensorRT-LLM"),
    (r"nvshmem(i|x|ix)?_|(nvshmem|rocshmem|ishmem)\w*::|rocshmem_|ishmemi?_", "NVSHMEM, rocSHMEM, Intel SHMEM"),
    (r"(\w+::)*deep_ep::", "DeepEP's dispatch and combine"),
    (r"k?userbuffers_", "Transformer Engine"),
)
"""Start of a kernel's own or qualified name, and whose it is; every other kernel is classified by what launched it."""

DATA_LOADING: Final = r"enumerate\(DataLoader\)#|perfkit\.data_loading$"

STEP: Final = r"ProfilerStep#(\d+)"

OPERATORS: Final[tuple[tuple[str, str], ...]] = (
    (r"all_?reduce|cross_device_reduce_\dstage", "all_reduce"),
    (r"all_?to_?all", "all_to_all"),
    (r"reduce_?scatter", "reduce_scatter"),
    (r"all_?gather", "all_gather"),
    (r"broadcast", "broadcast"),
    (r"barrier", "barrier"),
    (r"send_?recv|batch_isend_irecv", "send_recv"),
    (r"recv", "recv"),
    (r"send", "send"),
    (r"gather", "gather"),
    (r"scatter", "scatter"),
    (r"reduce", "reduce"),
)
"""What a collective is called, in whatever spelling, and perfkit's name of it; longer names before their parts."""


@cache
def copy_kernels() -> "re.Pattern[str]":
    """Return what matches device activities that are copies though their category is that of kernels."""
    patterns = [pattern for row in accelerators() for pattern in row.copy_kernels]
    return re.compile("|".join(patterns) or r"(?!)")


@cache
def _communication_kernels() -> "re.Pattern[str]":
    rows = (*(rule for row in accelerators() for rule in row.collective_kernels), *COMMUNICATION_KERNELS)
    return re.compile("|".join(f"(?:{pattern})" for pattern, _ in dict(rows).items()))


def is_communication_kernel(name: str) -> bool:
    """Return whether a device kernel of this name is communication by its name alone.

    Return type, template arguments and parameters do not count: a GEMM does not communicate because one of its
    arguments mentions NCCL.
    """
    bare = re.split(r"[<(]", name.replace("(anonymous namespace)::", ""), maxsplit=1)[0].strip()
    qualified = bare.rsplit(" ", 1)[-1]
    own = qualified.rsplit("::", 1)[-1]
    return any(_communication_kernels().match(candidate) for candidate in (qualified, own))


@lru_cache(maxsize=1024)
def collective_operator(name: str) -> str | None:
    """Return perfkit's name of the collective in a kernel's, operator's or annotation's name; None if it names none."""
    plain = name.lower()
    return next((operator for pattern, operator in OPERATORS if re.search(pattern, plain)), None)
