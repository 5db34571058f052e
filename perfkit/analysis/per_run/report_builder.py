"""Build the report of a run from the summaries of its traces."""

from collections.abc import Container, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from perfkit.analysis.cross_rank.dimensions.summary import summarize_dimensions
from perfkit.analysis.cross_rank.efficiency import efficiency
from perfkit.analysis.cross_rank.findings import cross_rank_findings
from perfkit.analysis.cross_rank.matched_run import match_run
from perfkit.analysis.cross_rank.matching import MatchedCollectives
from perfkit.analysis.cross_rank.pipelines.bubbles import find_pipelines
from perfkit.analysis.cross_rank.summary import summarize_cross_rank
from perfkit.analysis.per_run.data_loading import data_loading
from perfkit.analysis.per_run.divided_work import divided_work
from perfkit.analysis.per_run.drawn_steps import linked_collectives
from perfkit.analysis.per_run.findings import run_findings
from perfkit.analysis.per_run.manifest_metrics import manifest_metrics
from perfkit.analysis.per_run.pauses import pauses_clauses, summarize_pauses
from perfkit.analysis.per_run.profiler_cost import profiler_cost
from perfkit.analysis.per_run.rank_reports import NamedSummary, Ranks, group_by_rank
from perfkit.analysis.per_run.roofline import roofline
from perfkit.analysis.per_run.run_graph import RunGraph, build_run_graph
from perfkit.analysis.per_run.run_layout import RunLayout, lay_out
from perfkit.analysis.per_run.verdict import add_caveats, classify_bottleneck, with_clauses
from perfkit.analysis.step_graph.graph import StepGraph
from perfkit.schema.common import Finding, worst_first
from perfkit.schema.cross_rank import CrossRankSummary, HostClock
from perfkit.schema.manifest import RunManifest
from perfkit.schema.per_run.dimensions import DimensionSummary
from perfkit.schema.per_run.pipeline import Pipeline
from perfkit.schema.rank import RankReport
from perfkit.schema.roofline.device_table import DevicePeaks
from perfkit.schema.run import Efficiency, ProfilerCost, RunReport


class BuiltRun(NamedTuple):
    """The report of a run, and the graph of its steps."""

    report: RunReport
    graph: StepGraph | None
    """None if there is none: `RunReport.findings` has the reason."""


def build_run(
    run: str,
    path: str,
    traces: Sequence[NamedSummary],
    manifest: RunManifest | None,
    rank: int | None,
    lost: list[Finding],
    device_table: Sequence[DevicePeaks] = (),
    page_steps: Container[int] | None = None,
) -> BuiltRun:
    """Build the report of one run, and the graph of its steps.

    Args:
        run: name of the run.
        path: its folder or file.
        traces: summaries of its traces; empty if it was not profiled or nothing could be read.
        manifest: the run's manifest; None for foreign traces.
        rank: rank of traces without one.
        lost: findings about traces that could not be read.
        device_table: peaks of devices, for the roofline.
        page_steps: the steps whose timelines a page has; None for those of `chosen_steps`.
    """
    grouped, layout = lay_out(group_by_rank(traces, rank), traces, manifest)
    ranks = grouped.reports
    world_size = layout.world_size or max((rank.rank for rank in ranks if rank.rank is not None), default=0) + 1
    no_device = any(finding.code == "no_device_events" for named in traces for finding in named.summary.findings)
    communicated = any(named.summary.communicated for named in traces)
    pipelines = find_pipelines(grouped.pipelines, grouped.calls, ranks, layout.mesh)
    known = _compare(grouped, layout, world_size, _Recorded(no_device, communicated), pipelines)
    matched, clocks, compared, efficient, dimensions, _ = known
    run_graph = build_run_graph(grouped, matched, clocks)
    loading = data_loading(ranks, manifest, _source(traces, manifest))
    cost = profiler_cost(manifest.ranks, manifest.step_kinds) if manifest else None
    findings = [*lost, *_findings(grouped, traces, manifest, known, world_size, run_graph, cost)]
    verdict = classify_bottleneck(ranks, loading, compared, efficient, cost, pipelines)
    pauses = summarize_pauses(grouped.pauses, grouped.calls, clocks, manifest)
    verdict = with_clauses(verdict, pauses_clauses(pauses, ranks))
    report = RunReport(
        run=run,
        path=path,
        workload=manifest.workload if manifest else None,
        source=_source(traces, manifest),
        world_size=world_size,
        state=manifest.state if manifest else None,
        verdict=add_caveats(verdict, findings, len(traces)),
        ranks=ranks,
        data_loading=loading,
        profiler_cost=cost,
        throughput=manifest.throughput if manifest else None,
        config=manifest.config if manifest else None,
        injections=manifest.injections if manifest else [],
        efficiency=efficient,
        cross_rank=compared,
        dimensions=dimensions,
        pipelines=pipelines,
        divided_work=divided_work(ranks, compared, manifest),
        pauses=pauses,
        critical_path=run_graph.path(ranks, world_size),
        roofline=roofline(ranks, _device_names(traces), manifest, device_table),
        findings=worst_first(findings),
        **(manifest_metrics(manifest) if manifest else {}),
    )
    report = replace(report, linked_collectives=linked_collectives(report, matched, clocks, page_steps))
    return BuiltRun(report, run_graph.graph)


