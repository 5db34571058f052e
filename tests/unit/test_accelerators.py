"""Every row of the table of accelerators serves recording and analysis alike."""

import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from torch.profiler import ProfilerActivity

from perfkit import accelerators as under_test
from perfkit.accelerators import (
    ACCELERATORS,
    CUDA,
    ROCM,
    Accelerator,
    RuntimeCalls,
    accelerators,
    device_backends,
    device_types,
    of_device,
)
from perfkit.engine.kinds import kernel_rules
from perfkit.engine.kinds.runtime_calls import accelerator_of, call_patterns
from perfkit.trace import categories
from perfkit.trace.categories import communication_operators, kind_of
from perfkit.trace.events import EventKind
from tests.support.processes.launching import LIMIT_S
from tests.support.traces.kernel_kinds import kernel_kind

ROWS = [ACCELERATORS.load(name) for name in ACCELERATORS.builtin]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.title)
def test_a_row_is_known_everywhere(row: Accelerator) -> None:
    assert hasattr(ProfilerActivity, row.activity)
    assert row.device in device_types()
    assert [kind_of(f"{row.category}_{call}") for call in ("runtime", "driver")] == [EventKind.LAUNCH] * 2
    assert kind_of(f"{row.category}_sync") is EventKind.OTHER
    assert {kind_of(category) for category in row.kernel_categories} <= {EventKind.KERNEL}
    assert {kind_of(category) for category in row.launch_categories} <= {EventKind.LAUNCH}
    if row.backend is not None:
        assert row.backend in device_backends()
        assert communication_operators().match(f"{row.backend}:all_reduce")


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"other_categories": ("(",)}, "is not a regular expression"),
        ({"collective_kernels": (("b(ccl", "B"),)}, "is not a regular expression"),
        ({"collective_kernels": (("", "B"),)}, "matches every name"),
        ({"kernel_categories": "toy_op"}, "is not a tuple of str"),
    ],
)
def test_a_row_that_would_break_every_analysis_is_refused(fields: dict[str, Any], error: str) -> None:
    with pytest.raises((TypeError, ValueError), match=error):
        dataclasses.replace(CUDA, **fields)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"prefixes": "toy"}, "is not a tuple of str"),
        ({"allocating": ("",)}, "matches every name"),
        ({"compiling": ("(",)}, "is not a regular expression"),
    ],
)
def test_so_are_calls_of_its_runtime(fields: dict[str, Any], error: str) -> None:
    with pytest.raises((TypeError, ValueError), match=error):
        RuntimeCalls(**fields)


@pytest.mark.parametrize("prefix", [*(prefix for row in ROWS for prefix in row.runtime.prefixes), "musa", "cnrt"])
def test_what_calls_do_is_known_for_each_runtime(prefix: str) -> None:
    does = call_patterns()
    assert does.synchronising.match(f"{prefix}StreamSynchronize")
    assert does.stream_wait.match(f"{prefix}StreamWaitEvent")
    assert does.graph_launch.match(f"{prefix}GraphLaunch")
    assert not does.synchronising.match(f"{prefix}StreamIsCapturing")
    assert not does.allocating.match(f"{prefix}LaunchKernel")


def test_calls_of_single_runtimes() -> None:
    does = call_patterns()
    copies = ("cudaMemcpy", "cudaMemcpy2D_v3020", "cuMemcpyDtoH_v2", "hipMemcpyWithStream", "zeFenceHostSynchronize")
    assert all(map(does.synchronising.match, copies))
    assert not any(map(does.synchronising.match, ("cudaMemcpyAsync", "hipMemcpyHtoDAsync", "cudaMalloc")))
    memory = ("cudaMalloc", "cuMemCreate", "hipExtMallocWithFlags", "hsa_amd_memory_pool_free", "zeMemAllocDevice")
    assert all(map(does.allocating.match, memory))
    assert not any(map(does.allocating.match, ("cudaMemcpyAsync", "zeMemcpy", "cudaGraphLaunch")))
    code = ("cuModuleLoadData", "hipModuleLoad", "nvrtcCompileProgram", "zeModuleCreate")
    assert all(map(does.compiling.match, code))
    launches = ("cudaLaunchKernel", "cuLaunchKernelEx", "hipExtModuleLaunchKernel", "zeCommandListAppendLaunchKernel")
    assert all(map(does.launching.match, launches))
    assert not any(map(does.launching.match, ("customLaunch", "cutlass_LaunchX", "multiLaunch")))


