"""Recordings of Nsight Systems among the traces of a run: `.sqlite`, and `.nsys-rep` where `nsys` can export it."""

import os
import shutil
import stat
import subprocess
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from perfkit.trace.nsys.paths import REPORT_SUFFIX, SUFFIX, is_recording

RECORDING_SUFFIXES: Final = (SUFFIX, REPORT_SUFFIX)
_EXPORT_S: Final = 3600.0
"""An export of many gigabytes takes minutes."""


def traces_of_folder(files: Sequence[Path]) -> list[Path]:
    """Return the traces of a folder, of which nothing is exported: programs have other databases, and other reports.

    A report counts where the folder has nothing but recordings, and none of its name: reading it says what to do.
    """
    has_traces = any(file.suffix not in RECORDING_SUFFIXES for file in files)
    return _with_processes(
        file
        for file in files
        if (file.suffix != SUFFIX or is_recording(file))
        and (file.suffix != REPORT_SUFFIX or not (has_traces or file.with_suffix(SUFFIX) in files))
    )


def traces_of_files(files: Iterable[Path]) -> list[Path]:
    """Return the traces in files that the user named, of which reports are exported."""
    return _with_processes(dict.fromkeys(_exported(file) if file.suffix == REPORT_SUFFIX else file for file in files))


def _with_processes(files: Iterable[Path]) -> list[Path]:
    """Return traces, with a path for each process of a recording that has several (`perfkit.trace.nsys.paths`)."""
    found = list(files)
    if not any(file.suffix == SUFFIX for file in found):
        return found
    from perfkit.trace.nsys.processes import part_paths

    return [part for file in found for part in (part_paths(file) if file.suffix == SUFFIX else [file])]


def _exported(report: Path) -> Path:
    """Return the SQLite file beside a report, which `nsys` writes there if it is missing or older.

    Without `nsys`, or if it fails, the report itself: reading it says what to do.
    """
    target, nsys = report.with_suffix(SUFFIX), shutil.which("nsys")
    with suppress(OSError):
        found = target.lstat()
        if not stat.S_ISREG(found.st_mode):  # a link could lead anywhere
            return report
        if found.st_mtime_ns >= report.stat().st_mtime_ns:
            return target
    if nsys is None or not report.is_file():
        return report
    unfinished = report.with_name(f".{report.stem}.{os.getpid()}{SUFFIX}")
    command = [nsys, "export", "--type=sqlite", "--force-overwrite=true", f"--output={unfinished}", str(report)]
    try:
        subprocess.run(command, check=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=_EXPORT_S)
        unfinished.replace(target)
    except (OSError, subprocess.SubprocessError):
        return report
    finally:
        unfinished.unlink(missing_ok=True)
    return target
