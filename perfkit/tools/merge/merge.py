"""Merge all ranks of a run into one timeline: link the ranks by their summaries, then write rank by rank."""

import gzip
import os
from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import numpy as np
from msgspec import Struct, structs

from perfkit.base.formatting import plural
from perfkit.base.parsing import Ranges
from perfkit.engine.kinds.kernel_rules import add_rule_uses, unused_rules
from perfkit.engine.ranks.clock_alignment import aligned
from perfkit.engine.run_context import RunContext
from perfkit.engine.runs.jobs import check_one_job
from perfkit.engine.runs.rank_reports import NamedSummary
from perfkit.engine.runs.run_layout import RunLayout
from perfkit.engine.step_graph.run_graph import build_run_graph
from perfkit.errors import StoreError, UsageError
from perfkit.pipeline.load_run import load_summaries
from perfkit.pipeline.scheduler import Progress
from perfkit.pipeline.summarize import Options
from perfkit.records.common import Finding
from perfkit.records.cross_rank import HostClock
from perfkit.records.manifest import RunManifest
from perfkit.records.rank import RankReport
from perfkit.report.output_files import writing_bytes
from perfkit.report.wording.findings import word, word_all
from perfkit.storage.discovery import RunLocation, find_run, refuse_pipe
from perfkit.storage.filenames import PERFETTO_SUFFIXES
from perfkit.storage.kernel_rules_file import KernelRules, load_kernel_rules
from perfkit.storage.run_folder import read_manifest
from perfkit.tools.merge.chrome_writer import ChromeWriter
from perfkit.tools.merge.collective_links import RunLinks, Spans, find_links
from perfkit.tools.merge.execution_traces import SUFFIX, write_execution_traces
from perfkit.tools.merge.perfetto_writer import PerfettoWriter
from perfkit.tools.merge.rank_tracks import Plan, Rank, build_rank_tracks
from perfkit.tools.merge.slices import path_slices
from perfkit.tools.merge.tracks import RankTracks, Track, coordinate, rank_name
from perfkit.trace.lanes import MOST_LANES
from perfkit.trace.reader import read_trace

JSON_SUFFIXES: Final = (".json", ".json.gz")
_DAY_NS: Final = 86_400 * 10**9
_APART_NS: Final = 30 * _DAY_NS
"""Ranks of a run do not begin this far apart: one of their clocks does not count from the epoch."""
_LEVEL: Final = 3


class Merged(Struct, frozen=True, kw_only=True):
    """What `merge` has written."""

    ranks: int
    slices: int
    bytes: int
    latest_rank: int | None = None
    """The rank that delays the others longest, in all that is shown; None if none does."""
    warnings: list[str]
    """Caveats for the reader: damaged traces, skipped events, clocks that could not be aligned."""


class _Run(NamedTuple):
    """The ranks of a run and the links between them, from the summaries of its traces."""

    ranks: list[Rank]
    links: RunLinks
    paths: dict[int, Spans]
    """The critical path by rank, by the reference clock."""
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
    data_marker: str | None = None,
    kernel_rules: KernelRules = None,
    max_bytes: int | None = None,
    progress: Progress | None = None,
) -> Merged:
    """Write all ranks of a run to one timeline, or the graph of its steps to an execution trace per rank (`.et`).

    Args:
        path: a run folder, or a trace.
        output: the file to write; its suffix selects the format.
        ranks: the ranks to show, such as `0,7` or `0-3`; None for all.
        steps: the steps to show, such as `12-14`; None for all.
        step_marker: a regular expression for the names of the annotations that mark steps, instead of `ProfilerStep#N`.
        data_marker: as in `analyze`, as is the next.
        kernel_rules: rules for the names of device kernels, or the file that contains them.
        max_bytes: limit for the decompressed text of a trace.
        progress: called with the bytes of finished traces, and of all.

    Raises:
        TraceError: there is no such trace, or one cannot be read.
        UsageError: no such rank or step, several runs or jobs in the folder, or an unknown suffix.
        StoreError: the file cannot be written.
    """
    path, output = Path(path), Path(output)
    check_suffix(output)
    rules = load_kernel_rules(kernel_rules)
    wanted_ranks = Ranges("--ranks", ranks) if ranks is not None else None
    wanted_steps = Ranges("--steps", steps) if steps is not None else None
    refuse_pipe(path, "merging")
    location = find_run(path)
    if os.path.realpath(output) in map(os.path.realpath, location.traces):  # unlike `resolve`, of any links
        raise UsageError(f"-o {output} is one of the traces: give the timeline another name")
    options = Options(step_marker=step_marker, data_marker=data_marker, max_bytes=max_bytes, kernel_rules=rules)
    if output.suffix.lower() == SUFFIX:
        if wanted_ranks is not None:
            raise UsageError(f"--ranks: execution traces ({SUFFIX}) have all ranks, whose collectives need each other")
        return _execution_traces(location, output, options, wanted_steps, progress)
    run = _plan_run(location, options, wanted_ranks, wanted_steps, progress)
    slices, out_of_range, crossing = 0, Tally[str](), Tally[str]()
    with _open(output, run.base_ns) as writer:
        for part in _parts(run, options, wanted_steps):
            written = writer.write(part)
            slices += written
            out_of_range[part.name] += part.out_of_range
            crossing[part.name] += sum(len(t.start_ns) for t in part.tracks if isinstance(t, Track)) - written
            del part  # before the next is read
    warnings = [*run.warnings, *_skipped_warnings(out_of_range, crossing)]
    return Merged(
        ranks=len(run.ranks),
        slices=slices,
        bytes=output.stat().st_size,
        latest_rank=run.links.latest_rank,
        warnings=warnings,
    )