def test_the_accelerator_of_a_call() -> None:
    assert accelerator_of("cuMemFree") is CUDA
    assert accelerator_of("hsa_amd_memory_pool_free") is ROCM
    assert accelerator_of("musaFree") is None


def test_texts_are_no_patterns_and_host_backends_no_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    row = dataclasses.replace(CUDA, backend="gloo", category="b(dev", kernel_categories=("k(",))
    monkeypatch.setattr(under_test, "accelerators", lambda: (row,))
    monkeypatch.setattr(categories, "accelerators", lambda: (row,))
    for cached in (device_backends, categories._kinds, kind_of):
        cached.cache_clear()
    try:
        assert device_backends() == ()
        assert [kind_of("b(dev_memcpy"), kind_of("k(")] == [EventKind.COPY, EventKind.KERNEL]
    finally:
        monkeypatch.undo()
        for cached in (device_backends, categories._kinds, kind_of):
            cached.cache_clear()


def test_every_row_is_registered() -> None:
    constants = {name.lower() for name, value in vars(under_test).items() if isinstance(value, Accelerator)}
    assert constants == set(ACCELERATORS.builtin)


def test_names_of_collective_kernels() -> None:
    kernels = (
        "ncclDevKernel_AllReduce_Sum_f32",
        "oneccl_allreduce",
        "hcom_allReduce__1",
        "HcclAllGather",
        "mscclKernel",
    )
    assert [kernel_kind(name) for name in kernels] == ["communication"] * len(kernels)


def test_copies_and_waits_that_are_listed_as_kernels() -> None:
    copies = ("dma_request", "__amd_rocclr_copyBuffer.kd", "__amd_rocclr_fillBufferAligned")
    assert [kernel_kind(name) for name in copies] == ["memcpy"] * len(copies)
    assert kernel_kind("event_wait") == "wait"


def test_the_first_row_of_a_type_of_device_counts() -> None:
    assert of_device("cuda") is CUDA
    with pytest.raises(KeyError):
        of_device("tpu")


@pytest.fixture
def gadget(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A plug-in accelerator: everything that was computed from the table is computed anew."""
    tables = (accelerators, device_types, device_backends, categories._kinds, categories.communication_operators)
    rules = (kernel_rules._builtin, kernel_rules._any_builtin, kernel_rules._mentioning_digits)
    caches = (*tables, *rules, categories.backend_annotations, kind_of, call_patterns)
    row = dataclasses.replace(
        CUDA,
        title="Gadget",
        device="gadget",
        backend="gccl",
        category="gadget",
        collective_kernels=((r"gccl", "GCCL"),),
        runtime=RuntimeCalls(prefixes=("gadget",), allocating=("gadgetGet",)),
    )
    monkeypatch.setattr(ACCELERATORS, "load_plugins", lambda: iter([("gadget", row)]))
    for cached in caches:
        cached.cache_clear()
    yield
    monkeypatch.undo()
    for cached in caches:
        cached.cache_clear()


@pytest.mark.usefixtures("gadget")
def test_a_plugin_row_is_known_everywhere() -> None:
    assert device_types()[-1] == "gadget"
    assert kind_of("gadget_memcpy") is EventKind.COPY
    assert communication_operators().match("gccl:all_gather")
    assert kernel_kind("gcclRing") == "communication"
    assert of_device("gadget").title == "Gadget"
    assert call_patterns().synchronising.match("gadgetStreamSynchronize")
    assert call_patterns().allocating.match("gadgetGetMemory")


def test_the_table_imports_no_torch() -> None:
    script = f"import sys, {under_test.__name__} as a; a.accelerators(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=LIMIT_S)
    assert done.stdout == "False\n"
