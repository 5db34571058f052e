"""Tell apart the traces of several jobs in one folder, which are no ranks of one run.

Evidence are the run's name in perfkit's own headers, the world size, the backend of the default process group, the
time, and the host where a rank occurs on several, or more than once at one time. What is unknown differs from nothing.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path
from typing import Final, NamedTuple

from perfkit.engine.runs.rank_reports import NamedSummary, assign_ranks, clash
from perfkit.errors import UsageError
from perfkit.records.rank import StepBreakdown

_MAX_GAP_NS: Final = 3_600 * 10**9
"""Longest time between traces of one job on one host, unless its ranks are the same before and after."""


class Job(NamedTuple):
    """The traces of one job."""

    label: str
    """What tells it from the others, such as "world size 8"; empty if it is the only one."""
    traces: list[NamedSummary]


def split_jobs(traces: Sequence[NamedSummary]) -> list[Job]:
    """Return the jobs that traces of one folder belong to, in the order of their first traces; one if they agree."""
    jobs = [Job("", list(traces))]
    for split in (_by_run, _by_world_size, _by_backend, _by_time, _by_host):
        jobs = [
            Job(", ".join(filter(None, (job.label, label))), part) for job in jobs for label, part in split(job.traces)
        ]
    counts = Counter(job.label for job in jobs)
    seen: Counter[str] = Counter()
    unique = []
    for job in jobs:
        seen[job.label] += 1
        unique.append(job if counts[job.label] == 1 else job._replace(label=f"{job.label} #{seen[job.label]}"))
    return unique


def check_one_job(path: Path, traces: Sequence[NamedSummary], has_manifest: bool) -> None:
    """Refuse the traces of several jobs: what is put together of them would show ranks that never met.

    Args:
        has_manifest: whether its `run.json` makes them one run.

    Raises:
        UsageError: they are of several jobs.
    """
    jobs = 1 if has_manifest else len(split_jobs(traces))
    if jobs > 1:
        raise UsageError(f"{path} has the traces of {jobs} jobs: put each into a separate folder")


Parts = list[tuple[str, list[NamedSummary]]]


def _by_run(traces: list[NamedSummary]) -> Parts:
    return _by_value(traces, lambda named: named.summary.header.perfkit and named.summary.header.perfkit.run, "run")


def _by_world_size(traces: list[NamedSummary]) -> Parts:
    return _by_value(traces, lambda named: named.summary.header.world_size, "world size")


def _by_backend(traces: list[NamedSummary]) -> Parts:
    """Split by backend where all traces have one: all ranks of a job create the default group in the same way."""
    known = {named.summary.header.backend for named in traces}
    if not all(known) or "undefined" in known:
        return [("", traces)]
    return _by_value(traces, lambda named: named.summary.header.backend, "backend")


def _by_value(traces: list[NamedSummary], value: Callable[[NamedSummary], object], name: str) -> Parts:
    """Group traces by a value; those without one join the only group, or are a separate group."""
    groups: dict[object, list[NamedSummary]] = defaultdict(list)
    for named in traces:
        groups[value(named) or None].append(named)
    if len(groups.keys() - {None}) < 2:
        return [("", traces)]
    return [(f"{name} {'unknown' if known is None else known}", group) for known, group in groups.items()]


def _by_time(traces: list[NamedSummary]) -> Parts:
    """Split where hours pass and the ranks are others afterwards: cycles have the same ranks.

    Where no rank occurs before and after, only on one host, because the clocks of hosts may differ by any time. Traces
    of unknown ranks are apart, too, unless they are known to be of several hosts: as ranks of one run they would have
    been recorded at one time, and that they are cycles of one rank is not known.
    """
    if all(named.summary.header.perfkit and named.summary.header.perfkit.run for named in traces):
        return [("", traces)]
    clusters = list(_clusters(traces))
    ranks = [_ranks(cluster) for cluster in clusters]
    hosts = {named.summary.header.host for named in traces}
    one_clock = len(hosts) == 1 and None not in hosts
    pairs = [(one, other) for one, other in combinations(ranks, 2) if one != other]
    unknown = len(clusters) > 1 and len(hosts - {None}) < 2 and any(None in known for known in ranks)
    if not unknown and not any(one_clock or one & other for one, other in pairs):
        return [("", traces)]
    return [(f"from {_time(cluster[0])}", cluster) for cluster in clusters]


def _clusters(traces: Iterable[NamedSummary]) -> Iterator[list[NamedSummary]]:
    """Yield traces in order of time, together unless a long time without any lies between them."""
    cluster: list[NamedSummary] = []
    end_ns = 0
    for named in sorted(traces, key=lambda named: (named.summary.steps[0].start_ns, named.file)):
        first, last = named.summary.steps[0], named.summary.steps[-1]
        if cluster and first.start_ns - end_ns > _MAX_GAP_NS:
            yield cluster
            cluster = []
        end_ns = max(end_ns, _end_ns(last)) if cluster else _end_ns(last)
        cluster.append(named)
    yield cluster


def _end_ns(step: StepBreakdown) -> int:
    return step.start_ns + step.wall_ns + step.paused_ns


def _time(named: NamedSummary) -> str:
    start_s = named.summary.steps[0].start_ns // 10**9
    with suppress(OverflowError, ValueError, OSError):  # no date for a time beyond all calendars
        return datetime.fromtimestamp(start_s, UTC).strftime("%Y-%m-%d %H:%M:%S")
    return f"{start_s} s"


def _by_host(traces: list[NamedSummary]) -> Parts:
    """Split by host where a rank occurs on several, or twice at one time, if each host then has a separate job."""
    if not _has_clash(traces) and not _has_moved(traces):
        return [("", traces)]
    parts = _by_value(traces, lambda named: named.summary.header.host, "host")
    # Hosts with different ranks may have been one job, and which of them belong together is not known.
    if any(_has_clash(part) for _, part in parts) or any(
        _ranks(one).isdisjoint(_ranks(other)) for (_, one), (_, other) in combinations(parts, 2)
    ):
        return [("", traces)]
    return parts


def _has_clash(traces: Sequence[NamedSummary]) -> bool:
    by_rank: dict[int, list[NamedSummary]] = defaultdict(list)
    for named, rank in zip(traces, _numbers(traces), strict=True):
        if rank is not None:
            by_rank[rank].append(named)
    for rank, members in by_rank.items():
        ordered = sorted(members, key=lambda named: (named.summary.steps[0].start_ns, named.file))
        if any(clash(rank, named, ordered[:place]) for place, named in enumerate(ordered)):
            return True
    return False


def _has_moved(traces: Sequence[NamedSummary]) -> bool:
    """Return whether a rank occurs on more than one host."""
    hosts: dict[int | None, set[str]] = defaultdict(set)
    for named, rank in zip(traces, _numbers(traces), strict=True):
        if named.summary.header.host:
            hosts[rank].add(named.summary.header.host)
    return any(len(known) > 1 for rank, known in hosts.items() if rank is not None)


def _ranks(traces: Sequence[NamedSummary]) -> set[int | None]:
    return set(_numbers(traces))


def _numbers(traces: Sequence[NamedSummary]) -> list[int | None]:
    return assign_ranks([(named.file, named.summary.header.rank) for named in traces], None)[0]
