"""The roofline of a run, from the work of its ranks and the peaks of their device (metrics.md section 18)."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from msgspec.structs import asdict

from perfkit.records.facts import Statement, statement
from perfkit.records.manifest import RunManifest
from perfkit.records.per_rank.operator_work import (
    FLOAT32_OR_TF32,
    MATRIX_KINDS,
    TF32,
    ModuleWork,
    OperatorWork,
    add_rank_work,
)
from perfkit.records.rank import RankReport
from perfkit.records.roofline import DevicePeaks, ModuleRow, Roofline, RooflineRow, find_device


class _Device(NamedTuple):
    name: str | None
    threads: int | None
    reason: Statement
    """Why there are no peaks, if there are none."""


def roofline(
    ranks: Sequence[RankReport], names: Sequence[str], manifest: RunManifest | None, table: Sequence[DevicePeaks]
) -> Roofline | None:
    """Return the roofline of a run; None unless shapes were recorded on all its ranks.

    Args:
        ranks: the ranks.
        names: what their traces call their devices.
        manifest: the run's manifest; None for foreign traces.
        table: rows of devices.
    """
    with_steps = [rank for rank in ranks if rank.steps]
    work = add_rank_work(rank.operator_work for rank in with_steps)
    if work is None:
        return None
    device = _device(with_steps, names, manifest)
    peaks = None if device.name is None else find_device(table, device.name, device.threads)
    return Roofline(
        device=device.name,
        peaks=peaks,
        reason=None if peaks else device.reason,
        total_ns=work.total_ns,
        rank_steps=sum(len(rank.steps) for rank in with_steps),
        rows=[_row(one, peaks) for one in work.operators],
        unmodelled=work.unmodelled,
        modules=[_module(one, peaks) for one in work.modules],
    )


def _device(ranks: Sequence[RankReport], names: Sequence[str], manifest: RunManifest | None) -> _Device:
    """Return the device that all ranks compute on: the manifest's, else the one that the traces name."""
    records = manifest.ranks if manifest else []
    devices: set[tuple[str, int | None]] = {(record.device_name, record.threads) for record in records}
    devices = devices or {(name, None) for name in names}
    distinct = sorted({name for name, _ in devices})
    on_device = {rank.device for rank in ranks} == {"gpu"}
    if len(distinct) > 1:
        return _Device(None, None, statement("several_devices", names=distinct))
    if not distinct or (not records and not on_device):
        return _Device(None, None, statement("unnamed_device", what="device" if on_device else "processor"))
    threads = {threads for _, threads in devices}
    known_threads = threads.pop() if len(threads) == 1 and not on_device else None
    return _Device(distinct[0], known_threads, statement("no_peaks", device=distinct[0], threads=known_threads))


def _row(work: OperatorWork, peaks: DevicePeaks | None) -> RooflineRow:
    bound, bound_ns = _bound(work, peaks) if peaks else (None, None)
    figures = {"flops": float(work.flops), "bytes": float(work.bytes), "bound": bound, "bound_ns": bound_ns}
    return RooflineRow(**asdict(work) | figures)


def _module(work: ModuleWork, peaks: DevicePeaks | None) -> ModuleRow:
    return ModuleRow(
        path=work.path,
        total_ns=work.total_ns,
        flops=float(sum(work.flops.values())),
        peak_ns=_peak_ns(work, peaks) if peaks else None,
    )


def _peak_ns(work: ModuleWork, peaks: DevicePeaks) -> int | None:
    """Return the time of a module's operations at the device's peaks; None if one is unknown."""
    has_tf32 = TF32 in peaks.tflops
    named = {("float32" if name == FLOAT32_OR_TF32 and not has_tf32 else name): n for name, n in work.flops.items()}
    rates = {name: peaks.flops_per_s(name) for name in named}
    times = [flops / rate * 1e9 for name, flops in named.items() if (rate := rates[name])]
    return round(sum(times)) if len(times) == len(work.flops) else None


def _bound(work: OperatorWork, peaks: DevicePeaks) -> tuple[Literal["compute", "memory"] | None, int | None]:
    """Return what limits operators, and the least time that they need (ns).

    Peaks are those of matrix products; what else computes does a few operations per byte, and is bound by memory.
    """
    if peaks.bytes_per_s is None:
        return None, None
    memory_ns = work.bytes / peaks.bytes_per_s * 1e9
    if work.kind not in MATRIX_KINDS:
        return "memory", round(memory_ns)
    flops_per_s = matrix_peak(work, peaks)
    if flops_per_s is None:
        return None, None
    compute_ns = work.flops / flops_per_s * 1e9
    return ("compute", round(compute_ns)) if compute_ns >= memory_ns else ("memory", round(memory_ns))


def matrix_peak(work: OperatorWork, peaks: DevicePeaks) -> float | None:
    """Return the peak for matrix products of the operator's type; None if unknown.

    For float32 on a device that has TF32, only the kernels' names tell which of the two was used.
    """
    if work.dtype is None:
        return None
    if work.dtype != "float32" or TF32 not in peaks.tflops:
        return peaks.flops_per_s(work.dtype)
    if work.tensor_cores is None:
        return None
    return peaks.flops_per_s(TF32 if work.tensor_cores else "float32")
