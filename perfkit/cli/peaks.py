"""`perfkit peaks`: measures what this machine's devices can do."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from perfkit.base.formatting import install_extra, rate
from perfkit.base.parsing import parse_names, parse_numbers
from perfkit.cli.output import report_written
from perfkit.cli.typer_app import App, print_line
from perfkit.errors import LaunchEnvironmentError, UsageError
from perfkit.storage.device_table_file import write_device_row

if TYPE_CHECKING:
    import torch

    from perfkit.record.peaks import MeasuredPeaks

app = App()

_CPU_SIZES: Final = "256,512,1024,2048,4096"
_DEVICE_SIZES: Final = "1024,2048,4096,8192,16384"
_LARGEST: Final = 1 << 17
_NAMES: Final = ("float64", "float32", "tf32", "bfloat16", "float16")


@app.command()
def peaks(
    device: Annotated[
        str,
        typer.Option(metavar="<auto|cpu|cuda|xpu|…>", help="Device to measure; auto: an accelerator, if any."),
    ] = "auto",
    dtypes: Annotated[
        str, typer.Option("--dtypes", metavar="NAME,NAME", help="Data types of matrix products.")
    ] = ",".join(_NAMES),
    sizes: Annotated[
        str | None,
        typer.Option(
            metavar="N,N", help=f"Rows of the matrices.  [default: {_CPU_SIZES}; of accelerators {_DEVICE_SIZES}]"
        ),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads of the CPU; default: as many as torch uses.")
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Repetitions; the median counts.")] = 7,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write a row for `--device-table`, as TOML.")
    ] = None,
) -> None:
    """Measure the peaks of a device: FLOP/s of matrix products by data type and size, and memory bandwidth.

    The peak of a data type is the rate of its fastest size; each size is measured as the median of several repetitions.
    Sizes that would take more than four seconds are skipped. The bandwidth is that of a = b + 3 c on arrays larger than
    the caches, counted as in STREAM: two arrays read, one written. Do not run anything else at the same time.

    \b
    perfkit peaks                                          a table
    perfkit peaks --device cpu --threads 8 -o here.toml    a row of a device table
    perfkit analyze traces/ --device-table here.toml
    """  # noqa: D301  \b marks a paragraph that keeps its lines
    wanted = parse_names(dtypes, _NAMES, "--dtypes")
    given = None if sizes is None else sorted(parse_numbers(sizes, "--sizes", "1024,2048", most=_LARGEST))
    found = _device(device, threads)
    from perfkit.record.peaks import measure_peaks

    usual = (_CPU_SIZES if found.type == "cpu" else _DEVICE_SIZES).split(",")
    measured = measure_peaks(found, dtypes=wanted, sizes=given or list(map(int, usual)), repeats=repeats)
    _print(measured)
    if not measured.gemms:
        failed = (f"{dtype}: {reason}" for dtype, reason in measured.failed.items())
        why = "; ".join(failed) or "sizes take too long"
        raise LaunchEnvironmentError(f"{measured.name}: no matrix product could be measured: {why}")
    if output is not None:
        write_device_row(output, measured.row(_source(measured, repeats)))
        report_written(output, "for --device-table")


def _device(name: str, threads: int | None) -> "torch.device":
    """Return the device, with the number of threads set.

    Raises:
        UsageError: There is no such device, or it has no threads.
        LaunchEnvironmentError: torch is missing.
    """
    try:
        import torch
    except ImportError as error:
        raise LaunchEnvironmentError(f"peaks needs torch ({error}): {install_extra('run')}") from error
    from perfkit.accelerators import device_types

    kinds = [kind for kind in device_types() if (module := getattr(torch, kind, None)) and module.is_available()]
    chosen = (kinds[0] if kinds else "cpu") if name == "auto" else name
    if chosen.partition(":")[0] not in ("cpu", *kinds):
        raise UsageError(f"--device {name}: not available here; choose from {', '.join(('auto', 'cpu', *kinds))}")
    try:
        device = torch.device(chosen)
    except RuntimeError as error:
        raise UsageError(f"--device {name}: {error}") from error
    if threads is not None:
        if device.type != "cpu":
            raise UsageError(f"--threads has no effect on {device.type}: remove it")
        torch.set_num_threads(threads)
    return device


def _print(measured: "MeasuredPeaks") -> None:
    threads = "" if measured.threads is None else f", {measured.threads} threads"
    lines = [f"{measured.name}{threads}", ""]
    for dtype in dict.fromkeys(gemm.dtype for gemm in measured.gemms):
        best = measured.best(dtype)
        for gemm in measured.gemms:
            if gemm.dtype == dtype:
                mark = "  peak" if gemm is best else ""
                lines.append(f"  {dtype:<9} {gemm.size:>6} rows  {rate(gemm.flops_per_s, 'FLOP'):>14}{mark}")
    lines += [f"  {dtype:<9} not measured: {reason}" for dtype, reason in measured.failed.items()]
    triad = measured.triad
    lines.append(f"  {'memory':<9} {triad.array_bytes * 3 / 1e6:>6.0f} MB    {rate(triad.bytes_per_s, 'B'):>14}")
    print_line("\n".join(lines))


def _source(measured: "MeasuredPeaks", repeats: int) -> str:
    import torch

    sizes = "/".join(dict.fromkeys(str(best.size) for gemm in measured.gemms if (best := measured.best(gemm.dtype))))
    return (
        f"measured by perfkit peaks on {datetime.now(UTC):%Y-%m-%d} with torch {torch.__version__}: products of "
        f"{sizes} rows, triad of {measured.triad.array_bytes * 3 / 1e6:.0f} MB, medians of {repeats}"
    )
