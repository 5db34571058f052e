"""One run, and what several subjects need of it: each part is computed on first use, and only once.

A part imports what computes it: what nobody asks for is not imported either.
"""

from collections.abc import Callable, Container, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec.structs import replace

from perfkit.engine.runs.rank_reports import NamedSummary, Ranks, group_by_rank
from perfkit.engine.runs.run_layout import RunLayout, lay_out
from perfkit.records.aggregate import real_steps_ns, step_time, traced_step_ns
from perfkit.records.common import Observation
from perfkit.records.cross_rank import CrossRankSummary
from perfkit.records.facts import Fact, fact
from perfkit.records.manifest import RunManifest
from perfkit.records.per_run.communication import DimensionSummary, LinkedCollective
from perfkit.records.per_run.ledger import Ledger, StepTime
from perfkit.records.per_run.pauses import RankPauses
from perfkit.records.per_run.pipeline import Pipeline
from perfkit.records.rank import RankReport
from perfkit.records.roofline import DevicePeaks
from perfkit.records.run import CoreLoad, DataLoading, Efficiency, ProfilerCost, StepTimes

if TYPE_CHECKING:
    from perfkit.engine.communication.slow_network import SlowNetwork
    from perfkit.engine.ranks.matched_run import MatchedRun
    from perfkit.engine.ranks.summary import Compared
    from perfkit.engine.step_graph.run_graph import RunGraph


