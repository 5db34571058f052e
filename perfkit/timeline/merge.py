"""All ranks of a run into one file: what ties them together comes from summaries; then rank by rank is written."""

import gzip
from collections import Counter as Tally
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import numpy as np
from msgspec import Struct, structs

from perfkit.analysis.cross_rank.clock_alignment import align, aligned
from perfkit.analysis.cross_rank.matching import match
from perfkit.analysis.per_rank.summary import check_step_marker
from perfkit.analysis.per_run.report_builder import NamedSummary, group_by_rank
from perfkit.errors import StoreError, TraceError, UsageError
from perfkit.executors import ExecutorOptions
from perfkit.pipeline.scheduler import Progress, TraceScheduler
from perfkit.pipeline.summarize import Options, task_for
from perfkit.schema.common import Finding
from perfkit.schema.cross_rank import HostClock
from perfkit.schema.rank import RankReport
from perfkit.storage import cache as results
from perfkit.storage.discovery import RunLocation, find_run
from perfkit.timeline.chrome_writer import ChromeWriter
from perfkit.timeline.collective_links import RunLinks, find_links
from perfkit.timeline.perfetto_writer import PerfettoWriter
from perfkit.timeline.rank_tracks import Plan, build_rank_tracks
from perfkit.timeline.tracks import RankTracks, Track, Writer
from perfkit.trace.lanes import MOST_LANES
from perfkit.trace.reader import read_trace
from perfkit.util.atomic_write import atomic_write
from perfkit.util.number_ranges import Ranges

PERFETTO_SUFFIXES: Final = (".pftrace", ".perfetto-trace")
JSON_SUFFIXES: Final = (".json", ".json.gz")
_DAY_NS: Final = 86_400 * 10**9
_APART_NS: Final = 30 * _DAY_NS
"""Ranks of a run do not begin so far apart: a clock among theirs counts from something else than the epoch."""
_LEVEL: Final = 3


class Merged(Struct, frozen=True, kw_only=True):
    """What was written."""

    ranks: int
    slices: int
    bytes: int
    warnings: list[str]
    """What the reader of the timeline must know: what is left out, clocks that could not be aligned."""


class _Rank(NamedTuple):
    """A rank that is shown."""

    place: int
    number: int | None
    name: str
    files: list[Path]
    clock: HostClock | None


class _Run(NamedTuple):
    """What the summaries of a run's traces say."""

    ranks: list[_Rank]
    met: RunLinks
    base_ns: int
    """The instant that is zero on the timeline."""
    warnings: list[str]


def merge(
    path: str | Path,
    output: str | Path,
    *,
    ranks: str | None = None,
    steps: str | None = None,
    step_marker: str | None = None,
    max_bytes: int | None = None,
    progress: Progress | None = None,
) -> Merged:
    """Write all ranks of a run to one timeline.

    Args:
        path: a run folder, or a trace.
        output: the file to write: its suffix says the format.
        ranks: those to show, such as `0,7` or `0-3`; all if None.
        steps: likewise.
        step_marker: a regular expression for the names of the annotations that mark steps, instead of `ProfilerStep#N`.
        max_bytes: how much text a trace may hold, decompressed.
        progress: called with the bytes of traces that are done, and of all.

    Raises:
        TraceError: there is no such trace, or one cannot be read.
        UsageError: there is no such rank or step, the folder holds several runs, or the suffix is none.
        StoreError: the file cannot be written.
    """
    path, output = Path(path), Path(output)
    check_suffix(output)
    check_step_marker(step_marker)
    wanted_ranks = Ranges("--ranks", ranks) if ranks is not None else None
    wanted_steps = Ranges("--steps", steps) if steps is not None else None
    location = find_run(path)
    if output.resolve() in {file.resolve() for file in location.traces}:
        raise UsageError(f"-o {output} is one of the traces: give the timeline another name")
    options = Options(step_marker=step_marker, max_bytes=max_bytes)
    run = _looked_at(location, options, wanted_ranks, wanted_steps, progress)
    slices, far, crossing = 0, Tally[str](), Tally[str]()
    with _open(output, run.base_ns) as writer:
        for part in _parts(run, options, wanted_steps):
            written = writer.write(part)
            slices += written
            far[part.name] += part.out_of_range
            crossing[part.name] += sum(len(t.start_ns) for t in part.tracks if isinstance(t, Track)) - written
            del part  # before the next is read
    warnings = [*run.warnings, *_left_out(far, crossing)]
    return Merged(ranks=len(run.ranks), slices=slices, bytes=output.stat().st_size, warnings=warnings)


