"""What a run's operators achieved, against what its devices can do at most (metrics.md section 18)."""

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from perfkit.records.per_rank.operator_work import UnmodelledOperator, WorkKind


class DevicePeaks(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Peaks of one device, as torch counts devices."""

    name: str
    """Exactly as torch reports it; of a CPU, the model name of the processor."""
    tflops: dict[str, float]
    """Dense TFLOP/s of matrix products by data type; `tf32` is float32 on tensor cores."""
    bandwidth_gb_per_s: float | None = None
    """Of its memory; 1 GB = 1e9 bytes."""
    memory_gb: float | None = None
    threads: int | None = None
    """Threads that a CPU's peaks belong to; None for any number."""
    source: str = ""

    def flops_per_s(self, dtype: str) -> float | None:
        """Return the peak of matrix products of a data type; None if unknown."""
        tflops = self.tflops.get(dtype)
        return None if tflops is None else tflops * 1e12

    @property
    def bytes_per_s(self) -> float | None:
        """Bandwidth of the memory; None if unknown."""
        return None if self.bandwidth_gb_per_s is None else self.bandwidth_gb_per_s * 1e9


def find_device(table: Sequence[DevicePeaks], name: str, threads: int | None = None) -> DevicePeaks | None:
    """Return the first row of exactly this device, and of this number of threads if it has one; None without.

    Never a similar device's: peaks within one family differ by a factor of two.
    """
    return next((row for row in table if row.name == name and row.threads in (None, threads)), None)


class RooflineRow(Struct, frozen=True, kw_only=True, gc=False):
    """Calls of one operator with the same shapes and types, over all ranks and steps."""

    kind: WorkKind
    operator: str
    """`(others)` for the operators of a kind and type that are not listed."""
    shapes: str
    dtype: str | None
    tensor_cores: bool | None
    count: int
    total_ns: int
    """Time of their kernels; without a device the self time of the operators."""
    flops: float
    """Arithmetic operations of all calls."""
    bytes: float
    """Memory traffic of all calls, if every input is read once and every output written once."""
    bound: Literal["compute", "memory"] | None = None
    """What limits them at best, by the device's peaks; None if these are not known."""
    bound_ns: int | None = None
    """The least time that they need on the device: operations / peak or bytes / bandwidth, whichever is longer."""

    @property
    def flops_per_s(self) -> float | None:
        """Achieved rate of operations; None without time."""
        return self.flops / self.total_ns * 1e9 if self.total_ns else None

    @property
    def bytes_per_s(self) -> float | None:
        """Achieved rate of necessary memory traffic; None without time."""
        return self.bytes / self.total_ns * 1e9 if self.total_ns else None

    @property
    def intensity(self) -> float | None:
        """Operations per byte; None without bytes."""
        return self.flops / self.bytes if self.bytes else None

    @property
    def share(self) -> float | None:
        """Least time / time: the share of the bound that was achieved; None if unknown.

        Above one, data came from caches, or the device exceeded its nominal peak.
        """
        return self.bound_ns / self.total_ns if self.bound_ns is not None and self.total_ns else None


class ModuleRow(Struct, frozen=True, kw_only=True, gc=False):
    """A class of modules, with the modules within it, over all ranks and steps."""

    path: list[str]
    """Classes of modules from the outermost; the last is its own."""
    total_ns: int
    """Time of its compute, backward included."""
    flops: float
    """Operations of its matrix products, attention and convolutions."""
    peak_ns: int | None = None
    """The time that these would take at the device's peaks; None if a peak is unknown."""

    @property
    def mfu(self) -> float | None:
        """Share of the device's peak that the module reaches while it computes; None if unknown."""
        return self.peak_ns / self.total_ns if self.peak_ns is not None and self.total_ns else None


class Roofline(Struct, frozen=True, kw_only=True):
    """What the operators of a run achieved. The times of both lists add up to `total_ns` exactly."""

    device: str | None
    """The device of all ranks; None if the traces do not tell, or the ranks have different ones."""
    peaks: DevicePeaks | None
    """The device's row of the table; None if it has none."""
    reason: str | None
    """Why there are no peaks; None if there are."""
    total_ns: int
    """Time of compute kernels (without a device: of computing operators) over all ranks and steps."""
    rank_steps: int
    """Number of steps, summed over ranks."""
    rows: list[RooflineRow]
    """By time, largest first."""
    unmodelled: list[UnmodelledOperator]
    modules: list[ModuleRow] = []
    """By time, largest first; at most 50; empty if no modules were recorded (`with_stack`)."""

    @property
    def modelled_ns(self) -> int:
        """The part of the time whose work is known."""
        return sum(row.total_ns for row in self.rows)