class RunContext:
    """What subjects read of one run."""

    def __init__(
        self,
        traces: Sequence[NamedSummary],
        manifest: RunManifest | None = None,
        default_rank: int | None = None,
        device_table: Callable[[], Sequence[DevicePeaks]] = tuple,
        page_steps: Container[int] | None = None,
        step_marker: str | None = None,
    ) -> None:
        """Group the traces of a run by rank.

        Args:
            traces: summaries of its traces; empty if it was not profiled or nothing could be read.
            manifest: the run's manifest; None for foreign traces.
            default_rank: rank of traces without one.
            device_table: returns peaks of devices, for the roofline.
            page_steps: the steps whose timelines a page has; None for those of `chosen_steps`.
            step_marker: of the traces' steps, as in `TraceContext`.
        """
        self.traces, self.manifest, self.device_table = traces, manifest, device_table
        self._page_steps, self._step_marker = page_steps, step_marker
        self.grouped: Ranks
        self.layout: RunLayout
        self.grouped, self.layout = lay_out(group_by_rank(traces, default_rank), traces, manifest)

    @property
    def ranks(self) -> list[RankReport]:
        return self.grouped.reports

    @cached_property
    def numbered(self) -> list[RankReport]:
        """Those whose number is known."""
        return [rank for rank in self.ranks if rank.rank is not None]

    @cached_property
    def world_size(self) -> int:
        """Number of ranks; if unknown, at least as many as the highest rank tells."""
        return self.layout.world_size or max((rank.rank for rank in self.ranks if rank.rank is not None), default=0) + 1

    @cached_property
    def source(self) -> str | None:
        if self.manifest:
            return self.manifest.source
        return next((own.source for named in self.traces if (own := named.summary.header.perfkit)), None)

    @cached_property
    def device_names(self) -> list[str]:
        """What the traces call their devices, each once."""
        return sorted({name for named in self.traces for name in named.summary.header.device_names.values()})

    @cached_property
    def communicated(self) -> bool:
        """Whether some trace has collectives, or kernels that communicate."""
        return any(named.summary.communicated for named in self.traces)

    @cached_property
    def partial(self) -> Fact | None:
        """How many of the ranks have a trace; None if all have."""
        ranks, known_size = self.numbered, self.layout.world_size
        if known_size is None and (self.communicated or any(rank.backend for rank in ranks)):
            return fact("traces_of", traces=len(ranks), ranks=None)
        return fact("traces_of", traces=len(ranks), ranks=self.world_size) if len(ranks) < self.world_size else None

    @cached_property
    def matched(self) -> "MatchedRun":
        """The matched collectives of its ranks, and the clocks of their hosts."""
        from perfkit.engine.ranks.matched_run import match_run

        hosts = {rank.rank: rank.host for rank in self.numbered if rank.rank is not None}
        return match_run(self.grouped.calls, hosts, self.layout.mesh, self.layout.world_size)

    @cached_property
    def slow_network(self) -> "SlowNetwork":
        from perfkit.engine.communication.slow_network import find_slow_network

        return find_slow_network(self.matched.collectives, {rank.rank: rank.host for rank in self.numbered})

    @cached_property
    def pipelines(self) -> list[Pipeline]:
        if not self.grouped.pipelines:
            return []
        from perfkit.engine.pipelines.bubbles import find_pipelines

        return find_pipelines(self.grouped.pipelines, self.grouped.calls, self.ranks, self.layout.mesh)

    @property
    def cross_rank(self) -> CrossRankSummary | None:
        """What its ranks show together; None with fewer than two ranks, or with ranks of several jobs."""
        return self.compared.summary if self.compared else None

    @cached_property
    def compared(self) -> "Compared | None":
        """The same, with the delays that were found."""
        if len(self.grouped.calls) < 2:
            return None
        from perfkit.engine.ranks.summary import summarize_cross_rank

        collectives, clocks = self.matched
        size, mesh = self.layout.world_size, self.layout.mesh
        graphs, slow = self.graph.graphs, self.slow_network.causes
        found = summarize_cross_rank(collectives, self.ranks, clocks, size, mesh, graphs)
        if not slow:
            return found
        from perfkit.engine.whatif.altered import unaltered
        from perfkit.engine.whatif.effects.transfers import network_gains_ns

        summary = replace(found.summary, slow_transfers=slow)
        if gains := network_gains_ns([unaltered(graph) for graph in graphs], len(slow)):
            each, whole = gains
            priced = [replace(one, gain_ns=gain_ns) for one, gain_ns in zip(slow, each, strict=True)]
            summary = replace(summary, slow_transfers=priced, slow_transfers_gain_ns=whole)
        return found._replace(summary=summary)

    @cached_property
    def efficiency(self) -> Efficiency | None:
        """Its efficiency as factors; None for ranks of different jobs, which cannot be compared."""
        if self.grouped.mixed:
            return None
        from perfkit.engine.ranks.efficiency import efficiency

        lost = any(finding.code == "no_device_events" for named in self.traces for finding in named.summary.findings)
        return efficiency(self.numbered, self.grouped.calls, self.matched.collectives, self.partial, lost)

    @cached_property
    def dimensions(self) -> DimensionSummary | None:
        from perfkit.engine.ranks.dimensions import summarize_dimensions

        size, partial = self.layout.world_size, self.partial is not None
        return summarize_dimensions(self.matched.collectives, self.numbered, self.efficiency, size, partial)

    @cached_property
    def graph(self) -> "RunGraph":
        """The graph of its steps in real time, or why there is none; neither where none was asked for."""
        found = self._recorded_graph
        if not found.graphs or self.step_time is None:
            return found
        from perfkit.engine.step_graph.real_time import all_in_real_time

        return found._replace(graphs=tuple(all_in_real_time(found.graphs, self.step_time.typical_ns)))

    @cached_property
    def _recorded_graph(self) -> "RunGraph":
        from perfkit.engine.step_graph.real_time import whole_ns
        from perfkit.engine.step_graph.run_graph import RunGraph, build_run_graph

        if any(named.summary.graph is None for named in self.traces):
            return RunGraph((), None, [])
        found = build_run_graph(self.grouped, *self.matched, self.slow_network.factors)
        return found if all(map(whole_ns, found.graphs)) else found._replace(graphs=())

    @cached_property
    def step_time(self) -> StepTime | None:
        """How long a step takes; None without steps.

        Of recorded steps, from when all ranks have begun one to when all have begun the next, where that is known: the
        longest rank's also has what it waits for others that began to record later. Of steps without a graph that is
        not known.
        """
        graphs = self._recorded_graph.graphs
        known = step_time(real_steps_ns(self.step_times) if self.step_times else (), self.ranks)
        if known is None or not graphs:
            return known
        from perfkit.engine.step_graph.real_time import whole_ns

        walls_ns = traced_step_ns(self.ranks)
        waited_ns = sum(sum(walls_ns[step] for step in graph.steps) - whole_ns(graph) for graph in graphs)
        recorded_ns = known.profiled_ns - max(0.0, waited_ns) / len(walls_ns)
        return replace(known, profiled_ns=recorded_ns, mean_ns=recorded_ns if known.is_profiled else known.mean_ns)

    @cached_property
    def step_times(self) -> StepTimes | None:
        """The steps that the run itself timed; None if unknown."""
        # Another marker marks other steps than those.
        if self._step_marker is not None or self.manifest is None or self.manifest.state != "completed":
            return None
        from perfkit.engine.runs.manifest_checks import manifest_metrics

        found: StepTimes | None = manifest_metrics(self.manifest)["step_times"]
        return found

    @property
    def _is_unexplained(self) -> bool:
        """Whether to the graph as much is time of idle devices, and not communication, as may be the largest loss."""
        from perfkit.engine.losses.context import MIN_COMMON_SHARE
        from perfkit.engine.whatif.unexplained import find_unexplained

        if self.graph.graph is None or all(rank.device == "cpu" for rank in self.ranks):
            return False
        found = find_unexplained(self.graph.graph, self.ranks, self.world_size)
        return found is not None and found.of_step >= MIN_COMMON_SHARE

    @cached_property
    def ledger(self) -> Ledger | None:
        """Where the mean step's time goes; None without steps."""
        if self.step_time is None:
            return None
        from perfkit.engine.ledger.build import build_ledger

        # On a busy machine a rank that is late may have waited for a core.
        compared = None if self.on_busy_machine else self.compared
        graphs = () if self._is_unexplained else self.graph.graphs
        return build_ledger(graphs, self.ranks, self.step_time, compared, self.pipelines)

    @cached_property
    def data_loading(self) -> DataLoading | None:
        from perfkit.engine.runs.data_loading import data_loading

        return data_loading(self.ranks, self.manifest, self.source)

    @cached_property
    def profiler_cost(self) -> ProfilerCost | None:
        """What profiling costs; None without a manifest."""
        if self.manifest is None:
            return None
        from perfkit.engine.runs.profiler_cost import profiler_cost

        return profiler_cost(self.manifest.ranks, self.manifest.step_kinds)

    @cached_property
    def core_loads(self) -> list[CoreLoad]:
        """How busy other processes kept the cores of its ranks; empty if unknown."""
        from perfkit.engine.runs.trust import core_loads

        recorded = [(own.rank, own.core_use) for named in self.traces if (own := named.summary.header.perfkit)]
        return core_loads(recorded, self.world_size)

    @cached_property
    def on_busy_machine(self) -> bool:
        from perfkit.engine.runs.trust import is_busy

        return is_busy(self.core_loads)

    @cached_property
    def pauses(self) -> list[RankPauses]:
        """Checkpoints, evaluations and logging."""
        from perfkit.engine.runs.pauses import summarize_pauses

        return summarize_pauses(self.grouped.pauses, self.grouped.calls, self.matched.clocks, self.manifest)

    @cached_property
    def linked_collectives(self) -> list[LinkedCollective]:
        from perfkit.engine.runs.drawn_steps import chosen_steps, linked_collectives

        chosen = list(chosen_steps(self.ranks, self.cross_rank, self._page_steps))
        return linked_collectives(chosen, *self.matched)

    def findings(self, *, compared: bool) -> list[Observation]:
        """Return what has to be known of its figures, of the run first; of its ranks together if these are compared."""
        of_ranks = self._rank_findings() if compared else ()
        of_traces = [finding for named in self.traces for finding in named.summary.findings]
        return [
            *self.grouped.findings,
            *self._run_findings(),
            *of_ranks,
            *self.graph.findings(self.ranks),
            *of_traces,
        ]

    def _run_findings(self) -> Iterator[Observation]:
        from perfkit.engine.runs.findings import run_findings

        communicated = {named.file: named.summary.communicated for named in self.traces}
        sizes = sorted({size for named in self.traces if (size := named.summary.header.world_size)})
        known = [self.manifest.world.world_size] if self.manifest else sizes
        yield from run_findings(self.ranks, communicated, known, self.world_size, self.manifest)

    def _rank_findings(self) -> Iterator[Observation]:
        if self.cross_rank is None:
            return
        from perfkit.engine.ranks.findings import cross_rank_findings

        cost = self.profiler_cost
        begun_ns = {one.rank: one.steps[0].start_ns for one in self.ranks if one.rank is not None and one.steps}
        yield from cross_rank_findings(
            self.matched.collectives,
            self.cross_rank,
            self.efficiency,
            begun_ns,
            partial=self.partial is not None,
            profiler_ns=(cost.added_ns if cost else None) or 0,
            busy=self.on_busy_machine,
        )
