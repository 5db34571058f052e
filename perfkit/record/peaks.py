"""Measure the peaks of a device with what training uses itself: torch's matrix product and element-wise operators."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import torch

from perfkit.base.system_limits import free_bytes
from perfkit.record.distributed.topology import name_device
from perfkit.records.roofline import DevicePeaks

TF32: Final = "tf32"
"""float32 on tensor cores; not a type of torch's."""
DTYPES: Final = ("float64", "float32", TF32, "bfloat16", "float16")
_LONGEST_S: Final = 4.0
"""A size whose repetitions would take longer is left out, as are larger ones."""
_SHARE_OF_MEMORY: Final = 4
"""Measuring uses at most one part in so many of the free memory."""
_CPU_ARRAY_BYTES: Final = 1 << 28
_DEVICE_ARRAY_BYTES: Final = 1 << 30
"""Of each of the triad's three arrays: more than four times any device's caches. A CPU's are asked for."""
_CACHES: Final = Path("/sys/devices/system/cpu")


class GemmTime(NamedTuple):
    """A product of two square matrices."""

    dtype: str
    size: int
    median_ns: float

    @property
    def flops_per_s(self) -> float:
        """2 n^3 operations / time."""
        return 2 * self.size**3 / self.median_ns * 1e9


class TriadTime(NamedTuple):
    """a = b + s c on three arrays, as in STREAM."""

    array_bytes: int
    median_ns: float

    @property
    def bytes_per_s(self) -> float:
        """Bytes of the three arrays / time, as STREAM counts: two are read and one is written."""
        return 3 * self.array_bytes / self.median_ns * 1e9


class MeasuredPeaks(NamedTuple):
    """What a device was measured to do."""

    name: str
    threads: int | None
    """Of a CPU; None for accelerators."""
    gemms: list[GemmTime]
    failed: dict[str, str]
    """Data types that could not be measured, and why."""
    triad: TriadTime
    memory_bytes: int | None

    def best(self, dtype: str) -> GemmTime | None:
        """Return the fastest size of a data type; None if it could not be measured."""
        return max((gemm for gemm in self.gemms if gemm.dtype == dtype), key=lambda one: one.flops_per_s, default=None)

    def row(self, source: str) -> DevicePeaks:
        best = (self.best(dtype) for dtype in dict.fromkeys(gemm.dtype for gemm in self.gemms))
        return DevicePeaks(
            name=self.name,
            tflops={one.dtype: round(one.flops_per_s / 1e12, 4) for one in best if one is not None},
            bandwidth_gb_per_s=round(self.triad.bytes_per_s / 1e9, 2),
            memory_gb=None if self.memory_bytes is None else round(self.memory_bytes / 1e9, 1),
            threads=self.threads,
            source=source,
        )


def measure_peaks(
    device: torch.device, *, dtypes: Sequence[str] = DTYPES, sizes: Sequence[int], repeats: int
) -> MeasuredPeaks:
    """Measure a device; takes up to half a minute per data type.

    Args:
        dtypes: Data types of matrix products, from `DTYPES`.
        repeats: Repetitions of each measurement, of which the median counts.
    """
    gemms: list[GemmTime] = []
    failed: dict[str, str] = {}
    is_cuda = device.type == "cuda" and not torch.version.hip
    has_tf32 = is_cuda and torch.cuda.get_device_capability(device) >= (8, 0)
    for dtype in dtypes:
        if dtype == TF32 and not has_tf32:
            failed[dtype] = "the device has no TF32"
            continue
        try:
            gemms.extend(_gemms(device, dtype, sorted(sizes), repeats))
        except RuntimeError as error:  # torch's kernels do not exist for every type and device
            failed[dtype] = str(error).partition("\n")[0]
    is_cpu = device.type == "cpu"
    return MeasuredPeaks(
        name=name_device(device),
        threads=torch.get_num_threads() if is_cpu else None,
        gemms=gemms,
        failed=failed,
        triad=_triad(device, repeats),
        memory_bytes=_memory(device)[1],
    )


