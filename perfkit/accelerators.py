"""Accelerators, one row per vendor: what recording needs to use one, and how its work is named in a trace.

A new accelerator is one row here, or a plug-in: an `Accelerator` under the entry-point group `perfkit.accelerators`.
Importing this module imports neither torch nor a plug-in; plug-ins are loaded when a table is first asked for.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Final

from perfkit.plugins import Registry, instance_of

HOST_BACKENDS: Final = ("gloo", "mpi", "ucc")
"""Backends of `torch.distributed` that communicate on the host."""


def _check_texts(record: object, *names: str) -> None:
    """Raise `TypeError` unless the fields of these names are tuples of str."""
    for name in names:
        value = getattr(record, name)
        if not isinstance(value, tuple) or not all(isinstance(text, str) for text in value):
            raise TypeError(f"{name} is not a tuple of str: {value!r}")


def _check_patterns(patterns: Iterable[str]) -> None:
    """Raise `ValueError` for what is not a regular expression, or matches every name."""
    for pattern in patterns:
        try:
            matches_all = re.match(pattern, "") is not None
        except re.error as error:
            raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error
        if matches_all:
            raise ValueError(f"{pattern!r} matches every name")


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeCalls:
    """Functions of a vendor's runtime and driver, as a trace names them: starts of names, as regular expressions."""

    prefixes: tuple[str, ...] = ()
    """Of all functions: `cuda` and `cu`. What follows them in `cudaStreamSynchronize` is the same for all vendors."""
    synchronising: tuple[str, ...] = ()
    """Further calls that return when the device, or a copy, is done."""
    allocating: tuple[str, ...] = ()
    compiling: tuple[str, ...] = ()
    """Calls that load or link code."""

    def __post_init__(self) -> None:
        """Check the patterns, as `Accelerator` does."""
        _check_texts(self, "prefixes", "synchronising", "allocating", "compiling")
        _check_patterns((*self.prefixes, *self.synchronising, *self.allocating, *self.compiling))


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """One vendor's device, as torch and its profiler name it."""

    title: str
    device: str
    """Type of `torch.device`."""
    backend: str | None
    """Backend of `torch.distributed` that moves the device's data; None if torch has none by default."""
    activity: str
    """Name in `torch.profiler.ProfilerActivity`."""
    category: str
    """What the profiler's categories of this device begin with: `cuda` for `cuda_runtime`, `cuda_sync`."""
    kernel_categories: tuple[str, ...] = ()
    """Further categories of device work."""
    launch_categories: tuple[str, ...] = ()
    """Further categories of host calls that launch work, beside `*_runtime` and `*_driver`."""
    other_categories: tuple[str, ...] = ()
    """Categories (regular expressions) that are neither work nor launches: counters, waits, external records."""
    collective_kernels: tuple[tuple[str, str], ...] = ()
    """Start of the names of its collective library's kernels (regular expressions), and whose they are."""
    copy_kernels: tuple[str, ...] = ()
    """Names (regular expressions) of copies that the trace lists as kernels."""
    wait_kernels: tuple[str, ...] = ()
    """Names (regular expressions) of waits that the trace lists as kernels: no work."""
    runtime: RuntimeCalls = RuntimeCalls()
    """Functions that the host calls: they tell why the device is idle, and what its streams wait for."""
    allocator_variable: str | None = None
    """Environment variable that takes `expandable_segments:True`, if torch's allocator of this device has that."""
    backend_remedy: str | None = None
    """What to do if the backend does not work."""
    visibility: tuple[str, ...] = ()
    """Environment variables that restrict which devices a process sees."""
    toolkit: str | None = None
    """Attribute of `torch.version` with the version of the toolkit."""
    memory_property: str = "totalGlobalMem"
    """Key of a device's memory limit, in bytes, in the trace's `deviceProperties`."""

    def __post_init__(self) -> None:
        """Check the fields that patterns are built from: one bad pattern would break every analysis.

        Raises:
            TypeError: a field that lists texts is not a tuple of them.
            ValueError: a pattern is not a regular expression, or matches every name.
        """
        _check_texts(self, "kernel_categories", "launch_categories", "other_categories", "copy_kernels", "wait_kernels")
        _check_texts(self, "visibility")
        kernels = (pattern for pattern, _ in self.collective_kernels)
        _check_patterns((*self.other_categories, *self.copy_kernels, *self.wait_kernels, *kernels))


