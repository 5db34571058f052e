"""Build the report of a run from the summaries of its traces."""

from collections import defaultdict
from collections.abc import Sequence
from statistics import median
from typing import Final, NamedTuple

from perfkit.analysis.cross_rank.clock_alignment import align
from perfkit.analysis.cross_rank.efficiency import efficiency
from perfkit.analysis.cross_rank.findings import cross_rank_findings
from perfkit.analysis.cross_rank.matching import match
from perfkit.analysis.cross_rank.pipeline_groups import name_pipeline_groups
from perfkit.analysis.cross_rank.point_to_point import split_receives
from perfkit.analysis.cross_rank.summary import summarize_cross_rank
from perfkit.analysis.per_rank.collective_calls import CollectiveCalls, concatenate_cycles
from perfkit.analysis.per_rank.summary import TraceSummary
from perfkit.analysis.per_run.findings import run_findings
from perfkit.analysis.per_run.manifest_metrics import manifest_metrics
from perfkit.analysis.per_run.profiler_cost import profiler_cost
from perfkit.analysis.per_run.rank_assignment import assign_ranks
from perfkit.analysis.per_run.verdict import add_caveats, classify_bottleneck
from perfkit.schema.aggregate import (
    add_collectives,
    add_operators,
    add_phases,
    join_memory,
)
from perfkit.schema.common import Finding, Severity
from perfkit.schema.manifest import RunManifest
from perfkit.schema.rank import RankReport
from perfkit.schema.run import DataLoading, RunReport


class NamedSummary(NamedTuple):
    """A trace's summary and its file name, relative to the run."""

    file: str
    summary: TraceSummary


def build_run_report(
    run: str,
    path: str,
    traces: Sequence[NamedSummary],
    manifest: RunManifest | None,
    rank: int | None,
    lost: list[Finding],
) -> RunReport:
    """Build the report of one run.

    Args:
        run: name of the run.
        path: its folder or file.
        traces: summaries of its traces; empty if it was not profiled or nothing could be read.
        manifest: the run's manifest; None for foreign traces.
        rank: rank of traces without one.
        lost: findings about traces that could not be read.
    """
    ranks, calls, findings = group_by_rank(traces, rank)
    world_sizes = [manifest.world.world_size] if manifest else _header_world_sizes(traces)
    world_size = (
        max(world_sizes, default=0) or max((rank.rank for rank in ranks if rank.rank is not None), default=0) + 1
    )
    loading = _data_loading(ranks, manifest, _source(traces, manifest))
    known_size = max(world_sizes, default=0) or None
    matched = match(name_pipeline_groups(calls, manifest.mesh if manifest else ()), known_size)
    clocks = align(matched, {rank.rank: rank.host for rank in ranks if rank.rank is not None})
    matched = split_receives(matched, clocks)
    compared = summarize_cross_rank(matched, ranks, clocks, known_size) if len(calls) > 1 else None
    numbered = [rank for rank in ranks if rank.rank is not None]
    efficient = efficiency(numbered, calls, matched, _partial(numbered, known_size, world_size))
    communicated = {named.file: named.summary.communicated for named in traces}
    findings = [
        *lost,
        *findings,
        *run_findings(ranks, communicated, world_sizes, world_size, manifest),
        *(cross_rank_findings(matched, compared, efficient) if compared else ()),
        *(finding for named in traces for finding in named.summary.findings),
    ]
    cost = profiler_cost(manifest.ranks, manifest.step_kinds) if manifest else None
    verdict = classify_bottleneck(ranks, loading, compared, efficient, cost)
    return RunReport(
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
        findings=sorted(findings, key=lambda finding: _SEVERITY[finding.severity]),
        **(manifest_metrics(manifest) if manifest else {}),
    )


_SEVERITY: Final[dict[Severity, int]] = {"error": 0, "warning": 1, "info": 2}


# ---- ranks ---------------------------------------------------------------------------------------------------------


class Ranks(NamedTuple):
    """The reports of a run's ranks, the collectives of ranks with a known number, and findings."""

    reports: list[RankReport]
    calls: dict[int, CollectiveCalls]
    findings: list[Finding]


def group_by_rank(traces: Sequence[NamedSummary], default: int | None = None) -> Ranks:
    """Group traces by rank, in order of time; `default` is the rank of traces without one."""
    known: dict[int, list[NamedSummary]] = defaultdict(list)
    unranked: list[NamedSummary] = []
    numbers, findings = assign_ranks([(named.file, named.summary.header.rank) for named in traces], default)
    for named, number in zip(traces, numbers, strict=True):
        if number is None:
            unranked.append(named)
        else:
            known[number].append(named)
    reports = []
    calls: dict[int, CollectiveCalls] = {}
    for number, members in sorted(known.items()):
        cycles = sorted(members, key=lambda named: (named.summary.steps[0].start_ns, named.file))
        findings.extend(_multiple_traces(number, cycles))
        kept = _without_clashes(number, cycles, findings)
        reports.append(_rank_report(number, kept))
        calls[number] = concatenate_cycles([named.summary.calls for named in kept])
    severity: Severity = "warning" if len(traces) > 1 else "info"
    message = "rank unknown, neither in the header nor in the file name: use --rank, or name the file rank<N>.json.gz"
    if len(traces) > 1:
        message += "; analyse traces of another job separately"
    for named in unranked:
        findings.append(Finding(code="rank_unknown", severity=severity, message=message, file=named.file))
        reports.append(_rank_report(None, [named]))
    return Ranks(reports, calls, findings)


