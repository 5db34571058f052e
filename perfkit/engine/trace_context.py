"""One trace, and what several subjects need of it: each part is computed on first use, and only once.

A part imports what computes it: what nobody asks for is not imported either.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from perfkit.engine.breakdown import NO_WAITS, Activity, OperatorWaits, break_down, find_activity, load_rows
from perfkit.engine.communication.collectives import Collectives, find_collectives
from perfkit.engine.operators import names_cut, tabulate_operators
from perfkit.engine.steps.windows import Steps, find_trace_steps
from perfkit.engine.trace_findings import damage_findings, trace_findings
from perfkit.engine.trace_summary import NothingToAnalyseError, check_one_process
from perfkit.records.common import Observation
from perfkit.records.kernel_rules import KernelRule
from perfkit.records.per_rank.idle import IdleNs
from perfkit.records.rank import OperatorStat, StepBreakdown
from perfkit.trace.events import Events, Header, RankTrace
from perfkit.trace.intervals import Ints

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
        self.unmatched_marker: str | None = None
        """The marker of data loading, if it matches nothing."""
        if data_marker:
            trace = self._mark_loading(data_marker)
        self._graph_events = graph_events
        found = find_trace_steps(trace, step_marker, kernel_rules, most_steps)
        self.trace, self.names, self.device, steps, self.impossible = found
        if steps is None:
            raise NothingToAnalyseError(file, damage_findings(trace))
        check_one_process(trace.events, file, step_marker)
        self.steps: Steps = steps

    def _mark_loading(self, data_marker: str) -> RankTrace:
        from perfkit.engine.marked_loading import mark_loading

        self.trace, has_loading = mark_loading(self.trace, data_marker, self.step_marker)
        self.unmatched_marker = None if has_loading else data_marker
        return self.trace

    @property
    def events(self) -> Events:
        return self.trace.events

    @property
    def header(self) -> Header:
        return self.trace.header

    @property
    def is_light(self) -> bool:
        """Whether it was recorded without operators (`--trace-ranks`)."""
        return self.trace.is_light

    @property
    def has_device(self) -> bool:
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
        from perfkit.engine.samples import waits_in_operators

        return waits_in_operators(self.events, self.names, self.threads.main, self.samples)

    @cached_property
    def _found_collectives(self) -> tuple[Collectives, list[str]]:
        return find_collectives(self.events, self.names, self.device, self.activity, self.steps, self.header)

    @property
    def collectives(self) -> Collectives:
        return self._found_collectives[0]

    @property
    def unsized(self) -> list[str]:
        """The operators of collectives that the run's record of collectives does not match."""
        return self._found_collectives[1]

    @cached_property
    def own_findings(self) -> list[Observation]:
        """What has to be known of its file, device, steps and kernels."""
        return trace_findings(self)

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
        return tabulate_operators(self)

    @property
    def operators(self) -> list[OperatorStat]:
        """Kernels and host operators by time."""
        return self._operators[0]

    @cached_property
    def pipeline_spans(self) -> "PipelineSpans | None":
        """When a pipeline's micro-batches were computed; None without any."""
        from perfkit.engine.pipelines.actions import find_pipeline_spans

        return find_pipeline_spans(self)

    @cached_property
    def pipeline_actions(self) -> "PipelineActions | None":
        """What it computed of a pipeline's micro-batches; None without any."""
        from perfkit.engine.pipelines.actions import find_pipeline_actions

        return find_pipeline_actions(self)

    @cached_property
    def _host_time(self) -> "tuple[Host, Threads]":
        from perfkit.engine.idle.attribution import host_time

        return host_time(self)

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
        return self._host_time[0]

    @property
    def threads(self) -> "Threads":
        return self._host_time[1]

    @cached_property
    def idle(self) -> "Idle":
        from perfkit.engine.idle.tabulate import explain_idle

        return explain_idle(self)

    @cached_property
    def loads(self) -> Ints:
        """Its data-loading annotations that bring a batch."""
        own = self.header.perfkit
        return load_rows(self.events, self.names, self.steps, (own and own.without_batch) or ())

    def break_down(self, *, with_causes: bool) -> list[StepBreakdown]:
        """Return its steps by category; causes of idle time are zero unless asked for."""
        causes = self.idle.steps if with_causes else [_NO_CAUSES] * len(self.steps.number)
        return break_down(self.events, self.loads, self.activity, self.steps, causes)

    @cached_property
    def phases(self) -> "HostPhases":
        """The phases of its host threads."""
        from perfkit.engine.steps.passes import HostPhases

        return HostPhases(self.events, self.steps)

    @property
    def passes(self) -> "Passes":
        return self.phases.passes

    @cached_property
    def layers(self) -> "Layers":
        from perfkit.engine.communication.issue_sites import find_layers

        return find_layers(self.events, self.collectives.issue_row)

    @cached_property
    def located(self) -> "Located":
        """Its work, and the modules, functions and operators that each piece belongs to."""
        from perfkit.engine.attribution.views import Located

        return Located(self)

    @cached_property
    def graph(self) -> "RankGraph":
        """Its part of the graph of steps."""
        from perfkit.engine.step_graph.rank.build import build_rank_graph

        return build_rank_graph(self, self._graph_events)


_NO_CAUSES = IdleNs()