def _left_out(far: Mapping[str, int], crossing: Mapping[str, int]) -> Iterator[str]:
    """Say of each rank how much of it is not on the timeline, and why."""
    for name, count in far.items():
        if count:
            yield f"{name}: left out {_counted(count, 'event')}, days too early or months too late for the run"
        if crossing[name]:
            slices = _counted(crossing[name], "slice")
            yield f"{name}: left out {slices} that would take a thread more than {MOST_LANES} lanes to show"


def _counted(count: int, what: str) -> str:
    return f"1 {what}" if count == 1 else f"{count:,} {what}s"


def check_suffix(output: Path) -> None:
    """Raise UsageError unless the suffix of a file says a format."""
    if not output.name.lower().endswith((*PERFETTO_SUFFIXES, *JSON_SUFFIXES)):
        raise UsageError(
            f"-o {output}: the suffix says no format; use {', '.join((*PERFETTO_SUFFIXES, *JSON_SUFFIXES))}"
        )


# ---- what ties the ranks together ----------------------------------------------------------------------------------


def _looked_at(
    location: RunLocation,
    options: Options,
    wanted: Ranges | None,
    steps: Ranges | None,
    progress: Progress | None,
) -> _Run:
    found, lost = _summaries(location, options, progress)
    known = group_by_rank(found)
    hosts = {report.rank: report.host for report in known.reports if report.rank is not None}
    reports = _chosen(known.reports, location, wanted, steps)
    matched = match(known.calls)
    clocks = {rank: clock for clock in (align(matched, hosts) if hosts else ()) for rank in clock.ranks}
    moved_ns = _moves(reports, clocks)
    clocks |= {rank: _moved(clocks[rank], by_ns) for rank, by_ns in moved_ns.items()}
    ranks = [_rank(place, report, location, clocks) for place, report in enumerate(reports)]
    shown = np.array([steps is None or step in steps for step in matched.step.tolist()], np.bool_)
    met = find_links(matched, [rank.number for rank in ranks if rank.number is not None], shown, clocks)
    begins = [_aligned(rank.clock, report.steps[0].start_ns) for rank, report in zip(ranks, reports, strict=True)]
    # Viewers that keep times as floats hold nanoseconds for a hundred days from there.
    base_ns = (min(begins) - _DAY_NS) // _DAY_NS * _DAY_NS
    return _Run(ranks, met, base_ns, [*lost, *_warnings(known.findings, ranks, moved_ns)])


def _summaries(
    location: RunLocation, options: Options, progress: Progress | None
) -> tuple[list[NamedSummary], list[str]]:
    """Return the summaries of a run's traces, and why others are lost."""
    tasks = [task_for(file, options, cached=True) for file in location.traces]
    outcomes = TraceScheduler(tasks, progress).done(None, ExecutorOptions())
    results.prune(task.file for task, outcome in zip(tasks, outcomes, strict=True) if outcome.fresh)
    lost = [done.lost for done in outcomes if done.lost]
    named = zip(location.traces, outcomes, strict=True)
    found = [NamedSummary(file.name, done.summary) for file, done in named if done.summary]
    if not found:
        raise TraceError(lost[0].message)
    return found, [finding.message for finding in lost if finding.severity == "error"]


def _chosen(
    reports: list[RankReport], location: RunLocation, wanted: Ranges | None, steps: Ranges | None
) -> list[RankReport]:
    """Return what is known of the ranks that are to be shown."""
    nameless = [report for report in reports if report.rank is None]
    if nameless and len(reports) > 1:
        file = next(file for file in location.traces if file.name == nameless[0].traces[0])
        raise UsageError(f"{file} says nowhere which rank wrote it: name the file rank<N>.json.gz")
    if wanted is not None:
        wanted.check({report.rank for report in reports if report.rank is not None}, "rank")
    chosen = [report for report in reports if wanted is None or (report.rank is not None and report.rank in wanted)]
    if steps is not None:
        steps.check({step.step for report in chosen for step in report.steps if step.step is not None}, "step")
    return chosen