class _Compared(NamedTuple):
    """The ranks of a run, compared with each other."""

    matched: MatchedCollectives
    clocks: list[HostClock]
    summary: CrossRankSummary | None
    """None with fewer than two ranks, or with ranks of several jobs."""
    efficiency: Efficiency | None
    dimensions: DimensionSummary | None
    partial: bool
    """Whether ranks of the run have no trace, or may have none."""


class _Recorded(NamedTuple):
    """What traces of a run have."""

    lost_device: bool
    """Some lack what the device did."""
    communication: bool
    """Some have collectives, or kernels that communicate."""


def _compare(
    grouped: Ranks, layout: RunLayout, world_size: int, recorded: _Recorded, pipelines: Sequence[Pipeline]
) -> _Compared:
    """Match the collectives of the ranks and derive what follows from it.

    Args:
        grouped: the ranks.
        layout: how they are laid out.
        world_size: number of ranks; if unknown, at least as many as the highest rank tells.
        recorded: what the traces have.
        pipelines: those of the run.
    """
    numbered = [rank for rank in grouped.reports if rank.rank is not None]
    known_size, mesh = layout
    hosts = {rank.rank: rank.host for rank in numbered if rank.rank is not None}
    matched, clocks = match_run(grouped.calls, hosts, mesh, known_size)
    several = len(grouped.calls) > 1
    summary = summarize_cross_rank(matched, grouped.reports, clocks, known_size, mesh, pipelines) if several else None
    partial = _partial(numbered, known_size, world_size, recorded.communication)
    # Of which job each of the traces is, is not known: ranks of different ones cannot be compared.
    factors = None if grouped.mixed else efficiency(numbered, grouped.calls, matched, partial, recorded.lost_device)
    dimensions = summarize_dimensions(matched, numbered, factors, known_size, partial is not None)
    return _Compared(matched, clocks, summary, factors, dimensions, partial is not None)


def _findings(
    grouped: Ranks,
    traces: Sequence[NamedSummary],
    manifest: RunManifest | None,
    known: _Compared,
    world_size: int,
    run_graph: RunGraph,
    cost: ProfilerCost | None,
) -> Iterator[Finding]:
    """Yield what has to be known of the run's figures, of the whole run first."""
    world_sizes = [manifest.world.world_size] if manifest else _header_world_sizes(traces)
    communicated = {named.file: named.summary.communicated for named in traces}
    yield from grouped.findings
    yield from run_findings(grouped.reports, communicated, world_sizes, world_size, manifest)
    if known.summary:
        profiler_ns = (cost.added_ns if cost else None) or 0
        begun_ns = {one.rank: one.steps[0].start_ns for one in grouped.reports if one.rank is not None and one.steps}
        yield from cross_rank_findings(
            known.matched,
            known.summary,
            known.efficiency,
            begun_ns,
            partial=known.partial,
            profiler_ns=profiler_ns,
        )
    yield from _graph_findings(run_graph, grouped.reports)
    for named in traces:
        yield from named.summary.findings


def _graph_findings(found: RunGraph, ranks: Sequence[RankReport]) -> list[Finding]:
    """Return why a run with known ranks has no critical path; where they are unknown, that is a finding already."""
    if found.reason is None or all(rank.rank is None for rank in ranks):
        return []
    message = f"no critical path over the ranks: {found.reason}"
    return [Finding(code="critical_path_unknown", severity="info", message=message)]


def _header_world_sizes(traces: Sequence[NamedSummary]) -> list[int]:
    return sorted({size for named in traces if (size := named.summary.header.world_size)})


def _device_names(traces: Sequence[NamedSummary]) -> list[str]:
    """Return what the traces call their devices, each once."""
    return sorted({name for named in traces for name in named.summary.header.device_names.values()})


def _source(traces: Sequence[NamedSummary], manifest: RunManifest | None) -> str | None:
    if manifest:
        return manifest.source
    return next((own.source for named in traces if (own := named.summary.header.perfkit)), None)


def _partial(ranks: Sequence[RankReport], known_size: int | None, world_size: int, communicated: bool) -> str | None:
    """Return how many of the ranks have a trace, in words; None if all have."""
    if known_size is None and (communicated or any(rank.backend for rank in ranks)):
        return f"traces of {len(ranks)} of an unknown number of ranks"
    return f"traces of {len(ranks)} of {world_size} ranks" if len(ranks) < world_size else None