def _gemms(device: torch.device, dtype: str, sizes: Sequence[int], repeats: int) -> Iterator[GemmTime]:
    """Yield the time of each size, from the smallest, as long as memory and time allow."""
    torch_dtype: torch.dtype = getattr(torch, "float32" if dtype == TF32 else dtype)
    free = _memory(device)[0]
    with _precision("high" if dtype == TF32 else "highest"), torch.inference_mode():
        for size in sizes:
            if free is not None and 3 * size**2 * torch_dtype.itemsize > free // _SHARE_OF_MEMORY:
                return
            # Random numbers: products of zeros need less power, and run faster where power is the limit.
            left, right = (torch.randn(size, size, device=device).to(torch_dtype) for _ in range(2))
            out = torch.empty(size, size, device=device, dtype=torch_dtype)

            def multiply(a: torch.Tensor = left, b: torch.Tensor = right, c: torch.Tensor = out) -> None:
                torch.mm(a, b, out=c)

            # The first call may load libraries: its time only tells whether there is time for a second.
            if time_once(multiply, device) > _LONGEST_S * 1e9:
                return
            if time_once(multiply, device) * (repeats + 2) > _LONGEST_S * 1e9:
                return
            yield GemmTime(dtype, size, median_time(multiply, device, repeats))


@contextmanager
def _precision(name: str) -> Iterator[None]:
    """Set whether float32 may be multiplied with less precision; restore the setting at the end."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(name)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _triad(device: torch.device, repeats: int) -> TriadTime:
    wanted = max(_CPU_ARRAY_BYTES, 4 * cache_bytes()) if device.type == "cpu" else _DEVICE_ARRAY_BYTES
    free = _memory(device)[0]
    array_bytes = wanted if free is None else min(wanted, free // _SHARE_OF_MEMORY // 3)
    first, second, out = (torch.ones(max(1, array_bytes // 4), device=device) for _ in range(3))
    with torch.inference_mode():
        median_ns = median_time(lambda: torch.add(first, second, alpha=3.0, out=out), device, repeats)
    return TriadTime(out.numel() * 4, median_ns)


def cache_bytes(folder: Path = _CACHES) -> int:
    """Return the size of all last-level caches of this host's CPUs; 0 if unknown."""
    caches: dict[str, tuple[int, int]] = {}
    for index in folder.glob("cpu[0-9]*/cache/index*"):
        try:
            level, size, shared = ((index / name).read_text().strip() for name in ("level", "size", "shared_cpu_list"))
            caches[f"{level}:{shared}"] = int(level), int(size.removesuffix("K")) * 1024
        except (OSError, ValueError):
            continue
    last = max((level for level, _ in caches.values()), default=0)
    return sum(size for level, size in caches.values() if level == last)


def _memory(device: torch.device) -> tuple[int | None, int | None]:
    """Return free and total memory of a device (bytes); None if unknown."""
    if device.type == "cpu":
        return free_bytes(), None
    module = torch.get_device_module(device.type)
    if not hasattr(module, "mem_get_info"):
        return None, None
    free, total = module.mem_get_info(device)
    return int(free), int(total)


_SHORTEST_NS: Final = 2_000_000
"""One repetition calls the work as often as this takes, so that starting it does not count."""
_MOST_CALLS: Final = 10_000


def synchronize(device: torch.device) -> None:
    if device.type != "cpu":
        torch.get_device_module(device.type).synchronize(device)


def time_once(work: Callable[[], object], device: torch.device, calls: int = 1) -> float:
    """Return the time of one call (ns), as the mean over `calls` in a row."""
    synchronize(device)
    begin = time.perf_counter_ns()
    for _ in range(calls):
        work()
    synchronize(device)
    return (time.perf_counter_ns() - begin) / calls


def median_time(work: Callable[[], object], device: torch.device, repeats: int) -> float:
    """Return the median time of a call (ns) over `repeats` repetitions, after two that do not count."""
    time_once(work, device)
    first_ns = time_once(work, device)
    calls = max(1, min(_MOST_CALLS, round(_SHORTEST_NS / max(first_ns, 1))))
    return median(time_once(work, device, calls) for _ in range(repeats))