def _multiple_traces(rank: int, traces: list[NamedSummary]) -> list[Finding]:
    """Return a finding if several traces of one rank are not numbered as its profiling cycles."""
    cycles = {named.summary.header.perfkit.cycle for named in traces if named.summary.header.perfkit}
    if len(cycles) == len(traces) or len(traces) == 1:
        return []
    rule = "traces that do not overlap and have the same world size are treated as its profiling cycles"
    message = f"{len(traces)} traces claim rank {rank}: {rule}"
    return [Finding(code="multiple_traces_per_rank", severity="warning", message=message, rank=rank)]


def _without_clashes(rank: int, traces: list[NamedSummary], findings: list[Finding]) -> list[NamedSummary]:
    """Keep the traces of one rank that do not overlap and have one world size; report the others as findings."""
    kept: list[NamedSummary] = []
    for named in traces:
        if reason := clash(rank, named, kept):
            message = f"{reason}: excluded; put each job into a separate folder"
            findings.append(
                Finding(code="duplicate_rank", severity="error", message=message, rank=rank, file=named.file)
            )
        else:
            kept.append(named)
    return kept


def clash(rank: int, named: NamedSummary, kept: Sequence[NamedSummary]) -> str | None:
    """Return why a trace cannot belong to the same rank of the same job as those before it; None if it can."""
    size = named.summary.header.world_size
    for other in kept:
        if None not in (size, other_size := other.summary.header.world_size) and size != other_size:
            return f"claims rank {rank} of world size {size}, but {other.file} has world size {other_size}"
    last = kept[-1].summary.steps[-1] if kept else None
    if last and named.summary.steps[0].start_ns < last.start_ns + last.wall_ns:
        return f"claims rank {rank} at the same time as {kept[-1].file}"
    return None


def _rank_report(rank: int | None, traces: list[NamedSummary]) -> RankReport:
    summaries = [named.summary for named in traces]
    first = summaries[0]
    return RankReport(
        rank=rank,
        traces=[named.file for named in traces],
        host=first.header.host,
        device="gpu" if any(summary.has_device for summary in summaries) else "cpu",
        backend=first.header.backend,
        steps=[step for summary in summaries for step in summary.steps],
        operators=add_operators(row for summary in summaries for row in summary.operators),
        collectives=add_collectives(row for summary in summaries for row in summary.collectives),
        phases=add_phases(row for summary in summaries for row in summary.phases),
        memory=join_memory(use for summary in summaries for use in summary.memory),
        events={
            kind: sum(summary.counts.get(kind, 0) for summary in summaries)
            for kind in sorted({kind for summary in summaries for kind in summary.counts})
        },
    )


# ---- the run -------------------------------------------------------------------------------------------------------


def _header_world_sizes(traces: Sequence[NamedSummary]) -> list[int]:
    return sorted({size for named in traces if (size := named.summary.header.world_size)})


def _source(traces: Sequence[NamedSummary], manifest: RunManifest | None) -> str | None:
    if manifest:
        return manifest.source
    return next((own.source for named in traces if (own := named.summary.header.perfkit)), None)


def _partial(ranks: Sequence[RankReport], known_size: int | None, world_size: int) -> str | None:
    """Return how many of the ranks have a trace, in words; None if all have."""
    if known_size is None and any(rank.backend for rank in ranks):
        return f"traces of {len(ranks)} of an unknown number of ranks"
    return f"traces of {len(ranks)} of {world_size} ranks" if len(ranks) < world_size else None


def _data_loading(ranks: list[RankReport], manifest: RunManifest | None, source: str | None) -> DataLoading | None:
    loads = [
        (span_ns, rank.rank, step.step) for rank in ranks for step in rank.steps for span_ns in step.loads.spans_ns
    ]
    if not loads:
        return None
    max_ns, max_rank, max_step = max(loads, key=lambda load: load[0])
    wall_ns = sum(step.wall_ns for rank in ranks for step in rank.steps)
    exposed_ns = sum(step.exposed_ns.data_loading for rank in ranks for step in rank.steps)
    sum_ns = sum(span_ns for span_ns, _, _ in loads)
    rate, speed = _read_rate(manifest, ranks, sum_ns), manifest.file_bandwidth if manifest else None
    return DataLoading(
        source=source,
        count=len(loads),
        median_ns=round(median(span_ns for span_ns, _, _ in loads)),
        max_ns=max_ns,
        max_rank=max_rank,
        max_step=max_step,
        exposed_share=exposed_ns / wall_ns if wall_ns else 0.0,
        read_bytes_per_s=rate,
        file_bandwidth=speed,
        file_share=rate / len(ranks) / speed.bytes_per_s if rate and speed and speed.bytes_per_s > 0 else None,
    )


def _read_rate(manifest: RunManifest | None, ranks: list[RankReport], sum_ns: int) -> float | None:
    """Return bytes of samples per second of waiting for them, summed over ranks.

    Batches are counted by steps, not by loads: the load that hits the end of an epoch returns no batch.
    """
    if manifest is None or manifest.batch_size is None or manifest.sample_bytes is None or not sum_ns:
        return None
    if manifest.throughput is None or manifest.throughput.read_bytes_per_s is None:
        return None  # waiting time is not reading time
    batches = sum(len(rank.steps) for rank in ranks)
    return batches * manifest.batch_size * manifest.sample_bytes * 1e9 / (sum_ns / len(ranks))