_NCCL: Final = (
    (r"nccl\w*Kernel", "NCCL, RCCL: ncclAllReduceRingLLKernel_*, ncclKernel_*, ncclDevKernel_*, ncclSymkDevKernel_*"),
    (r"_Z\d+nccl\w*Kernel", "the same with a mangled name"),
)
_NCCL_REMEDY: Final = "NCCL_DEBUG=INFO shows why; NCCL_SOCKET_IFNAME chooses the interface"
_MEMORY: Final = r"(Ext)?(Malloc|Free|HostAlloc|HostFree|HostRegister|HostUnregister)"
_MEMCPY: Final = r"Memcpy(2D|3D|ToSymbol|FromSymbol)?(_v\d+)?$"

CUDA: Final = Accelerator(
    title="NVIDIA GPU",
    device="cuda",
    backend="nccl",
    activity="CUDA",
    category="cuda",
    other_categories=("cuda_profiler_range", "gpu_pm_counter"),
    collective_kernels=_NCCL,
    runtime=RuntimeCalls(
        prefixes=("cuda", "cu"),
        synchronising=(rf"cuda{_MEMCPY}", r"cuMemcpy(HtoD|DtoH|DtoD)?(_v2)?$"),
        allocating=(
            rf"cuda{_MEMORY}",
            r"cuMem(Alloc|Free|Create|Release|Map|Unmap|SetAccess|Address|HostAlloc|HostRegister)",
        ),
        compiling=(r"cu(Module|Library)Load", "cudaLibraryLoad", "cuLink", "nvrtcCompile"),
    ),
    allocator_variable="PYTORCH_CUDA_ALLOC_CONF",
    backend_remedy=_NCCL_REMEDY,
    visibility=("CUDA_VISIBLE_DEVICES",),
    toolkit="cuda",
)
ROCM: Final = Accelerator(
    title="AMD GPU",
    device="cuda",  # torch's ROCm build calls its devices so
    backend="nccl",  # which is RCCL there
    activity="CUDA",
    category="hip",
    collective_kernels=(*_NCCL, (r"mscclKernel", "MSCCL in RCCL")),
    copy_kernels=(r"__amd_rocclr_(copy|fill)",),  # clr, blitcl.cpp: hipMemcpy and hipMemset as kernels
    runtime=RuntimeCalls(
        prefixes=("hip", "hsa_"),
        synchronising=(rf"hip{_MEMCPY}", "hipMemcpyWithStream", r"hipMemcpy(HtoD|DtoH|DtoD)$"),
        allocating=(rf"hip{_MEMORY}", r"hipMem(Create|Map|Unmap)", r"hsa_amd_memory_pool_(allocate|free)"),
        compiling=(r"hip(Module|Library)Load", "hipLink", "hiprtcCompile"),
    ),
    allocator_variable="PYTORCH_HIP_ALLOC_CONF",
    backend_remedy=_NCCL_REMEDY,
    visibility=("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
    toolkit="hip",
)
XPU: Final = Accelerator(
    title="Intel GPU",
    device="xpu",
    backend="xccl",
    activity="XPU",
    category="xpu",
    collective_kernels=(
        (r"oneccl_", "oneCCL's SYCL kernels"),
        (r"(allreduce|allgatherv?|reduce_scatter|alltoallv?)_(small|medium|large)_", "oneCCL's device algorithms"),
    ),
    runtime=RuntimeCalls(
        prefixes=("xpu", "ze"),
        synchronising=(r"ze(Fence|Event|CommandQueue)(Host)?Synchronize",),
        allocating=("zeMemAlloc", "zeMemFree"),
        compiling=("zeModuleCreate",),
    ),
    backend_remedy="load the modules of oneCCL; CCL_LOG_LEVEL=info shows why",
    visibility=("ZE_AFFINITY_MASK",),
    toolkit="xpu",  # since torch 2.6
)
MTIA: Final = Accelerator(
    title="Meta MTIA",
    device="mtia",
    backend=None,
    activity="MTIA",
    category="mtia",
    kernel_categories=("mtia_ccp_events",),
    other_categories=("mtia_(insight|counters|workloadd)",),
    copy_kernels=("dma_request",),
    wait_kernels=(r"event_wait",),
    runtime=RuntimeCalls(prefixes=("mtia",)),
)
HPU: Final = Accelerator(
    title="Intel Gaudi",
    device="hpu",
    backend="hccl",
    activity="HPU",
    category="hpu",
    launch_categories=("hpu_op",),
    collective_kernels=((r"(?i:hccl)", "HCCL"),),
    runtime=RuntimeCalls(prefixes=("synapse",)),
    visibility=("HABANA_VISIBLE_DEVICES", "HABANA_VISIBLE_MODULES"),
)
NPU: Final = Accelerator(
    title="Huawei Ascend",
    device="npu",
    backend="hccl",
    activity="PrivateUse1",
    category="privateuse1",
    collective_kernels=((r"(?i:hcom_|hccl)", "HCCL: hcom_allReduce_, HcclAllGather"),),
    runtime=RuntimeCalls(prefixes=("aclrt",), allocating=("aclrtMalloc", "aclrtFree")),
    visibility=("ASCEND_RT_VISIBLE_DEVICES",),
)

ACCELERATORS: Final[Registry[Accelerator]] = Registry(
    "perfkit.accelerators",
    "accelerator",
    {name: f"perfkit.accelerators:{name.upper()}" for name in ("cuda", "rocm", "xpu", "mtia", "hpu", "npu")},
    instance_of(Accelerator, "perfkit.accelerators.Accelerator"),
)
"""In the order in which `--device auto` tries them."""


def backend_on(names: str, device: str | None) -> str:
    """Return the backend that a process group uses on a type of device: of `cpu:gloo,cuda:nccl`, nccl on `cuda`.

    Args:
        names: as torch writes them: one name, or one for each type of device, after a colon.
        device: a type of `torch.device`; None for an accelerator of unknown type.

    Returns:
        `names` if they do not tell.
    """
    by_device = [part.partition(":")[::2] for part in names.split(",")]
    found = [name for of, name in by_device if name and (of == device if device else of != "cpu")]
    return found[0] if found else names


@cache
def accelerators() -> tuple[Accelerator, ...]:
    """Return all rows, built-in ones first; a plug-in that cannot be loaded is a warning."""
    builtin = (ACCELERATORS.load(name) for name in ACCELERATORS.builtin)
    return (*builtin, *(row for _, row in ACCELERATORS.load_plugins()))


@cache
def device_types() -> tuple[str, ...]:
    """Return the types of `torch.device` that are accelerators, each once."""
    return tuple(dict.fromkeys(row.device for row in accelerators()))


@cache
def device_backends() -> tuple[str, ...]:
    """Return the backends that move data between devices only, each once."""
    backends = (row.backend for row in accelerators() if row.backend)
    return tuple(dict.fromkeys(backend for backend in backends if backend not in HOST_BACKENDS))


def of_device(device: str) -> Accelerator:
    """Return the first row of a type of `torch.device`.

    Raises:
        KeyError: no row has it.
    """
    for row in accelerators():
        if row.device == device:
            return row
    raise KeyError(device)
