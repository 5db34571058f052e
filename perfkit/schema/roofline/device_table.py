"""What a device can do at most: the record of a row of the device table, and how a device finds its row."""

from collections.abc import Sequence

from msgspec import Struct


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
