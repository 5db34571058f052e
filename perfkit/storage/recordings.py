"""Recordings of Nsight Systems among the traces of a run: `.sqlite`, and `.nsys-rep` where `nsys` can export it."""

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from perfkit.trace.nsys.paths import REPORT_SUFFIX, SUFFIX

RECORDING_SUFFIXES: Final = (SUFFIX, REPORT_SUFFIX)
_EXPORT_S: Final = 3600.0
"""An export of many gigabytes takes minutes."""


def with_processes(files: Iterable[Path]) -> list[Path]:
    """Return traces, with a path for each process of a recording that has several (`perfkit.trace.nsys.paths`)."""
    exported = list(dict.fromkeys(_exported(file) if file.suffix == REPORT_SUFFIX else file for file in files))
    if not any(file.suffix == SUFFIX for file in exported):
        return exported
    from perfkit.trace.nsys.processes import part_paths

    return [part for file in exported for part in (part_paths(file) if file.suffix == SUFFIX else [file])]


def _exported(report: Path) -> Path:
    """Return the SQLite file beside a report, which `nsys` writes there if it is missing or older.

    Without `nsys`, or if it fails, the report itself: reading it says what to do.
    """
    target = report.with_suffix(SUFFIX)
    nsys = shutil.which("nsys")
    try:
        if target.stat().st_mtime_ns >= report.stat().st_mtime_ns:
            return target
    except OSError:
        pass
    if nsys is None or not report.is_file():
        return report
    command = [nsys, "export", "--type=sqlite", "--force-overwrite=true", f"--output={target}", str(report)]
    try:
        subprocess.run(command, check=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=_EXPORT_S)
    except (OSError, subprocess.SubprocessError):
        return report
    return target
