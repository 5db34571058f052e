"""Reads what a run folder has of all steps: the monitor's logs, as a table and summed up, hangs, and step times."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from perfkit.errors import StoreError, TraceError
from perfkit.pipeline.run_report import with_findings
from perfkit.records.common import Observation
from perfkit.records.manifest import RankRecord, RunManifest
from perfkit.records.monitor import CHECK, COLUMNS, KIND_NUMBERS, LOSS_GIVEN, UNKNOWN, StepLogHeader
from perfkit.records.per_run.monitor import MonitorSummary
from perfkit.records.run import RunReport
from perfkit.report.wording.findings_monitor import step_time_of_logs
from perfkit.storage.hang_log import observe_hangs
from perfkit.storage.run_folder import MANIFEST_NAME, read_manifest
from perfkit.storage.step_log.reader import MOST_RECORDS as READ_RECORDS
from perfkit.storage.step_log.reader import StepLogReader, find_step_logs

if TYPE_CHECKING:
    from pandas import DataFrame

    from perfkit.subjects.monitor.summarize import BadLosses, LogFacts
    from perfkit.subjects.monitor.table import RankSteps

Records = NDArray[np.void]

MOST_RECORDS: Final = 2_000_000
"""Records of a log that are read, damaged ones included: a log of the monitor's has fewer, a file from elsewhere may
have any number."""
_TRIES: Final = 3
"""Times that a log is read which is rolled up meanwhile."""


class _Log(NamedTuple):
    """What a report needs of one rank's log."""

    steps: "RankSteps"
    world_size: int
    span_ns: tuple[int, int]
    """Begin of the first step, end of the last."""
    peak_allocated_bytes: int
    peak_rss_bytes: int
    """-1 if unknown."""
    losses: tuple[float, float] | None
    """The first and the last that are numbers."""
    bad_losses: "BadLosses | None"
    is_cut: bool
    damaged: int
    """Records that were left out."""


class _Content(NamedTuple):
    """What is in a log."""

    records: Records
    header: StepLogHeader | None
    damaged: int
    is_cut: bool


def steps(run: str | Path) -> "DataFrame":
    """Return what the monitor logged, one row per rank and step, in this order.

    The columns are `rank`, `rolled_up` and those of the log (`docs/monitor.md`) without `check`. `rolled_up` marks rows
    that stand for `steps` > 1 steps from `step` on, as older ones of a long run do. Times are integer nanoseconds where
    they are known on all rows, otherwise floats with NaN.

    Args:
        run: the run's folder.

    Raises:
        TraceError: the folder has no log of the monitor.
        StoreError: a log cannot be read.
    """
    import pandas as pd

    logs = find_step_logs(Path(run))
    if not logs:
        raise TraceError(f"{run}: no log of the monitor here (rank<R>.steps); record one with `perfkit run --monitor`")
    records = {rank: _read(path).records for rank, path in logs.items()}
    merged = np.concatenate(list(records.values()))
    ranks = np.repeat(list(records), [len(one) for one in records.values()])
    columns = {column.name: _known(merged[column.name], column.unknown == "-1") for column in COLUMNS}
    del columns[CHECK]
    return pd.DataFrame({"rank": ranks, "rolled_up": merged["steps"] > 1, **columns})


def with_monitor(run: RunReport) -> RunReport:
    """Return a run with the analysis of the logs in its folder."""
    folder = Path(run.path)
    try:
        logs = find_step_logs(folder) if folder.is_dir() else {}
    except StoreError:  # a folder that vanished: the run is analysed all the same
        return run
    if not logs:
        return run
    summary, findings = _summary(logs)
    if summary is None:
        return with_findings(run, findings)
    from perfkit.subjects.monitor.summarize import monitor_findings

    seen = with_findings(replace(run, monitor=summary), [*findings, *monitor_findings(summary)])
    return seen if run.ranks else _without_traces(seen, summary)


def _without_traces(run: RunReport, summary: MonitorSummary) -> RunReport:
    """Return a run of which there are only logs, with the step time in place of a verdict."""
    logged = step_time_of_logs(summary)
    sentence = f"{run.verdict.sentence}; {logged}" if run.state == "failed" else logged
    kept = [finding for finding in run.findings if finding.code != "no_traces"]
    size = max(run.world_size, summary.world_size)
    return replace(run, verdict=replace(run.verdict, sentence=sentence), world_size=size, findings=kept)


def _summary(logs: dict[int, Path]) -> tuple[MonitorSummary | None, list[Observation]]:
    from perfkit.subjects.monitor.summarize import not_a_number, summarize
    from perfkit.subjects.monitor.table import align

    read: dict[int, _Log] = {}
    errors: list[str] = []
    damaged: dict[str, int] = {}
    for rank, path in logs.items():
        try:
            content = _read(path)
        except StoreError as error:
            errors.append(str(error))
            continue
        if content.damaged:
            damaged[path.name] = content.damaged
        if (log := _log(content)) is not None:
            read[rank] = log
    findings = list(_unread(errors, [logs[rank].name for rank, log in read.items() if log.is_cut], damaged))
    if bad := {rank: log.bad_losses for rank, log in read.items() if log.bad_losses is not None}:
        findings.append(not_a_number(bad, len(read)))
    table = align({rank: log.steps for rank, log in read.items()})
    return (None if table is None else summarize(table, _facts(list(read.values())))), findings


