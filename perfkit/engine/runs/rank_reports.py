"""Group the traces of a run by rank, and build the report of each rank.

The rank of a trace is that of its header, else of its file name, else the user's. If headers give one rank to traces
with different ranks in their names, the headers are wrong: the program did not know its rank, or the traces come from
several single-process runs. Then every header's rank in the run is ignored.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from perfkit.accelerators import backend_on
from perfkit.base.step_numbers import RESTART
from perfkit.engine.communication.collective_calls import CollectiveCalls, concatenate_cycles
from perfkit.engine.pipelines.actions import PipelineActions
from perfkit.engine.runs.step_series import steps_apart
from perfkit.engine.step_graph.rank.rank_graph import RankGraph
from perfkit.engine.steps.pauses import TracedPause
from perfkit.engine.trace_summary import TraceSummary
from perfkit.records.aggregate import (
    add_collectives,
    add_devices,
    add_idle_times,
    add_issued,
    add_operators,
    add_phases,
    add_sharding,
    join_memory,
)
from perfkit.records.common import Observation, Severity
from perfkit.records.per_rank.idle import add_launches
from perfkit.records.per_rank.loading import add_loading
from perfkit.records.per_rank.operator_work import add_rank_work
from perfkit.records.per_rank.work_trees import add_work
from perfkit.records.rank import RankReport
from perfkit.records.samples import add_code_times
from perfkit.storage.filenames import rank_in_name


class RankClaim(NamedTuple):
    """The rank of a trace, by its header and by its file name."""

    file: str
    in_header: int | None
    in_name: int | None

    @property
    def is_contradictory(self) -> bool:
        """Whether header and name give different ranks."""
        return None not in (self.in_header, self.in_name) and self.in_header != self.in_name


def assign_ranks(
    headers: Iterable[tuple[str, int | None]], default: int | None
) -> tuple[list[int | None], list[Observation]]:
    """Return the rank of each trace, None if unknown, and findings about contradictions.

    Args:
        headers: file name of each trace, and the rank in its header.
        default: rank of traces without one.
    """
    claims = [RankClaim(file, rank, rank_in_name(file)) for file, rank in headers]
    shared = _shared(claims)
    differing = [claim for claim in claims if claim.is_contradictory]
    if shared:
        return [_first(claim.in_name, default) for claim in claims], [_by_name(shared, differing)]
    findings = [Observation("rank_name_mismatch", {"claims": _in_headers(differing)})] if differing else []
    return [_first(claim.in_header, claim.in_name, default) for claim in claims], findings


def _first(*ranks: int | None) -> int | None:
    return next((rank for rank in ranks if rank is not None), None)


def _shared(claims: Sequence[RankClaim]) -> list[RankClaim]:
    """Return the traces whose headers give the same rank as others', although all their names give different ones."""
    by_header: dict[int, list[RankClaim]] = defaultdict(list)
    for claim in claims:
        if claim.in_header is not None:
            by_header[claim.in_header].append(claim)
    found = []
    for claims in by_header.values():
        names = {claim.in_name for claim in claims}  # of one rank's cycles they give the same rank
        if len(names) > 1 and None not in names:
            found += claims
    return found


def _by_name(shared: Sequence[RankClaim], differing: Sequence[RankClaim]) -> Observation:
    rank = min(claim.in_header for claim in shared if claim.in_header is not None)
    files = [claim.file for claim in shared if claim.in_header == rank]
    return Observation("header_ranks_ignored", {"rank": rank, "files": files, "ignored": _in_headers(differing)})


def _in_headers(claims: Sequence[RankClaim]) -> list[tuple[str, int | None]]:
    return [(claim.file, claim.in_header) for claim in claims]


class NamedSummary(NamedTuple):
    """A trace's summary and its file name, relative to the run."""

    file: str
    summary: TraceSummary


class RankGraphs(NamedTuple):
    """The graphs of a rank's traces, in order of time."""

    graphs: list[RankGraph]
    first_call: list[int]
    """Place of each trace's first collective among those of all its traces."""


class Ranks(NamedTuple):
    """The reports of a run's ranks, the collectives of ranks with a known number, and findings.

    Of ranks of several jobs that cannot be told apart there are no collectives, pipelines and graphs: these serve to
    compare ranks with each other.
    """

    reports: list[RankReport]
    calls: dict[int, CollectiveCalls]
    pipelines: dict[int, list[PipelineActions]]
    """What the ranks of a pipeline compute, by trace."""
    graphs: dict[int, RankGraphs]
    findings: list[Observation]
    pauses: dict[int | None, list[TracedPause]]
    """Of each rank that has any."""

    @property
    def mixed(self) -> bool:
        """Whether there are traces of several jobs, and of which each is, is not known."""
        return any(finding.code == "duplicate_rank" for finding in self.findings)


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
    pipelines: dict[int, list[PipelineActions]] = {}
    graphs: dict[int, RankGraphs] = {}
    pauses: dict[int | None, list[TracedPause]] = {}
    for number, kept in _cycles(known, findings).items():
        reports.append(_rank_report(number, kept))
        actions = [named.summary.pipeline for named in kept if named.summary.pipeline is not None]
        if actions:
            pipelines[number] = actions
        if paused := [pause for named in kept for pause in named.summary.pauses]:
            pauses[number] = paused
        calls[number] = concatenate_cycles([named.summary.calls for named in kept])
        graphs[number] = _graphs(kept)
    severity: Severity = "warning" if len(traces) > 1 else "info"
    values = {"traces": len(traces), "apart": _are_apart(unranked)}
    for named in unranked:
        findings.append(Observation("rank_unknown", values, severity=severity, file=named.file))
        reports.append(_rank_report(None, [named]))
        if named.summary.pauses:
            pauses[None] = [*pauses.get(None, ()), *named.summary.pauses]
    if len(unranked) == 1 and not known:
        graphs[0] = _graphs(unranked)
    found = Ranks(reports, calls, pipelines, graphs, findings, pauses)
    return found._replace(calls={}, pipelines={}, graphs={}) if found.mixed else found


