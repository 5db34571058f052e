"""Throughput of a run, from its own step times (metrics.md sections 7 and 8)."""

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from perfkit.records.aggregate import clock_step_times, real_steps_ns, step_time_ns
from perfkit.records.manifest import RankRecord, StepKind, Throughput
from perfkit.records.roofline import find_device
from perfkit.storage.device_table_file import DeviceTable, load_device_table


class StepWork(Struct, frozen=True, kw_only=True):
    """What one rank does in one step; ranks that share samples count as one."""

    batch_size: int
    sample_bytes: int | None = None
    tokens_per_sample: int | None = None
    flops_per_token: float | None = None
    matmul_dtype: str | None = None
    """Data type of matrix products; None if it is that of the parameters."""
    parameters: int | None = None
    """Of the whole model; None if it is to be counted."""
    replicas: int | None = None
    """Ranks, or groups of ranks, that train on different samples; None if every rank does."""
    loads_ahead: bool = False
    """Whether loader workers read while the step computes: then the wait for a batch is not the time to read it."""

    def samples_per_rank(self, world_size: int) -> float:
        """Return a rank's share of the samples of a step: over all ranks the sum is what the run trains on."""
        return self.batch_size * (self.replicas or world_size) / world_size


PeakFlops = float | str
"""Peak FLOP/s of one device, or why it is unknown."""


def measure_throughput(
    kinds: Sequence[StepKind], ranks: Sequence[RankRecord], work: StepWork, peak: PeakFlops, *, reading: bool = True
) -> Throughput | None:
    """Return the rates over the plain steps, else over the active ones; None if there are neither.

    The time of a step is the maximum over ranks; the rates use the mean over steps.

    Args:
        reading: Whether the wait for a batch is the time to read it; otherwise there is no read rate.
    """
    measured_on: Literal["plain", "active"] = "plain" if "plain" in kinds else "active"
    chosen = [step for step, kind in enumerate(kinds) if kind == measured_on]
    times = clock_step_times(ranks, kinds)
    mean_ns = step_time_ns(real_steps_ns(times) if measured_on == "plain" else times.recorded_ns)
    if mean_ns is None:
        return None
    step_ns = max(1, round(mean_ns))
    samples_per_s = (work.replicas or len(ranks)) * work.batch_size * 1e9 / step_ns
    tokens_per_s = _times(samples_per_s, work.tokens_per_sample)
    flops_per_s = None if tokens_per_s is None else _times(tokens_per_s, work.flops_per_token)
    mfu, mfu_reason = _mfu(flops_per_s, len(ranks), peak)
    return Throughput(
        samples_per_s=samples_per_s,
        tokens_per_s=tokens_per_s,
        flops_per_s=flops_per_s,
        mfu=mfu,
        mfu_reason=mfu_reason,
        read_bytes_per_s=_read_rate(chosen, ranks, work) if reading else None,
        measured_on=measured_on,
        step_ns=step_ns,
    )


def _times(rate: float, factor: float | None) -> float | None:
    return None if factor is None else rate * factor


def _mfu(flops_per_s: float | None, devices: int, peak: PeakFlops) -> tuple[float | None, str | None]:
    if flops_per_s is None:
        return None, "the workload does not count its FLOPs"
    return (None, peak) if isinstance(peak, str) else (flops_per_s / (devices * peak), None)


def _read_rate(chosen: Sequence[int], ranks: Sequence[RankRecord], work: StepWork) -> float | None:
    if work.sample_bytes is None:
        return None
    delivered = len(chosen) * work.batch_size * work.sample_bytes
    waits = [sum(rank.load_ns[step] for step in chosen) for rank in ranks]
    return sum(delivered * 1e9 / max(1, wait) for wait in waits)


def find_peak(
    device_name: str,
    dtype: str,
    given_tflops: float | None,
    *,
    table: DeviceTable = None,
    threads: int | None = None,
) -> PeakFlops:
    """Return the peak of one device: `given_tflops`, else the table's, else the reason why it is unknown."""
    if given_tflops is not None:
        return given_tflops * 1e12
    device = find_device(load_device_table(table), device_name, threads)
    flops_per_s = None if device is None else device.flops_per_s(dtype)
    unknown = f"no known {dtype} peak for {device_name}: run with --peak-tflops or --device-table"
    return unknown if flops_per_s is None else flops_per_s
