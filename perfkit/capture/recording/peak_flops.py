"""Peak dense FLOP/s of devices, without sparsity: the reference for MFU (metrics.md section 8).

A device is identified by the exact name that torch reports. A device that is not in the table has no MFU, rather than
one against the peak of a similar device.
"""

from typing import Final

from msgspec import Struct

from perfkit.capture.recording.throughput import PeakFlops


class PeakFlopsRow(Struct, frozen=True):
    """Peak of one device, as torch counts devices, for one data type of matrix products."""

    device: str
    dtype: str
    tflops: float
    source: str


_A100 = "NVIDIA A100 Tensor Core GPU datasheet"
_H100 = "NVIDIA H100 Tensor Core GPU datasheet, halved where it counts sparsity"
_H200 = "NVIDIA H200 Tensor Core GPU datasheet, halved where it counts sparsity"
_MI250X = "AMD Instinct MI250X datasheet, halved: torch sees each of its two dies as a device"
_MI300X = "AMD Instinct MI300X datasheet"
_A100_NAMES = ("NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-80GB", "NVIDIA A100-PCIE-40GB", "NVIDIA A100 80GB PCIe")


def _rows(device: str, source: str, **tflops: float) -> list[PeakFlopsRow]:
    return [PeakFlopsRow(device, dtype, value, source) for dtype, value in tflops.items()]


PEAKS: Final = (
    *(row for name in _A100_NAMES for row in _rows(name, _A100, float32=19.5, tf32=156, bfloat16=312, float16=312)),
    *_rows("NVIDIA H100 80GB HBM3", _H100, float32=67, tf32=494.5, bfloat16=989.5, float16=989.5),
    *_rows("NVIDIA H100 PCIe", _H100, float32=51, tf32=378, bfloat16=756.5, float16=756.5),
    *_rows("NVIDIA H200", _H200, float32=67, tf32=494.5, bfloat16=989.5, float16=989.5),
    *_rows("AMD Instinct MI250X", _MI250X, float32=47.85, bfloat16=191.5, float16=191.5),
    *_rows("AMD Instinct MI300X", _MI300X, float32=163.4, tf32=653.7, bfloat16=1307.4, float16=1307.4),
)


def find_peak(device_name: str, dtype: str, given_tflops: float | None) -> PeakFlops:
    """Return the peak of one device: `given_tflops`, else the table's, else the reason why it is unknown."""
    if given_tflops is not None:
        return PeakFlops(flops_per_s=given_tflops * 1e12)
    for row in PEAKS:
        if (row.device, row.dtype) == (device_name, dtype):
            return PeakFlops(flops_per_s=row.tflops * 1e12)
    return PeakFlops(
        flops_per_s=None,
        reason=f"no known {dtype} peak for {device_name}: run with --peak-tflops",
    )
