"""What names mean: ordered tables of patterns, first match wins. A new collective library is one row here."""

import re
from functools import lru_cache
from typing import Final

COMMUNICATION_KERNELS: Final[tuple[tuple[str, str], ...]] = (
    (r"nccl\w*Kernel", "NCCL, RCCL: ncclAllReduceRingLLKernel_*, ncclKernel_*, ncclDevKernel_*, ncclSymkDevKernel_*"),
    (r"_Z\d+nccl\w*Kernel", "the same, where a tool left the name mangled"),
    (r"mscclKernel|mscclpp(::|_)", "MSCCL in RCCL, MSCCL++"),
    (r"mcclKernel", "MCCL, of Moore Threads"),
    (r"oneccl_", "oneCCL's SYCL kernels"),
    (r"(allreduce|allgatherv?|reduce_scatter|alltoallv?)_(small|medium|large)_", "oneCCL's device algorithms"),
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
"""Start of a kernel's own or qualified name, and whose it is; every other kernel goes by what launched it."""

COPY_KERNELS: Final = r"dma_request"
"""Device activities that are copies though their category is that of kernels: on MTIA."""

BACKEND_ANNOTATIONS: Final = r"(nccl|gloo|mpi|ucc|xccl):"
"""Annotations that count as operators where the innermost operator at a launch is looked for."""

WHOLE_SPAN_ANNOTATIONS: Final = r"(gloo|mpi|ucc):"
"""Annotations that, on a CPU-only trace, are communication for their whole span."""

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

_COMMUNICATION_KERNEL = re.compile("|".join(f"(?:{pattern})" for pattern, _ in COMMUNICATION_KERNELS))


def is_communication_kernel(name: str) -> bool:
    """Return whether a device kernel of this name is communication by its name alone.

    Return type, template arguments and parameters do not count: a GEMM does not communicate because one of its
    arguments mentions NCCL.
    """
    bare = re.split(r"[<(]", name.replace("(anonymous namespace)::", ""), maxsplit=1)[0].strip()
    qualified = bare.rsplit(" ", 1)[-1]
    own = qualified.rsplit("::", 1)[-1]
    return any(_COMMUNICATION_KERNEL.match(candidate) for candidate in (qualified, own))


@lru_cache(maxsize=1024)
def collective_operator(name: str) -> str | None:
    """Return perfkit's name of the collective in a kernel's, operator's or annotation's name; None if it names none."""
    plain = name.lower()
    return next((operator for pattern, operator in OPERATORS if re.search(pattern, plain)), None)
