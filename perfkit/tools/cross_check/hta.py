"""Run Holistic Trace Analysis in a process of its own, and compare its temporal breakdown with perfkit's."""

import json
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from perfkit.base.atomic_write import temporary_prefix
from perfkit.base.formatting import install_extra, ranges
from perfkit.base.step_numbers import numbered
from perfkit.errors import ExternalToolError, LaunchEnvironmentError, PerfkitError, StoreError, UsageError
from perfkit.records.aggregate import exposed_sums
from perfkit.records.common import Observation
from perfkit.records.rank import RankReport
from perfkit.records.run import CrossCheck, CrossCheckRow, RunReport
from perfkit.records.tools import ExternalTable
from perfkit.report.wording.findings import word
from perfkit.storage.discovery import refuse_pipe
from perfkit.trace.decompression import GZIP_MAGIC, SKIPPABLE, ZSTD_MAGIC, BrokenStreamError, TraceText

TRACE_DIFF: Final = "trace-diff"
"""The analysis that compares with a second run."""

ANALYSES: Final[dict[str, str]] = {
    "temporal-breakdown": "idle, compute and other time of each rank",
    "comm-comp-overlap": "share of communication beside computation, by rank",
    "kernel-breakdown": "time of each kernel: sum, mean, least, most",
    "idle-time": "why each stream was idle: host, kernels or other",
    "launch-stats": "of each launch the call, the kernel and the delay",
    "queue-length": "outstanding operations per stream",
    "memory-bandwidth": "copies and memsets, GB/s",
    "critical-path": "composition of a step's critical path",
    TRACE_DIFF: "operators and kernels of two runs: counts, times",
}
"""The analyses that `perfkit hta` runs, with their help."""

_SUBPROCESS: Final = Path(__file__).with_name("hta_entry.py")
_PACKAGES: Final = ("HolisticTraceAnalysis", "traceinsight")
"""HTA, and the name its authors publish it under since."""
_ERROR_TAIL: Final = 300


class _Output(msgspec.Struct):
    """The result that the process writes."""

    error: str | None = None
    columns: list[str] = []
    rows: list[list[str | int | float | bool | None]] = []


def installed() -> str:
    """Return the package and version of the installed HTA.

    Raises:
        LaunchEnvironmentError: it is not installed.
    """
    if find_spec("hta") is None:
        raise LaunchEnvironmentError(f"Holistic Trace Analysis is not installed: {install_extra('hta')}")
    for package in _PACKAGES:
        try:
            return f"{package} {version(package)}"
        except PackageNotFoundError:
            continue
    return "hta"


def run_hta(
    run: RunReport,
    analysis: str,
    step: int | None = None,
    *,
    other: RunReport | None = None,
    count_events: bool = False,
) -> ExternalTable:
    """Run one of HTA's analyses on the traces of a run.

    Args:
        run: perfkit's report, which has the rank of each trace.
        analysis: a name in `ANALYSES`.
        step: for `critical-path`, the number of the step; None for the second, or for the only one.
        other: for `trace-diff`, the run that is compared with `run`.
        count_events: for `temporal-breakdown`, also return how many events HTA takes for work of the device, in columns
            named as in `hta_entry._event_counts`.

    Raises:
        LaunchEnvironmentError: HTA is not installed.
        ExternalToolError: HTA crashed, or cannot run this analysis.
        StoreError: temporary files cannot be written.
        TraceError: a trace is a pipe, which was read for the report.
        UsageError: the step does not exist, no trace has a known rank, or a rank has several traces.
    """
    tool = installed()
    runs = [run] if other is None else [run, other]
    of_runs = [rank_files(one) for one in runs]
    for file in (file for files in of_runs for file in files.values()):
        refuse_pipe(file, analysis)
    # HTA counts the instances of an annotation from 0.
    job = {"analysis": analysis, "instance": _instance(run, step) if analysis == "critical-path" else None}
    job |= {"count_events": count_events}
    try:
        with TemporaryDirectory(prefix=temporary_prefix("perfkit-hta")) as scratch:
            links = []
            for number, files in enumerate(of_runs):
                folder = Path(scratch, str(number))
                folder.mkdir()
                links.append({rank: str(_link_for_hta(file, folder, rank)) for rank, file in files.items()})
            output = _run_subprocess(job | {"files": links[0], "other": links[-1]}, Path(scratch))
    except OSError as error:
        raise StoreError(f"{run.run}: cannot pass the traces to {tool}: {error}") from error
    has_device = all(any(rank.device == "gpu" for rank in one.ranks) for one in runs)
    # HTA's own message then is that of an empty table, or it returns one.
    why = "" if has_device else ": it needs events of a device, and none are there"
    if not has_device and output.error is None and all(cell is None for row in output.rows for cell in row[1:]):
        raise ExternalToolError(f"{run.run}: {tool} found nothing in {analysis}{why}")
    if output.error is not None:
        raise ExternalToolError(f"{run.run}: {tool} failed in {analysis}{why}: {' '.join(output.error.split())}")
    return ExternalTable(
        tool=tool,
        analysis=analysis,
        run=" and ".join(one.run for one in runs),
        ranks=sorted(of_runs[0]),
        columns=output.columns,
        rows=output.rows,
    )


def rank_files(run: RunReport) -> dict[int, Path]:
    """Return the trace of each rank.

    Raises:
        UsageError: no trace has a known rank, or a rank has several traces; HTA takes one.
    """
    several = next((rank for rank in run.ranks if len(rank.traces) > 1), None)
    if several is not None:
        raise UsageError(
            f"{run.run}: rank {several.rank} has {len(several.traces)} traces, one per cycle, and HTA takes one per "
            f"rank: give those of one cycle, such as {several.traces[0]}"
        )
    root = Path(run.path)
    folder = root if root.is_dir() else root.parent
    is_only_rank = len(run.ranks) == 1
    files = {
        rank.rank or 0: folder / rank.traces[0]
        for rank in run.ranks
        if rank.traces and (rank.rank is not None or is_only_rank)
    }
    if not files:
        raise UsageError(
            f"{run.run}: the rank of its traces is unknown, and HTA needs it: analyze them one by one with --rank"
        )
    return files


