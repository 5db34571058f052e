"""From a run to what Holistic Trace Analysis says of it."""

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

from perfkit.errors import ExternalToolError, LaunchEnvironmentError, StoreError, UsageError
from perfkit.schema.external_tool import ExternalTable
from perfkit.schema.run import RunReport
from perfkit.trace.decompression import GZIP_MAGIC, SKIPPABLE, ZSTD_MAGIC, BrokenStreamError, TraceText

_CHILD: Final = Path(__file__).with_name("subprocess_entry.py")
_PACKAGES: Final = ("HolisticTraceAnalysis", "traceinsight")
"""HTA, and what its authors publish it as since."""
_ERROR_TAIL: Final = 300


class _Output(msgspec.Struct):
    """What the process leaves."""

    error: str | None = None
    columns: list[str] = []
    rows: list[list[str | int | float | bool | None]] = []


def installed() -> str:
    """Return which HTA there is.

    Raises:
        LaunchEnvironmentError: there is none.
    """
    if find_spec("hta") is None:
        raise LaunchEnvironmentError("Holistic Trace Analysis is not installed: pip install 'perfkit[hta]'")
    for package in _PACKAGES:
        try:
            return f"{package} {version(package)}"
        except PackageNotFoundError:
            continue
    return "hta"


def run_hta(run: RunReport, analysis: str, step: int | None = None) -> ExternalTable:
    """Run one of HTA's analyses on the traces of a run.

    Args:
        run: perfkit's report of it, which says the rank of each trace.
        analysis: a name in `perfkit.external.hta.analyses.ANALYSES`.
        step: of `critical-path`, the number of the step; if None the second, else the only one.

    Raises:
        LaunchEnvironmentError: HTA is not installed.
        PeerError: HTA crashed, or cannot do it.
        StoreError: there is no room for temporary files.
        UsageError: there is no such step or no rank, or a rank has several traces.
    """
    tool = installed()
    files = rank_files(run)
    # HTA takes instances of an annotation, from 0.
    job = {"analysis": analysis, "instance": _instance(run, step) if analysis == "critical-path" else None}
    try:
        with TemporaryDirectory(prefix="perfkit-hta-") as scratch:
            named = {rank: str(_named(file, Path(scratch), rank)) for rank, file in files.items()}
            said = _do(job | {"files": named}, Path(scratch))
    except OSError as error:
        raise StoreError(f"{run.run}: cannot hand the traces to {tool}: {error}") from error
    if said.error is not None:
        raise ExternalToolError(f"{run.run}: {tool} says of {analysis}: {' '.join(said.error.split())}")
    return ExternalTable(
        tool=tool, analysis=analysis, run=run.run, ranks=sorted(files), columns=said.columns, rows=said.rows
    )


def rank_files(run: RunReport) -> dict[int, Path]:
    """Return the trace of each rank.

    Raises:
        UsageError: no trace says its rank, or a rank has several, of which HTA could take only one.
    """
    several = next((rank for rank in run.ranks if len(rank.traces) > 1), None)
    if several is not None:
        raise UsageError(
            f"{run.run}: rank {several.rank} has {len(several.traces)} traces, one a cycle, and HTA takes one a rank: "
            f"give those of one cycle, such as {several.traces[0]}"
        )
    root = Path(run.path)
    folder = root if root.is_dir() else root.parent
    alone = len(run.ranks) == 1
    files = {
        rank.rank or 0: folder / rank.traces[0]
        for rank in run.ranks
        if rank.traces and (rank.rank is not None or alone)
    }
    if not files:
        raise UsageError(f"{run.run}: no trace says its rank, and HTA must know: analyze them one by one with --rank")
    return files


def _instance(run: RunReport, step: int | None) -> int:
    numbers = sorted({s.step for rank in run.ranks for s in rank.steps if s.step is not None})
    if step is None:
        return min(1, max(0, len(numbers) - 1))
    if step not in numbers:
        raise UsageError(f"--step {step}: {run.run} has the steps {', '.join(map(str, numbers)) or 'none'}")
    return numbers.index(step)


def _named(file: Path, scratch: Path, rank: int) -> Path:
    """Return a name for a trace by which HTA knows how to read it, which it takes from nothing but the name."""
    with file.open("rb") as stream:
        magic = stream.read(4)
    if magic.startswith((ZSTD_MAGIC, *SKIPPABLE)):
        plain = scratch / f"rank{rank}.json"
        try:
            with plain.open("wb") as out:
                out.writelines(TraceText(file).pieces())
        except BrokenStreamError as error:
            raise ExternalToolError(f"{file}: HTA reads no damaged trace: {error}") from error
        return plain
    link = scratch / f"rank{rank}.json{'.gz' if magic.startswith(GZIP_MAGIC) else ''}"
    try:
        link.symlink_to(file.resolve())
    except OSError:  # a file system without links
        shutil.copyfile(file, link)
    return link


def _do(job: dict[str, Any], scratch: Path) -> _Output:
    result = scratch / "result.json"
    done = subprocess.run(
        [sys.executable, "-P", str(_CHILD)],
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
