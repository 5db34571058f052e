"""What is kept of one trace: small, however large the trace is."""

from typing import Any, Final

import numpy as np
from msgspec import Struct

from perfkit.base.parsing import check_pattern
from perfkit.engine.communication.collective_calls import CollectiveCalls
from perfkit.engine.pipelines.actions import PipelineActions
from perfkit.engine.step_graph.rank.rank_graph import RankGraph
from perfkit.engine.steps.marks import step_names
from perfkit.engine.steps.pauses import TracedPause
from perfkit.errors import TraceError
from perfkit.records.common import Observation
from perfkit.records.kernel_rules import KernelRuleUse
from perfkit.records.per_rank.idle import IdleTime, LaunchStats
from perfkit.records.per_rank.loading import RankLoading
from perfkit.records.per_rank.operator_work import RankWork
from perfkit.records.per_rank.sharding import IssuedCollectives, ShardedParameters
from perfkit.records.per_rank.work import Work
from perfkit.records.rank import CollectiveStat, DeviceTimes, MemoryUse, OperatorStat, PhaseStat, StepBreakdown
from perfkit.records.samples import CodeTime
from perfkit.trace.events import EventKind, Events, Header

MOST_STEPS: Final = 20_000
"""Most steps that are analysed of a trace: a report has a record for each."""

_MOST_LISTED: Final = 4
_MOST_OF_NAME: Final = 20

NO_IDLE: Final = IdleTime(causes=[], kernels=0, short_kernels=0, has_python_frames=False)


class TraceSummary(Struct, frozen=True, kw_only=True):
    """Summary of a trace: picklable. What has a default belongs to a subject, which may not have been asked for."""

    header: Header
    has_device: bool
    steps: list[StepBreakdown]
    """Without the subject `idle`, their causes of idle time are zero."""
    operators: list[OperatorStat]
    collectives: list[CollectiveStat]
    calls: CollectiveCalls
    communicated: bool
    """Whether the trace contains any communication; without a world size, several devices communicate by themselves."""
    rule_uses: list[KernelRuleUse] = []
    """What each of the user's rules for kernels did."""
    pauses: list[TracedPause] = []
    counts: dict[str, int]
    findings: list[Observation]
    issued_collectives: list[IssuedCollectives] = []
    sharded_parameters: ShardedParameters | None = None
    phases: list[PhaseStat] = []
    memory: list[MemoryUse] = []
    idle: IdleTime = NO_IDLE
    devices: list[DeviceTimes] = []
    """Where several compute; else empty."""
    operator_work: RankWork | None = None
    """None if no shapes were recorded, or no activity of the device that worked: how long its work took is unknown."""
    launches: LaunchStats | None = None
    """None if no launches were recorded."""
    work: Work | None = None
    loading: RankLoading | None = None
    """None if the trace does not contain how batches were fetched."""
    code: list[CodeTime] = []
    pipeline: PipelineActions | None = None
    """None if no micro-batches of a pipeline are annotated."""
    graph: RankGraph | None = None
    subjects: dict[str, Any] = {}
    """Records of the subjects that packages add, as built-in types, by name."""


class NothingToAnalyseError(TraceError):
    """The trace contains neither steps nor work; `damage` may explain it."""

    def __init__(self, file: str, damage: list[Observation]) -> None:
        super().__init__(f"{file}: no host operators, device activity or steps: nothing to analyse")
        self.damage = damage


def check_one_process(events: Events, file: str, step_marker: str | None) -> None:
    """Raise TraceError if a trace is of several processes: if any of these kinds of host events are.

    Its ranks would be taken for threads of one.
    """
    annotations = events.rows(EventKind.ANNOTATION)
    markers = annotations[step_names(events, annotations, step_marker)[events.name[annotations]]]
    for rows in (events.is_of(EventKind.OPERATOR), events.is_of(EventKind.LAUNCH), markers):
        threads = np.unique(events.thread[rows]).tolist() if events.threads else []
        pids = list(dict.fromkeys(repr(events.threads[thread][0])[:_MOST_OF_NAME] for thread in threads))
        if len(pids) > 1:
            listed = ", ".join([*pids[:_MOST_LISTED], *(["…"] if len(pids) > _MOST_LISTED else [])])
            raise TraceError(
                f"{file}: has the events of {len(pids)} processes ({listed}): analyse the trace of each one by itself"
            )


def check_markers(step_marker: str | None, data_marker: str | None = None) -> None:
    """Raise UsageError unless both are regular expressions."""
    check_pattern(step_marker or "", "--step-marker")
    check_pattern(data_marker or "", "--data-marker")
