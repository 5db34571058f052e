"""Reads logs of NCCL and oneCCL and snapshots of memory, and adds their contents to the report of their run."""

import os
import re
import stat
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from msgspec.structs import replace

from perfkit.errors import TraceError, UsageError
from perfkit.pipeline.run_report import with_findings, with_folders
from perfkit.records.common import Observation
from perfkit.records.per_rank.memory import MemorySnapshot
from perfkit.records.per_run.comm_logs import NcclLogs, OneCclLogs
from perfkit.records.run import RunReport

_MOST_FILES: Final = 20_000
_MOST_UNASKED_BYTES: Final = 64 << 20
"""Logs of a run's own folder that are read without `--comm-log`, all together; larger ones take seconds."""

_NO_LOGS: Final = (".json", ".gz", ".zst", ".pickle", ".html", ".csv", ".pt", ".safetensors", ".py")
"""What is no log in a folder: `NCCL_DEBUG_FILE` often has no suffix, output of jobs has many."""


class ReadLogs(NamedTuple):
    """Contents of logs."""

    nccl: NcclLogs | None
    nccl_findings: list[Observation]
    one_ccl: OneCclLogs | None

    @property
    def files(self) -> list[str]:
        """Some of those with lines."""
        return [*(self.nccl.files if self.nccl else ()), *(self.one_ccl.files if self.one_ccl else ())]


def load_comm_logs(paths: Sequence[str | Path]) -> ReadLogs:
    """Return the contents of logs, and findings about them; of folders, all files with logs are read.

    Raises:
        TraceError: A file cannot be read, or none contains a line of NCCL's.
    """
    files = [file for path in paths for file in _files(Path(path))]
    found = _read(files)
    if found is None:
        named = ", ".join(str(path) for path in paths[:3])
        raise TraceError(
            f"{named}: no line of NCCL's or oneCCL's log here; NCCL_DEBUG=INFO or CCL_LOG_LEVEL=info makes them log"
        )
    return found


def with_comm_logs(runs: list[RunReport], given: ReadLogs | None) -> list[RunReport]:
    """Return the runs with the given logs, or else each with those in its own folder.

    Raises:
        UsageError: Logs are given, and there are several runs.
    """
    if given is None:
        return with_folders(runs, _with_own)
    if len(runs) != 1:
        raise UsageError(f"--comm-log {given.files[0]} belongs to one run; PATH has {len(runs)}: give one")
    return [_with_logs(runs[0], given)]


def _with_own(run: RunReport) -> RunReport:
    files = _own_files(Path(run.path))
    if not files:
        return run
    if sum(size for _, size in files) > _MOST_UNASKED_BYTES:
        return with_findings(run, [Observation("nccl_log_unread", {"folder": run.path}, "large", "info")])
    try:
        found = _read([file for file, _ in files])
    except TraceError as error:
        return with_findings(run, [Observation("nccl_log_unread", {"error": str(error)})])
    return run if found is None else _with_logs(run, found)


def _own_files(folder: Path) -> list[tuple[Path, int]]:
    """Return the logs in a run's folder, with their sizes: `rank0.nccl.log`, `nccl.host.pid.log`."""
    try:
        with os.scandir(folder) as entries:
            found = [
                (Path(entry.path), entry.stat().st_size)
                for entry in entries
                if entry.name.endswith(".log") and (entry.name.startswith("nccl") or entry.name.endswith(".nccl.log"))
                if entry.is_file()
            ]
    except OSError:  # a trace, not a folder; or a folder that vanished: the run is analysed all the same
        return []
    return sorted(found)[:_MOST_FILES]


def _with_logs(run: RunReport, read: ReadLogs) -> RunReport:
    findings = [*read.nccl_findings]
    if read.nccl and read.nccl.ranks is not None and read.nccl.ranks != run.world_size:
        findings.append(Observation("nccl_ranks_differ", {"logged": read.nccl.ranks, "world_size": run.world_size}))
    if read.one_ccl is not None:
        from perfkit.subjects.comm_logs.summarize import find_one_ccl_findings

        findings += find_one_ccl_findings(read.one_ccl, len({rank.host for rank in run.ranks}))
    return with_findings(replace(run, nccl_logs=read.nccl, one_ccl_logs=read.one_ccl), findings)


def _files(path: Path) -> list[Path]:
    """Return a file, or the files of a folder.

    Raises:
        TraceError: It does not exist, or cannot be read.
    """
    try:
        if not stat.S_ISDIR(path.stat().st_mode):
            return [path]
        with os.scandir(path) as entries:
            found = sorted(Path(entry.path) for entry in entries if not entry.name.startswith(".") and entry.is_file())
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from error
    return [file for file in found if not file.name.endswith(_NO_LOGS)][:_MOST_FILES]


def _read(files: Sequence[Path]) -> ReadLogs | None:
    """Return what files contain, and findings; None without a line of NCCL's or oneCCL's."""
    from perfkit.subjects.comm_logs.findings import find_log_findings
    from perfkit.subjects.comm_logs.summarize import Ranks, find_links, summarize_logs, summarize_one_ccl
    from perfkit.trace.comm_logs.facts import NcclLogReader
    from perfkit.trace.comm_logs.one_ccl import OneCclReader

    reader, one_ccl = NcclLogReader(), OneCclReader()
    with_nccl, with_one_ccl = [], []
    for file in files:
        before = one_ccl.facts.lines
        if reader.read(file, partial(one_ccl.add, file=file.name)):
            with_nccl.append(file.name)
        if one_ccl.facts.lines > before:
            with_one_ccl.append(file.name)
    facts = reader.facts
    found = summarize_one_ccl(one_ccl.facts, with_one_ccl) if one_ccl.facts.lines else None
    if not facts.lines and not facts.timeouts:
        return ReadLogs(None, [], found) if found else None
    links, ranks = list(find_links(facts)), Ranks(facts)
    logs = summarize_logs(facts, links, ranks, with_nccl or [file.name for file in files])
    return ReadLogs(logs, list(find_log_findings(facts, links, ranks)), found)


_RANK: Final = re.compile(r"rank[_-]?(\d{1,9})(?!\d)")


def load_memory_snapshot(path: str | Path) -> MemorySnapshot:
    """Return the contents of a pickle of `torch.cuda.memory._dump_snapshot`.

    Raises:
        TraceError: The file cannot be read, or is not a snapshot of plain values.
    """
    from perfkit.storage.memory_snapshot_file import read_snapshot
    from perfkit.subjects.memory.snapshot import tabulate

    file = Path(path)
    rank = _RANK.search(file.name)
    devices = [tabulate(device) for device in read_snapshot(file)]
    return MemorySnapshot(file=file.name, rank=int(rank[1]) if rank else None, devices=devices)


def with_snapshot(runs: list[RunReport], snapshot: MemorySnapshot) -> list[RunReport]:
    """Return the runs, the only one with its snapshot.

    Raises:
        UsageError: There are several.
    """
    if len(runs) != 1:
        raise UsageError(f"--memory-snapshot {snapshot.file} belongs to one run; PATH has {len(runs)}: give one")
    return [replace(runs[0], memory_snapshot=snapshot)]
