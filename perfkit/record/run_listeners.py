"""What listens to the steps of a run whose ranks can communicate: of a workload, and of a user's own loop."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import nn

from perfkit.options.recording import RecordingOptions
from perfkit.options.schedule import Schedule
from perfkit.record.distributed.rank_group import ProcessRankGroup
from perfkit.record.distributed.topology import Topology
from perfkit.record.hangs.messages import count_messages
from perfkit.record.hangs.processes import absent_ranks
from perfkit.record.hangs.report import HangReporter
from perfkit.record.hangs.step_watch import StepWatch
from perfkit.record.hangs.worker_stacks import remove_requests
from perfkit.record.lifecycle.failure_guard import record_failure
from perfkit.record.on_demand.agent import CaptureAgent
from perfkit.record.process_stat import ProcessIdentity
from perfkit.record.recording.manifest_writer import manifest_fields, rank_record, write_completed_manifest
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
        more: Callable[[], dict[str, Any]] = dict,
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
        write_completed_manifest(
            self._ranks, self._topology, folder, measured, work=self._work, model=self._model, **more
        )

    def fail(self, error: BaseException, /) -> None:
        record_failure(self._recording.folder, self._ranks.rank, error, self.fields_after_failure)

    def fields_after_failure(self) -> dict[str, Any]:
        """Return the fields that this rank knows, without waiting for another rank or a device."""
        measured = self._recording.measurements(wait=False)
        unknown = {"unknown": measured.unknown} if measured.unknown else {}
        ranks = [rank_record(self._ranks.rank, self._topology, measured)]
        return {"ranks": ranks, **manifest_fields(measured, self._work, self._model), **unknown}


def listen(
    recording: Recording,
    topology: Topology,
    options: RecordingOptions,
    schedule: Schedule | None,
    processes: Sequence[ProcessIdentity],
    manifest: ManifestListener,
    samples: float | None,
    *,
    watch_hangs: bool = True,
) -> CaptureAgent:
    """Let everything that the options request follow the steps of a recording.

    Args:
        recording: Not begun yet.
        samples: Samples of a rank per step, for published metrics; None if unknown.
        watch_hangs: Whether to watch for steps that do not end.
    """
    if recording.monitor is not None and topology.local_rank == 0:
        recording.monitor.publish(options.metrics_port, options.otlp, recording.folder, samples)
    captures = CaptureAgent(recording, topology, schedule, options.capture_rules)
    recording.listeners = [manifest, *recording.listeners, captures]
    if watch_hangs:
        recording.listeners.append(_watch(recording, captures, options, processes))
    return captures


def _watch(
    recording: Recording, captures: CaptureAgent, options: RecordingOptions, processes: Sequence[ProcessIdentity]
) -> StepWatch:
    by_rank = dict(enumerate(processes))
    if len(by_rank) > 1:
        count_messages()
    reporter = HangReporter(recording.rank, options.on_hang, lambda: absent_ranks(by_rank), lambda: by_rank)
    return StepWatch(
        recording.folder,
        recording.rank,
        len(by_rank),
        options.hang_after_s,
        reporter.report,
        reporter.end_with_others,
        is_busy=lambda: recording.writing or captures.writing or recording.pauses.in_progress,
        absent=lambda: absent_ranks(by_rank),
    )