def _cycles(known: Mapping[int, list[NamedSummary]], findings: list[Observation]) -> dict[int, list[NamedSummary]]:
    """Return the traces of each rank in order of time, without those of other jobs, which are reported as findings."""
    cycles: dict[int, list[NamedSummary]] = {}
    for number, members in sorted(known.items()):
        traces = sorted(members, key=lambda named: (named.summary.steps[0].start_ns, named.file))
        findings.extend(_multiple_traces(number, traces))
        cycles[number] = _without_clashes(number, traces, findings)
    apart = steps_apart({number: [named.summary for named in traces] for number, traces in cycles.items()})
    restarts = max((traces[-1].steps[0].step or 0) // RESTART for traces in apart.values()) if apart else 0
    if restarts:
        findings.append(Observation("repeated_steps", {"restarts": restarts}, severity="info"))
    return {
        number: [named._replace(summary=summary) for named, summary in zip(traces, apart[number], strict=True)]
        for number, traces in cycles.items()
    }


def _are_apart(traces: Sequence[NamedSummary]) -> bool:
    """Return whether a trace ends before another one begins."""
    windows = [(named.summary.steps[0], named.summary.steps[-1]) for named in traces]
    ends = (last.start_ns + last.wall_ns + last.paused_ns for _, last in windows)
    return bool(windows) and max(first.start_ns for first, _ in windows) > min(ends)


def _graphs(traces: list[NamedSummary]) -> RankGraphs:
    counts = [len(named.summary.calls.column("kind")) for named in traces]
    return RankGraphs(
        [graph for named in traces if (graph := named.summary.graph) is not None], [0, *accumulate(counts[:-1])]
    )


def _multiple_traces(rank: int, traces: list[NamedSummary]) -> list[Observation]:
    """Return a finding if several traces of one rank are not numbered as its profiling cycles."""
    cycles = {named.summary.header.perfkit.cycle for named in traces if named.summary.header.perfkit}
    if len(cycles) == len(traces) or len(traces) == 1:
        return []
    return [Observation("multiple_traces_per_rank", {"traces": len(traces), "rank": rank}, rank=rank)]


def _without_clashes(rank: int, traces: list[NamedSummary], findings: list[Observation]) -> list[NamedSummary]:
    """Keep the traces of one rank that do not overlap and have one world size; report the others as findings."""
    kept: list[NamedSummary] = []
    for named in traces:
        if found := clash(rank, named, kept):
            findings.append(found)
        else:
            kept.append(named)
    return kept


def clash(rank: int, named: NamedSummary, kept: Sequence[NamedSummary]) -> Observation | None:
    """Return why a trace cannot belong to the same rank of the same job as those before it; None if it can."""
    size = named.summary.header.world_size
    for other in kept:
        if None not in (size, other_size := other.summary.header.world_size) and size != other_size:
            values = {"rank": rank, "size": size, "other": other.file, "other_size": other_size}
            return Observation("duplicate_rank", values, "world_size", rank=rank, file=named.file)
    last = kept[-1].summary.steps[-1] if kept else None
    if last and named.summary.steps[0].start_ns < last.start_ns + last.wall_ns + last.paused_ns:
        return Observation("duplicate_rank", {"rank": rank, "other": kept[-1].file}, rank=rank, file=named.file)
    return None


def _rank_report(rank: int | None, traces: list[NamedSummary]) -> RankReport:
    summaries = [named.summary for named in traces]
    first = summaries[0]
    has_device = any(summary.has_device for summary in summaries)
    backends = first.header.backend
    return RankReport(
        rank=rank,
        traces=[named.file for named in traces],
        host=first.header.host,
        device="gpu" if has_device else "cpu",
        backend=None if backends is None else backend_on(backends, None if has_device else "cpu"),
        steps=[step for summary in summaries for step in summary.steps],
        operators=add_operators(row for summary in summaries for row in summary.operators),
        collectives=add_collectives(row for summary in summaries for row in summary.collectives),
        phases=add_phases(row for summary in summaries for row in summary.phases),
        issued_collectives=add_issued(row for summary in summaries for row in summary.issued_collectives),
        sharded_parameters=add_sharding(summary.sharded_parameters for summary in summaries),
        light=any(summary.header.perfkit is not None and summary.header.perfkit.light for summary in summaries),
        recorded=sorted(frozenset.intersection(*(summary.header.recorded for summary in summaries))),
        memory=join_memory(use for summary in summaries for use in summary.memory),
        idle=add_idle_times(summary.idle for summary in summaries),
        devices=add_devices(row for summary in summaries for row in summary.devices),
        launches=add_launches(summary.launches for summary in summaries),
        operator_work=add_rank_work(summary.operator_work for summary in summaries),
        loading=add_loading(summary.loading for summary in summaries),
        code=add_code_times(row for summary in summaries for row in summary.code),
        work=add_work(summary.work for summary in summaries),
        subjects=_joined_subjects(summaries),
        events={
            kind: sum(summary.counts.get(kind, 0) for summary in summaries)
            for kind in sorted({kind for summary in summaries for kind in summary.counts})
        },
    )


def _joined_subjects(summaries: Sequence[TraceSummary]) -> dict[str, list[Any]]:
    """Return the records of each subject that a package adds, of all traces in order of time."""
    names = {name for summary in summaries for name in summary.subjects}
    return {
        name: [summary.subjects[name] for summary in summaries if name in summary.subjects] for name in sorted(names)
    }