def _execution_traces(
    location: RunLocation, output: Path, options: Options, steps: Ranges | None, progress: Progress | None
) -> Merged:
    """Write the graph of the run's steps; the slices are its nodes."""
    summaries, lost = load_summaries(location, options, True, progress)
    manifest = _manifest(location)
    check_one_job(location.path, summaries, manifest is not None)
    context = RunContext(summaries, manifest)
    matched, clocks = context.matched
    graph = build_run_graph(context.grouped, matched, clocks, None).graph
    if graph is None:
        raise UsageError(f"-o {output}: the ranks of {location.path} have no steps in common to write a graph of")
    if steps is not None:
        steps.check({step for step in graph.steps if step is not None}, "step of the graph")
    wanted = np.array([steps is None or (step is not None and step in steps) for step in graph.steps])
    written = write_execution_traces(graph, output, wanted)
    warnings = [finding.message for finding in lost if finding.severity != "info"]
    return Merged(ranks=len(graph.ranks), slices=written.nodes, bytes=written.bytes, warnings=warnings)


def _skipped_warnings(out_of_range: Mapping[str, int], crossing: Mapping[str, int]) -> Iterator[str]:
    """Yield a warning for each rank with events that are not on the timeline."""
    for name, count in out_of_range.items():
        if count:
            yield f"{name}: skipped {plural(count, 'event')}, days before or months after the run"
        if crossing[name]:
            slices = plural(crossing[name], "slice")
            yield f"{name}: skipped {slices} that need more than {MOST_LANES} lanes per thread"


def check_suffix(output: Path) -> None:
    """Raise UsageError unless the suffix of a file is that of an output format."""
    if not output.name.lower().endswith((*PERFETTO_SUFFIXES, *JSON_SUFFIXES, SUFFIX)):
        known = ", ".join((*PERFETTO_SUFFIXES, *JSON_SUFFIXES, SUFFIX))
        raise UsageError(f"-o {output}: the file name suffix is not a known output format; use {known}")


# ---- links between ranks -------------------------------------------------------------------------------------------


def _plan_run(
    location: RunLocation, options: Options, wanted: Ranges | None, steps: Ranges | None, progress: Progress | None
) -> _Run:
    summaries, lost = load_summaries(location, options, True, progress)
    manifest = _manifest(location)
    check_one_job(location.path, summaries, manifest is not None)
    context = RunContext(summaries, manifest)
    grouped, layout, (matched, host_clocks) = context.grouped, context.layout, context.matched
    reports = _select_ranks(grouped.reports, location, wanted, steps)
    reports.sort(key=lambda report: _order(report, layout.sizes))
    found = build_run_graph(grouped, matched, host_clocks, None)
    paths = path_slices(found.graph, steps) if found.graph and not found.graph.is_one_thread else {}
    clocks = {rank: clock for clock in host_clocks for rank in clock.ranks}
    shift_ns = _clock_shifts(reports, clocks)
    paths = {rank: own for rank, own in paths.items() if rank not in shift_ns}
    for rank, by_ns in shift_ns.items():
        clocks[rank] = structs.replace(clocks[rank], offset_ns=(clocks[rank].offset_ns or 0) + by_ns)
    ranks = [_rank(place, report, location, clocks, layout) for place, report in enumerate(reports)]
    shown = np.array([steps is None or step in steps for step in matched.step.tolist()], np.bool_)
    links = find_links(matched, [rank.number for rank in ranks if rank.number is not None], shown, clocks)
    begins = [_aligned(rank.clock, report.steps[0].start_ns) for rank, report in zip(ranks, reports, strict=True)]
    # Viewers that store times as floats resolve nanoseconds up to a hundred days from there.
    base_ns = (min(begins) - _DAY_NS) // _DAY_NS * _DAY_NS
    damage = _damage(summaries, {file.name for rank in ranks for file in rank.files})
    unused = [one.message for one in word_all(unused_rules(add_rule_uses(one.summary.rule_uses for one in summaries)))]
    unread = [finding.message for finding in lost if finding.severity == "error"]
    warnings = [*unread, *damage, *_warnings(word_all(grouped.findings), ranks, shift_ns), *unused]
    return _Run(ranks, links, paths, base_ns, warnings)