def _rank(place: int, report: RankReport, location: RunLocation, clocks: Mapping[int, HostClock]) -> _Rank:
    files = {file.name: file for file in location.traces}
    return _Rank(
        place=place,
        number=report.rank,
        name=report.traces[0] if report.rank is None else f"rank {report.rank}",
        files=[files[name] for name in report.traces],
        clock=clocks.get(report.rank) if report.rank is not None else None,
    )


def _moves(reports: list[RankReport], clocks: Mapping[int, HostClock]) -> dict[int, int]:
    """Return by how much to move ranks whose clocks do not count from where the others' do: they begin with these.

    The ranks of one host are moved together.
    """
    begins = {r.rank: _aligned(clocks[r.rank], r.steps[0].start_ns) for r in reports if r.rank is not None}
    if not begins:
        return {}
    middle = sorted(begins.values())[len(begins) // 2]
    away = {rank for rank, begin in begins.items() if abs(begin - middle) > _APART_NS}
    start = min(begin for rank, begin in begins.items() if rank not in away)
    return {rank: start - min(begins[other] for other in clocks[rank].ranks if other in away) for rank in away}


def _moved(clock: HostClock, by_ns: int) -> HostClock:
    return structs.replace(clock, offset_ns=(clock.offset_ns or 0) + by_ns)


def _aligned(clock: HostClock | None, time_ns: int) -> int:
    return int(aligned(clock, np.array([time_ns]))[0]) if clock else time_ns


def _warnings(findings: list[Finding], ranks: list[_Rank], moved_ns: Mapping[int, int]) -> Iterator[str]:
    for finding in findings:
        if finding.severity == "error":
            yield f"{finding.file}: {finding.message}"
    for rank in ranks:
        if rank.number is not None and rank.number in moved_ns:
            days = round(abs(moved_ns[rank.number]) / _DAY_NS)
            yield f"{rank.name}: its clock is {days:,} days from the others'; it is shown as if it had begun with them"
        elif rank.clock and rank.clock.offset_ns is None:
            host = rank.clock.host or "its host"
            yield f"{rank.name}: no collective ties the clock of {host} to that of the first rank; it is shown as it is"


# ---- rank by rank --------------------------------------------------------------------------------------------------


def _parts(run: _Run, options: Options, steps: Ranges | None) -> Iterator[RankTracks]:
    places = {rank.number: rank.place for rank in run.ranks}
    ends = {arrow: (places[first], places[last]) for arrow, (first, last) in run.met.arrow_ends.items()}
    next_arrow = len(ends) + 1
    for rank in run.ranks:
        meetings = run.met.by_rank.get(rank.number) if rank.number is not None else None
        arrows = dict(meetings.arrows) if meetings else {}
        for file in rank.files:
            trace = read_trace(file, max_bytes=options.max_bytes, detailed=True)
            plan = Plan(
                place=rank.place,
                name=rank.name,
                clock=rank.clock,
                steps=steps,
                step_marker=options.step_marker,
                meetings=meetings,
                arrows=arrows,
                arrow_ends=ends,
                first_launch=next_arrow,
                base_ns=run.base_ns,
            )
            part = build_rank_tracks(trace, plan)
            del trace
            next_arrow += sum(
                int(np.count_nonzero(track.launch > 0)) for track in part.tracks if isinstance(track, Track)
            )
            meetings = None
            yield part
            del part  # before the next is read


@contextmanager
def _open(output: Path, base_ns: int) -> Iterator[Writer]:
    """Give the writer for the format that the file's suffix says; the file is there when all was well."""
    name = output.name.lower()
    kind = PerfettoWriter if name.endswith(PERFETTO_SUFFIXES) else ChromeWriter
    _make_folder(output.parent)
    with atomic_write(output.resolve()) as temporary, _stream(temporary, name.endswith(".gz")) as stream:
        writer = kind(stream, base_ns)
        yield writer
        writer.close()


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot write into {folder}: {error.strerror or error}") from error


@contextmanager
def _stream(path: Path, packed: bool) -> Iterator[BinaryIO]:
    with path.open("wb") as plain:
        if not packed:
            yield plain
            return
        with gzip.GzipFile(filename="", mode="wb", fileobj=plain, compresslevel=_LEVEL, mtime=0) as stream:
            yield stream  # type: ignore[misc]
