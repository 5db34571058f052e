"""Rates from measurements instead of assumptions: an analysed run, or a file of `perfkit collectives`."""

from pathlib import Path
from statistics import mean
from typing import Final

from msgspec.structs import replace

from perfkit.errors import UsageError
from perfkit.records.cross_rank import BandwidthFit
from perfkit.records.plan import PlannedDevice
from perfkit.records.run import RunReport
from perfkit.storage.report_file import load_collectives
from perfkit.tools.plan.formulas.step_time import Rates
from perfkit.tools.plan.formulas.traffic import hops
from perfkit.tools.plan.hardware import DEFAULT_PER_HOST, NETWORK_GB_PER_S

_ORDER: Final = ("all_reduce", "all_gather", "reduce_scatter")
"""Operators whose fit counts, the first that there is."""


def measured_rates(path: Path, rates: Rates, device: PlannedDevice | None) -> tuple[Rates, PlannedDevice | None]:
    """Return rates, and a device, with what a measurement knows in place of assumptions.

    Raises:
        UsageError: There are several runs, or none with traces.
        StoreError: The file is not one of `perfkit collectives`.
        TraceError: The traces cannot be read.
    """
    if path.suffix == ".json" and path.is_file():
        benchmark = load_collectives(path)
        alone = [one.fit for one in benchmark.fits if benchmark.series[one.series].concurrent == 1]
        return _with_fits(rates, alone, str(path)), device
    run = read_run(path)
    found = run.cross_rank.bandwidth_fits if run.cross_rank else []
    measured = _with_fits(rates, found, str(path))
    if measured.bytes_per_s is None:
        measured = _with_bus_bandwidth(run, rates, str(path))
    return with_compute(run, measured, device, str(path))


def read_run(path: Path) -> RunReport:
    """Return the report of one run.

    Raises:
        UsageError: There are several runs, or none with traces.
        TraceError: The traces cannot be read.
    """
    from perfkit.pipeline.analyze import analyze  # numpy and more: not for a plan by formulas

    runs = [run for run in analyze(str(path)).runs if run.ranks]
    if len(runs) != 1:
        raise UsageError(f"{path}: {len(runs)} runs with traces: give the folder of exactly one")
    return runs[0]


def _with_fits(rates: Rates, fits: list[BandwidthFit], source: str) -> Rates:
    """Return rates with latency and bandwidth of the largest group that has a fit; unchanged without one."""
    known = [fit for fit in fits if fit.operator in _ORDER and fit.alpha_ns is not None and fit.beta]
    known.sort(key=lambda fit: (-(fit.group_size or 0), _ORDER.index(fit.operator)))
    if not known:
        return _noted(rates, f"{source} has no fit of latency and bandwidth: both assumed")
    fit = known[0]
    ranks = fit.group_size or 2
    text = f"latency and bandwidth of {fit.operator} among {ranks} ranks, {source}"
    latency = max(0.0, fit.alpha_ns or 0.0) / hops(ranks)
    return _noted(rates, text, latency_ns=latency, bytes_per_s=fit.beta)


def _with_bus_bandwidth(run: RunReport, rates: Rates, source: str) -> Rates:
    """Return rates with the bus bandwidth of the dimension with most bytes, in which latency is contained."""
    rows = [row for row in (run.dimensions.rows if run.dimensions else []) if row.busbw and row.bytes]
    if not rows:
        return _noted(rates, f"{source} has no bandwidth of messages: that of links is assumed")
    row = max(rows, key=lambda row: row.bytes or 0)
    text = f"bus bandwidth of {row.dimension}, latency contained, {source} (a fit needs 3 sizes of one collective)"
    return _noted(rates, text, latency_ns=0.0, bytes_per_s=row.busbw)


def _noted(rates: Rates, text: str, **changes: float | None) -> Rates:
    return replace(rates, sources=(*rates.sources, text), **changes)


def with_compute(
    run: RunReport, rates: Rates, device: PlannedDevice | None, source: str
) -> tuple[Rates, PlannedDevice | None]:
    """Return rates with the FLOP/s that a run reached while it computed, as a share of the device's peak."""
    reached = reached_flops_per_s(run)
    if reached is None:
        return _noted(rates, f"{source} has no FLOP/s: the efficiency is assumed"), device
    if device is None or device.flops_per_s is None:
        name = ", ".join(run.device_names) or "the run's device"
        made = _device(name, reached) if device is None else replace(device, flops_per_s=reached)
        text = (
            f"{reached / 1e9:.4g} GFLOP/s while it computes, {source}; taken as the peak, so that MFU is relative to it"
        )
        return _noted(rates, text, efficiency=1.0), made
    share = min(1.0, reached / device.flops_per_s)
    text = f"{100 * share:.3g} % of the peak while it computes, {source}"
    return _noted(rates, text, efficiency=share), device


def reached_flops_per_s(run: RunReport) -> float | None:
    """Return the model FLOP/s of one rank in its compute time: that of its recorded steps, the mean over ranks."""
    if run.throughput is None or run.throughput.flops_per_s is None:
        return None
    own = compute_ns(run)
    flops = run.throughput.flops_per_s * run.throughput.step_ns / 1e9 / run.world_size
    return flops / (own / 1e9) if own else None


def compute_ns(run: RunReport) -> float:
    """Return the compute time of a recorded step, the mean over steps and ranks."""
    times = [step.exposed_ns.compute for rank in run.ranks for step in rank.steps]
    return mean(times) if times else 0.0


def _device(name: str, flops_per_s: float) -> PlannedDevice:
    return PlannedDevice(
        name=name,
        memory_bytes=None,
        flops_per_s=flops_per_s,
        bandwidth_bytes_per_s=None,
        devices_per_host=DEFAULT_PER_HOST,
        host_bytes_per_s=None,
        network_bytes_per_s=NETWORK_GB_PER_S * 1e9,
        power_watts=None,
        sources=[],
    )