def _instance(run: RunReport, step: int | None) -> int:
    numbers = sorted({s.step for rank in run.ranks for s in rank.steps if s.step is not None})
    if step is None:
        return min(1, max(0, len(numbers) - 1))
    if step not in numbers:
        raise UsageError(f"--step {numbered(step)}: {run.run} has the steps {ranges(numbers) or 'none'}")
    return numbers.index(step)


def _link_for_hta(file: Path, scratch: Path, rank: int) -> Path:
    """Link a trace under a name with the right suffix: HTA knows a file's compression only by its name."""
    with file.open("rb") as stream:
        magic = stream.read(4)
    if magic.startswith((ZSTD_MAGIC, *SKIPPABLE)):
        plain = scratch / f"rank{rank}.json"
        try:
            with plain.open("wb") as out:
                out.writelines(TraceText(file).pieces())
        except BrokenStreamError as error:
            raise ExternalToolError(f"{file}: HTA cannot read a damaged trace: {error}") from error
        return plain
    link = scratch / f"rank{rank}.json{'.gz' if magic.startswith(GZIP_MAGIC) else ''}"
    try:
        link.symlink_to(file.resolve())
    except OSError:  # a file system without links
        shutil.copyfile(file, link)
    return link


def _run_subprocess(job: dict[str, Any], scratch: Path) -> _Output:
    result = scratch / "result.json"
    done = subprocess.run(
        [sys.executable, "-P", str(_SUBPROCESS)],
        input=json.dumps(job | {"result": str(result)}),
        cwd=scratch,
        capture_output=True,
        text=True,
        errors="backslashreplace",
        check=False,
    )
    if not result.exists():
        how = f"it was killed by signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
        last = next((line for line in reversed(done.stderr.splitlines()) if line.strip()), "")
        return _Output(error=f"{how}; {last[-_ERROR_TAIL:]}" if last else how)
    return msgspec.json.decode(result.read_bytes(), type=_Output)


_ROUNDED_NS: Final = 2000
"""HTA rounds the start of an event up and its end down to whole microseconds: each loses this much at most."""
_NS_PER_US: Final = 1000
_DEVICE_KINDS: Final = ("kernel", "copy")


def with_cross_check(run: RunReport) -> RunReport:
    """Return a run's report with HTA's temporal breakdown, or with a finding that explains why it is missing.

    Raises:
        LaunchEnvironmentError: HTA is not installed.
    """
    if not run.ranks:
        return run
    try:
        return replace(run, cross_check=cross_check(run))
    except LaunchEnvironmentError:
        raise
    except PerfkitError as error:
        return replace(run, findings=[*run.findings, word(Observation("cross_check_failed", {"error": str(error)}))])


def cross_check(run: RunReport) -> CrossCheck:
    """Return HTA's temporal breakdown of each rank, with perfkit's.

    Raises:
        ExternalToolError: HTA crashed, or cannot analyse the traces.
        LaunchEnvironmentError: HTA is not installed.
        UsageError: the ranks of the traces are unknown, or a rank has several traces.
    """
    table = run_hta(run, "temporal-breakdown", count_events=True)
    by_rank = {row["rank"]: row for row in (dict(zip(table.columns, values, strict=True)) for values in table.rows)}
    is_only_rank = len(run.ranks) == 1
    rows = []
    for rank in run.ranks:
        number = rank.rank or 0 if is_only_rank else rank.rank
        if number in by_rank and rank.steps:
            rows.append(_row(number or 0, rank, by_rank[number]))
    return CrossCheck(tool=table.tool, rows=rows)


def _ns(value: object) -> int:
    return round(value * _NS_PER_US) if isinstance(value, int | float) else 0


def _row(number: int, rank: RankReport, hta: dict[str, Any]) -> CrossCheckRow:
    hta_ns = {name: _ns(value) for name, value in hta.items()}
    sums = exposed_sums(rank.steps)
    window = sum(sums.values())
    is_device = rank.device == "gpu"
    compute = sums["compute"]
    other = sums["communication"] + sums["memcpy"]
    return CrossCheckRow(
        rank=number,
        window_ns=window,
        compute_ns=compute,
        other_ns=other,
        idle_ns=window - compute - other,
        external_window_ns=hta_ns["kernel_time(us)"],
        external_compute_ns=hta_ns["compute_time(us)"],
        external_other_ns=hta_ns["non_compute_time(us)"],
        external_idle_ns=hta_ns["idle_time(us)"],
        device_events=sum(row.count for row in rank.operators) if is_device else None,
        external_device_events=hta.get("device_events"),
        computing_events=sum(row.count for row in rank.operators if row.category == "compute") if is_device else None,
        external_computing_events=hta.get("computing_events"),
        external_synchronisations=hta.get("synchronisations", 0),
        external_host_events=hta.get("host_events", 0),
        rounding_ns=_largest_rounding(rank),
    )


def _largest_rounding(rank: RankReport) -> int:
    """Return by how much HTA's rounding can change a sum (ns); times of whole microseconds it leaves as they are."""
    if all(ns % _NS_PER_US == 0 for step in rank.steps for ns in exposed_sums([step]).values()):
        return 0
    return sum(rank.events.get(kind, 0) for kind in _DEVICE_KINDS) * _ROUNDED_NS
