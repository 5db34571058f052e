"""Peak FLOP/s of the device that a run uses, from the device table: the reference for MFU (metrics.md section 8).

A device is identified by the exact name that torch reports. A device that is not in the table has no MFU, rather than
one against the peak of a similar device.
"""

from perfkit.capture.recording.throughput import PeakFlops
from perfkit.schema.roofline import find_device
from perfkit.storage.device_table_file import DeviceTable, load_device_table


def find_peak(
    device_name: str,
    dtype: str,
    given_tflops: float | None,
    *,
    table: DeviceTable = None,
    threads: int | None = None,
) -> PeakFlops:
    """Return the peak of one device: `given_tflops`, else the table's, else the reason why it is unknown.

    Args:
        device_name: As torch reports it.
        dtype: Data type of matrix products.
        given_tflops: Peak that the user has given.
        table: The user's device table.
        threads: Number of threads of a CPU.

    Raises:
        UsageError: The user's table is invalid.
    """
    if given_tflops is not None:
        return PeakFlops(flops_per_s=given_tflops * 1e12)
    device = find_device(load_device_table(table), device_name, threads)
    flops_per_s = None if device is None else device.flops_per_s(dtype)
    if flops_per_s is not None:
        return PeakFlops(flops_per_s=flops_per_s)
    return PeakFlops(
        flops_per_s=None,
        reason=f"no known {dtype} peak for {device_name}: run with --peak-tflops or --device-table",
    )