def _select_ranks(
    reports: list[RankReport], location: RunLocation, wanted: Ranges | None, steps: Ranges | None
) -> list[RankReport]:
    without_rank = [report for report in reports if report.rank is None]
    if without_rank and len(reports) > 1:
        file = next(file for file in location.traces if file.name == without_rank[0].traces[0])
        raise UsageError(f"{file} has no rank in its header or name: name the file rank<N>.json.gz")
    if wanted is not None:
        wanted.check({report.rank for report in reports if report.rank is not None}, "rank")
    selected = [report for report in reports if wanted is None or (report.rank is not None and report.rank in wanted)]
    if steps is not None:
        steps.check({step.step for report in selected for step in report.steps if step.step is not None}, "step")
    return selected


def _manifest(location: RunLocation) -> RunManifest | None:
    """Return the run's manifest; None if it has none, or if it cannot be read: a timeline needs nothing of it."""
    if not location.has_manifest:
        return None
    with suppress(StoreError):
        return read_manifest(location.path)
    return None


def _order(report: RankReport, mesh: Mapping[str, int]) -> tuple[list[int], int]:
    number = -1 if report.rank is None else report.rank
    return list(coordinate(number, mesh).values()), number


def _rank(
    place: int, report: RankReport, location: RunLocation, clocks: Mapping[int, HostClock], layout: RunLayout
) -> Rank:
    files = {file.name: file for file in location.traces}
    return Rank(
        place=place,
        number=report.rank,
        name=report.traces[0] if report.rank is None else rank_name(report.rank, layout.sizes),
        files=[files[name] for name in report.traces],
        steps=report.steps,
        clock=clocks.get(report.rank) if report.rank is not None else None,
        stage=layout.stage_of.get(report.rank) if report.rank is not None else None,
    )


def _clock_shifts(reports: list[RankReport], clocks: Mapping[int, HostClock]) -> dict[int, int]:
    """Return shifts for ranks whose clocks do not count from the epoch, so that they begin with the other ranks.

    The ranks of one host are shifted together.
    """
    begins = {r.rank: _aligned(clocks[r.rank], r.steps[0].start_ns) for r in reports if r.rank is not None}
    if not begins:
        return {}
    median = sorted(begins.values())[len(begins) // 2]
    far_off = {rank for rank, begin in begins.items() if abs(begin - median) > _APART_NS}
    start = min(begin for rank, begin in begins.items() if rank not in far_off)
    return {rank: start - min(begins[other] for other in clocks[rank].ranks if other in far_off) for rank in far_off}


def _aligned(clock: HostClock | None, time_ns: int) -> int:
    return int(aligned(clock, np.array([time_ns]))[0]) if clock else time_ns


def _damage(summaries: Iterable[NamedSummary], shown: Set[str]) -> Iterator[str]:
    """Yield what is lost of the traces that are on the timeline: its end looks like the end of the run otherwise."""
    for named in summaries:
        for finding in named.summary.findings:
            if finding.code == "damaged_trace" and named.file in shown:
                yield f"{named.file}: {word(finding).message}"


def _warnings(findings: list[Finding], ranks: list[Rank], shift_ns: Mapping[int, int]) -> Iterator[str]:
    for finding in findings:
        if finding.severity == "error":
            yield f"{finding.file}: {finding.message}"
    for rank in ranks:
        if rank.number is not None and rank.number in shift_ns:
            days = round(abs(shift_ns[rank.number]) / _DAY_NS)
            yield f"{rank.name}: its clock is {days:,} days off the others; it is shown as beginning with them"
        elif rank.clock and rank.clock.offset_ns is None:
            host = rank.clock.host or "its host"
            yield f"{rank.name}: no collective links the clock of {host} to the first rank's; it is shown unaligned"


# ---- rank by rank --------------------------------------------------------------------------------------------------


def _parts(run: _Run, options: Options, steps: Ranges | None) -> Iterator[RankTracks]:
    places = {rank.number: rank.place for rank in run.ranks}
    ends = {arrow: (places[first], places[last]) for arrow, (first, last) in run.links.arrow_ends.items()}
    next_arrow = len(ends) + 1
    for rank in run.ranks:
        links = run.links.by_rank.get(rank.number) if rank.number is not None else None
        path = run.paths.get(0 if rank.number is None else rank.number)
        arrows = dict(links.arrows) if links else {}
        for file in rank.files:
            trace = read_trace(file, max_bytes=options.max_bytes, detailed=True)
            plan = Plan(
                rank=rank,
                options=options,
                steps=steps,
                links=links,
                path=path,
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
            links = path = None
            yield part
            del part  # before the next is read


@contextmanager
def _open(output: Path, base_ns: int) -> Iterator[PerfettoWriter | ChromeWriter]:
    """Open a writer for the format of the file's suffix; the file appears only if all goes well."""
    name = output.name.lower()
    kind = PerfettoWriter if name.endswith(PERFETTO_SUFFIXES) else ChromeWriter
    with writing_bytes(output) as plain, _stream(plain, name.endswith(".gz")) as stream:
        writer = kind(stream, base_ns)
        yield writer
        writer.close()


@contextmanager
def _stream(plain: BinaryIO, compressed: bool) -> Iterator[BinaryIO]:
    if not compressed:
        yield plain
        return
    with gzip.GzipFile(filename="", mode="wb", fileobj=plain, compresslevel=_LEVEL, mtime=0) as stream:
        yield stream  # type: ignore[misc]
