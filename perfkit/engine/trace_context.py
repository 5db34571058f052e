"""One trace, and what several subjects need of it: each part is computed on first use, and only once.

A part imports what computes it: what nobody asks for is not imported either.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from perfkit.engine.breakdown import NO_WAITS, Activity, OperatorWaits, break_down, find_activity
from perfkit.engine.communication.collectives import Collectives, find_collectives
from perfkit.engine.operators import names_cut, tabulate_operators
from perfkit.engine.steps.windows import Steps, find_trace_steps
from perfkit.engine.trace_findings import damage_findings, loading_unmarked, sizes_unmatched, trace_findings
from perfkit.engine.trace_summary import NothingToAnalyseError, check_one_process
from perfkit.records.common import Observation
from perfkit.records.kernel_rules import KernelRule
from perfkit.records.per_rank.idle import IdleNs
from perfkit.records.rank import OperatorStat, StepBreakdown
from perfkit.trace.events import Events, Header, RankTrace

if TYPE_CHECKING:
    from perfkit.engine.attribution.views import Located
    from perfkit.engine.communication.issue_sites import Layers
    from perfkit.engine.idle.attribution import Threads
    from perfkit.engine.idle.host_thread import Host
    from perfkit.engine.idle.tabulate import Idle
    from perfkit.engine.pipelines.actions import PipelineActions, PipelineSpans
    from perfkit.engine.samples import HostSamples
    from perfkit.engine.step_graph.rank.rank_graph import RankGraph
    from perfkit.engine.steps.passes import HostPhases, Passes


class TraceContext:
    """What subjects read of one trace."""

    def __init__(
        self,
        trace: RankTrace,
        file: str,
        step_marker: str | None = None,
        kernel_rules: Sequence[KernelRule] = (),
        graph_events: int | None = None,
        most_steps: int | None = None,
        data_marker: str | None = None,
    ) -> None:
        """Find the steps of a trace.

        Args:
            trace: the trace.
            file: its name in findings.
            step_marker: a regular expression for the names of step annotations, instead of `ProfilerStep#N`.
            kernel_rules: rules for the names of kernels, which come before perfkit's own.
            graph_events: of how many events the graph is at most; None for as many as suit the number of ranks.
            most_steps: number of steps that are analysed, the first ones; None for all.
            data_marker: a regular expression for the names of annotations and functions that load data.

        Raises:
            NothingToAnalyseError: the trace contains neither steps nor work.
            TraceError: it is of several processes.
        """
        self.trace, self.file, self.step_marker = trace, file, step_marker
        self._unmatched_marker: str | None = None
        if data_marker:
            trace = self._mark_loading(data_marker)
        self._graph_events = graph_events
        found = find_trace_steps(trace, step_marker, kernel_rules, most_steps)
        self.trace, self.names, self.device, steps, self._impossible = found
        if steps is None:
            raise NothingToAnalyseError(file, damage_findings(trace))
        check_one_process(trace.events, file, step_marker)
        self.steps: Steps = steps

    def _mark_loading(self, data_marker: str) -> RankTrace:
        from perfkit.engine.marked_loading import mark_loading

        self.trace, has_loading = mark_loading(self.trace, data_marker, self.step_marker)
        self._unmatched_marker = None if has_loading else data_marker
        return self.trace

    @property
    def events(self) -> Events:
        """Its events."""
        return self.trace.events

    @property
    def header(self) -> Header:
        """Its header."""
        return self.trace.header

    @property
    def has_device(self) -> bool:
        """Whether it contains activities of a device."""
        return bool(len(self.device.row))

    @cached_property
    def activity(self) -> Activity:
        """When each category was active."""
        return find_activity(self.events, self.names, self.device, self.steps, self.waits)

    @cached_property
    def waits(self) -> OperatorWaits:
        """When its main thread waits within operators; nothing of that is known beside a device."""
        if self.samples is None or self.has_device:
            return NO_WAITS
        from perfkit.engine.operator_waits import waits_in_operators

        return waits_in_operators(self.events, self.names, self.threads.main, self.samples)

    @cached_property
    def _found_collectives(self) -> tuple[Collectives, list[str]]:
        return find_collectives(self.events, self.names, self.device, self.activity, self.steps, self.header)

    @property
    def collectives(self) -> Collectives:
        """Its collectives."""
        return self._found_collectives[0]

    @cached_property
    def own_findings(self) -> list[Observation]:
        """What has to be known of its file, device, steps and kernels."""
        found = trace_findings(self.trace, self.names, self.device, self.activity, self.steps, self.step_marker)
        found += self._impossible
        found += loading_unmarked(self._unmatched_marker, self.trace.counts)
        return found + sizes_unmatched(self._found_collectives[1], len(self.collectives.start))

    @property
    def findings(self) -> list[Observation]:
        """Those, and what is left out of its operators."""
        return self.own_findings + names_cut(*self._operators)

    @property
    def lacks_device_events(self) -> bool:
        """Whether it launched work whose execution is not in the trace."""
        return any(finding.code == "no_device_events" for finding in self.own_findings)

    @cached_property
    def _operators(self) -> tuple[list[OperatorStat], int]:
        return tabulate_operators(self.events, self.names, self.device, self.activity, self.steps)

    @property
    def operators(self) -> list[OperatorStat]:
        """Kernels and host operators by time."""
        return self._operators[0]

    @cached_property
    def pipeline_spans(self) -> "PipelineSpans | None":
        """When a pipeline's micro-batches were computed; None without any."""
        from perfkit.engine.pipelines.actions import find_pipeline_spans

        return find_pipeline_spans(self.events, self.device, self.activity, self.collectives, self.steps)

    @cached_property
    def pipeline_actions(self) -> "PipelineActions | None":
        """What it computed of a pipeline's micro-batches; None without any."""
        from perfkit.engine.pipelines.actions import find_pipeline_actions

        return find_pipeline_actions(self.pipeline_spans, self.steps, self.header)

    @cached_property
    def _host_time(self) -> "tuple[Host, Threads]":
        from perfkit.engine.idle.attribution import host_time

        trace = self.trace
        return host_time(trace.events, trace.frames, self.names, self.device, self.step_marker, self.samples)

    @cached_property
    def samples(self) -> "HostSamples | None":
        """What the main thread ran, from samples; None without any."""
        own = self.header.perfkit
        if own is None or own.samples is None:
            return None
        from perfkit.engine.samples import HostSamples

        return HostSamples(own.samples)

    @property
    def host(self) -> "Host":
        """What the host's threads did."""
        return self._host_time[0]

    @property
    def threads(self) -> "Threads":
        """The host's threads."""
        return self._host_time[1]

    @cached_property
    def idle(self) -> "Idle":
        """Why it was idle."""
        from perfkit.engine.idle.tabulate import explain_idle

        return explain_idle(self.device, self.activity, self.steps, self.host, self.threads, lambda: self.passes)

    def break_down(self, *, with_causes: bool) -> list[StepBreakdown]:
        """Return its steps by category; causes of idle time are zero unless asked for."""
        causes = self.idle.steps if with_causes else [_NO_CAUSES] * len(self.steps.number)
        return break_down(self.events, self.names, self.activity, self.steps, causes)

    @cached_property
    def phases(self) -> "HostPhases":
        """The phases of its host threads."""
        from perfkit.engine.steps.passes import HostPhases

        return HostPhases(self.events, self.steps)

    @property
    def passes(self) -> "Passes":
        """Forward and backward passes."""
        return self.phases.passes

    @cached_property
    def layers(self) -> "Layers":
        """The layers that issue collectives."""
        from perfkit.engine.communication.issue_sites import find_layers

        return find_layers(self.events, self.collectives.issue_row)

    @cached_property
    def located(self) -> "Located":
        """Its work, and the modules, functions and operators that each piece belongs to."""
        from perfkit.engine.attribution.items import find_items
        from perfkit.engine.attribution.views import Located
        from perfkit.engine.steps.annotations import annotation_rows

        return Located(
            self.events,
            self.trace.frames,
            lambda: annotation_rows(self.events, self.names, self.steps, self.step_marker),
            self.phases,
            lambda: find_items(self.events, self.device, self.activity, self.collectives, self.steps),
        )

    @cached_property
    def graph(self) -> "RankGraph":
        """Its part of the graph of steps."""
        from perfkit.engine.step_graph.rank.build import build_rank_graph
        from perfkit.engine.step_graph.rank.module_owners import ModuleOwners
        from perfkit.engine.step_graph.rank.selection import most_graph_events
        from perfkit.engine.step_graph.rank.table import Trace

        owners = ModuleOwners(self.located)
        parts = Trace(
            self.events,
            self.names,
            self.device,
            self.collectives,
            self.steps,
            self.host,
            self.threads,
            self.waits,
            owners,
        )
        most = most_graph_events(self.header.world_size) if self._graph_events is None else self._graph_events
        return build_rank_graph(parts, most)


_NO_CAUSES = IdleNs()
