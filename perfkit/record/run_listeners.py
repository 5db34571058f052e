"""What listens to the steps of a run: of a workload, a script, a user's own loop, a framework's callbacks."""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from torch import nn

from perfkit.options.conditions import CaptureRules
from perfkit.options.recording import RecordingOptions
from perfkit.options.schedule import Schedule
from perfkit.record.distributed.rank_group import ProcessRankGroup
from perfkit.record.distributed.topology import Topology
from perfkit.record.hangs.messages import count_messages
from perfkit.record.hangs.report import DiagnosedWatch
from perfkit.record.hangs.step_watch import StepWatch
from perfkit.record.hangs.worker_stacks import remove_requests
from perfkit.record.lifecycle.failure_guard import record_failure
from perfkit.record.monitor.publisher import Publisher
from perfkit.record.on_demand.agent import CaptureAgent
from perfkit.record.process_stat import ProcessIdentity
from perfkit.record.recording.manifest_writer import (
    MeasuredAtEnd,
    manifest_fields,
    rank_record,
    write_completed_manifest,
)
from perfkit.record.recording.recording import Recording
from perfkit.record.recording.throughput import StepWork
from perfkit.record.step_listener import StepListener


class ManifestListener(StepListener):
    """Writes the manifest when the steps have ended, or have failed."""

    def __init__(
        self,
        recording: Recording,
        ranks: ProcessRankGroup,
        topology: Topology,
        work: StepWork | None,
        model: nn.Module | None = None,
        more: Callable[[], MeasuredAtEnd] = MeasuredAtEnd,
    ) -> None:
        self._recording = recording
        self._ranks = ranks
        self._topology = topology
        self._work = work
        self._model = model
        self._more = more

    def end(self) -> None:
        """Complete the manifest; all ranks do so together."""
        folder = self._recording.folder
        if self._ranks.rank == 0:
            remove_requests(folder)
        more = self._more()
        measured = self._recording.measurements()
        write_completed_manifest(self._ranks, self._topology, folder, measured, self._work, self._model, more)

    def fail(self, error: BaseException, /) -> None:
        record_failure(self._recording.folder, self._ranks.rank, error, self.fields_after_failure)

    def fields_after_failure(self) -> dict[str, Any]:
        """Return the fields that this rank knows, without waiting for another rank or a device."""
        measured = self._recording.measurements(wait=False)
        unknown = {"unknown": measured.unknown} if measured.unknown else {}
        ranks = [rank_record(self._ranks.rank, self._topology, measured)]
        return {"ranks": ranks, **manifest_fields(measured, self._work, self._model), **unknown}


class FollowedRun(NamedTuple):
    """A recording that is to begin, and what its listeners depend on."""

    recording: Recording
    topology: Topology
    options: RecordingOptions
    schedule: Schedule | None
    samples: float | None
    """Of a rank per step; None if unknown."""
    rules: CaptureRules | None = None
    """When the run records by itself; None: as the options say."""
    load_ns: Callable[[], int | None] | None = None
    """Returns how long the last step waited for its batch, None if unknown; without it the recording knows."""


def _publisher(run: FollowedRun) -> StepListener | None:
    is_wanted = run.options.is_monitored and run.topology.local_rank == 0
    return Publisher(run.recording.folder, run.options, run.samples) if is_wanted else None


LISTENERS: Final[list[Callable[[FollowedRun], StepListener | None]]] = [_publisher]
"""What options of recordings do: each returns a listener of the run, None if the run does not ask for it. Workloads,
scripts, loops of the user's own and frameworks' callbacks have the same."""


def listen(run: FollowedRun, manifest: ManifestListener | None, watch: StepWatch | None) -> CaptureAgent:
    """Let everything that the options ask for follow the steps of a recording.

    Args:
        manifest: None for a script, whose ranks end one by one.
        watch: Watches for steps that do not end, if anything does.
    """
    rules = run.options.capture_rules if run.rules is None else run.rules
    captures = CaptureAgent(run.recording, run.topology, run.schedule, rules, run.load_ns)
    first = [manifest, *(make(run) for make in LISTENERS)]
    listeners = [*first, *run.recording.listeners, captures, watch]
    run.recording.listeners = [listener for listener in listeners if listener is not None]
    return captures


def watch_steps(recording: Recording, options: RecordingOptions, processes: Sequence[ProcessIdentity]) -> StepWatch:
    """Return the watch for steps of a rank that do not end; `processes` are those of all ranks."""
    by_rank = dict(enumerate(processes))
    if len(by_rank) > 1:
        count_messages()
    return DiagnosedWatch(
        recording.folder,
        recording.rank,
        len(by_rank),
        options,
        lambda: by_rank,
        lambda: recording.writing or recording.pauses.in_progress,
    )