def _unread(errors: Sequence[str], cut: Sequence[str], damaged: Mapping[str, int]) -> Iterator[Observation]:
    if errors:
        yield Observation("monitor_log_unread", {"error": errors[0], "logs": len(errors)})
    if cut:
        yield Observation("monitor_log_unread", {"file": cut[0], "logs": len(cut), "records": MOST_RECORDS}, "cut")
    if damaged:
        values = {"file": next(iter(damaged)), "logs": len(damaged), "records": sum(damaged.values())}
        yield Observation("monitor_log_unread", values, "damaged")


def _facts(logs: Sequence[_Log]) -> "LogFacts":
    from perfkit.subjects.monitor.summarize import LogFacts

    losses = next((log.losses for log in logs if log.losses), None)
    allocated, resident = max(log.peak_allocated_bytes for log in logs), max(log.peak_rss_bytes for log in logs)
    return LogFacts(
        world_size=max(log.world_size for log in logs),
        span_ns=max(log.span_ns[1] for log in logs) - min(log.span_ns[0] for log in logs),
        peak_allocated_bytes=allocated if allocated >= 0 else None,
        peak_rss_bytes=resident if resident >= 0 else None,
        first_loss=losses[0] if losses else None,
        last_loss=losses[1] if losses else None,
    )


def _log(content: _Content) -> _Log | None:
    """Return what is needed of a log; None if it has no record yet."""
    records, header, damaged, is_cut = content
    if header is None or not len(records):
        return None
    from perfkit.subjects.monitor.summarize import find_bad_losses
    from perfkit.subjects.monitor.table import rank_steps

    begins, durations = records["begin_ns"], np.maximum(records["step_ns"], 0)
    given = records["loss"][(records["flags"] & LOSS_GIVEN) != 0]
    finite = given[np.isfinite(given)]
    return _Log(
        rank_steps(records, header.device),
        header.world_size,
        (int(begins.min()), int((begins.astype(np.float64) + durations).max())),
        int(records["peak_allocated_bytes"].max()),
        int(records["peak_rss_bytes"].max()),
        (float(finite[0]), float(finite[-1])) if len(finite) else None,
        find_bad_losses(records),
        is_cut,
        damaged,
    )


def _read(path: Path) -> _Content:
    """Return what is in a log, of its records at most `MOST_RECORDS`, damaged ones included."""
    for _ in range(_TRIES):
        content = _read_once(StepLogReader(path))
        if content is not None:
            return content
    raise StoreError(f"{path} was rolled up while it was read: read it again")


def _read_once(reader: StepLogReader) -> _Content | None:
    """Return what is in a log; None if it was rolled up meanwhile."""
    parts: list[Records] = []
    total = damaged = 0
    while total < MOST_RECORDS:
        found = reader.read_new(min(READ_RECORDS, MOST_RECORDS - total))
        if found.restarted and parts:
            return None
        parts.append(found.records)
        damaged += found.damaged
        total += len(found.records) + found.damaged
        if not (len(found.records) or found.damaged):
            break
    return _Content(np.concatenate(parts), reader.header, damaged, is_cut=total >= MOST_RECORDS)


def _known(values: NDArray[np.generic], has_unknown: bool) -> NDArray[np.generic]:
    """Return a column with NaN in place of -1, if there is any."""
    if not has_unknown or not bool((values == -1).any()):
        return values
    return np.where(values == -1, np.nan, values.astype(np.float64))


# ---- what happened beside the usual steps: hangs after which the run went on, stalls ---------------------------------


def with_incidents(run: RunReport) -> RunReport:
    """Return a run with a finding for what happened in it."""
    folder = Path(run.path)
    found = [*observe_hangs(folder), *(stall_findings(folder) if run.monitor is None else ())]
    return with_findings(run, found) if found else run


def stall_findings(folder: Path) -> Iterator[Observation]:
    """Yield what the step times in `run.json` show of slow steps, by the tests for those of the monitor's logs."""
    if not (folder / MANIFEST_NAME).is_file():
        return
    try:
        manifest = read_manifest(folder)
    except StoreError:  # which is a finding already
        return
    from perfkit.subjects.monitor.summarize import find_slow_steps
    from perfkit.subjects.monitor.table import align

    table = align({one.rank: _steps(one, manifest) for one in manifest.ranks})
    found = None if table is None else find_slow_steps(table)
    if found is not None and found.slow:
        yield Observation("slow_steps", {"steps": found.slow, "count": found.slow_count})


def _steps(record: RankRecord, manifest: RunManifest) -> "RankSteps":
    """Return the steps of a rank as its log would have them."""
    from perfkit.subjects.monitor.table import COLUMNS as STEP_COLUMNS
    from perfkit.subjects.monitor.table import RankSteps

    count = len(record.step_wall_ns)
    kinds = [KIND_NUMBERS[kind] for kind in manifest.step_kinds[:count]]
    columns = {name: np.full(count, UNKNOWN, np.float32) for name in STEP_COLUMNS}
    columns["kind"][: len(kinds)] = kinds
    columns["step_ns"] = columns["longest_ns"] = np.array(record.step_wall_ns, np.float32)
    columns["data_ns"][: len(record.load_ns)] = record.load_ns[:count]
    columns["longest_offset"] = np.zeros(count, np.float32)
    return RankSteps(np.arange(count), np.ones(count, np.int64), columns)
