"""The recording of a script on one rank, from the end of its first step to what it leaves in the run's folder."""

from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import torch

from perfkit.errors import RunError, UsageError
from perfkit.options.conditions import CaptureRules
from perfkit.options.script import ScriptConfig
from perfkit.options.trace_ranks import check_ranks_exist, is_light
from perfkit.record.distributed.topology import Topology
from perfkit.record.endings import exit_cause
from perfkit.record.lifecycle.failure_guard import record_failure
from perfkit.record.messages import one_line, print_warning
from perfkit.record.on_demand.agent import CaptureAgent
from perfkit.record.recording.manifest_writer import RunDescription, StepMeasurements, rank_record
from perfkit.record.recording.pause_log import PauseLog
from perfkit.record.recording.profiler_options import ProfilerOptions
from perfkit.record.recording.recording import Recording
from perfkit.record.recording.side_profilers import make_recorders
from perfkit.record.script.coordination import ScriptRankGroup
from perfkit.record.script.hang_watch import Cause, ScriptHangWatch, cause_of_end, find_first_cause
from perfkit.record.script.manifest_assembly import (
    UNKNOWN_FIELDS,
    assemble_manifest,
    fields_of_failed,
    read_exit_records,
    remove_exit_records,
    write_exit_record,
)
from perfkit.record.script.outcome import OutcomeReporter, describe_steps
from perfkit.record.script.samples import SampleCounter
from perfkit.record.script.step_counter import StepCounter
from perfkit.record.step_listener import PauseState
from perfkit.records.manifest import RankRecord, StepKind
from perfkit.storage.run_folder import FAILURE_NAME, read_failure, read_manifest


def make_recording(
    config: ScriptConfig, ranks: ScriptRankGroup, device: torch.device, folder: Path, pauses: PauseState
) -> Recording:
    options = {name: getattr(config, name) for name in ProfilerOptions.__struct_fields__}
    recording = Recording(
        ranks,
        device,
        folder,
        config.plan,
        options=ProfilerOptions(**options),
        workload=config.workload,
        source=config.source,
        recorders=make_recorders(config),
        sampling=config.sampling,
        light=_is_light(config, ranks),
    )
    recording.pauses = PauseLog(pauses)
    return recording


def _is_light(config: ScriptConfig, ranks: ScriptRankGroup) -> bool:
    try:
        check_ranks_exist(config.trace_ranks, ranks.world_size)
    except UsageError as error:  # how many there are is known when the script has begun
        if ranks.rank == 0:
            print_warning(one_line(error))
    return is_light(config.trace_ranks, config.detail, rank=ranks.rank, local_rank=ranks.info.local_rank)


def possible_captures(config: ScriptConfig, topology: Topology, ranks: ScriptRankGroup) -> CaptureRules:
    """Return the conditions of captures; what a script's ranks and device rule out is reported, and left out."""
    rules = config.capture_rules
    try:
        rules.refuse_unseen_waits(ranks.world_size, topology.device)
    except UsageError as error:
        if ranks.rank == 0:
            print_warning(one_line(error))
        return msgspec.structs.replace(rules, conditions=tuple(c for c in rules.conditions if c != rules.late))
    return rules


def describe_run(config: ScriptConfig, script: dict[str, Any]) -> RunDescription:
    """Return what is run; `script` has what the options do not."""
    return RunDescription(
        workload=config.workload,
        source=config.source,
        config=script | msgspec.to_builtins(config),
        unknown=UNKNOWN_FIELDS,
    )


class ScriptRun:
    """What exists of a recording once the first step of the script has ended.

    Args:
        hangs: Watches for steps that do not end.
        cold_ns: How long step 0 took: from the start of the script to the end of its first step.
    """

    def __init__(
        self,
        recording: Recording,
        ranks: ScriptRankGroup,
        topology: Topology,
        hangs: ScriptHangWatch,
        captures: CaptureAgent,
        cold_ns: int,
        samples: SampleCounter,
    ) -> None:
        self.recording = recording
        self.ranks = ranks
        self.hangs = hangs
        self.captures = captures
        self._topology = topology
        self._cold_ns = cold_ns
        self._samples = samples
        self._measured: StepMeasurements | None = None

    def fail_at_once(self, error: BaseException) -> None:
        """Mark the run as failed where nothing more can be waited for, and leave nothing that only a run needs."""
        cause = cause_of_end(self.recording.folder, self.ranks.rank, error)
        record_failure(self.recording.folder, cause.rank, cause.error, None)
        self.captures.run_failed()
        remove_exit_records(self.recording.folder)

    def stop(self, error: BaseException | None) -> None:
        """Stop recording and timing; the run's folder is completed when the script ends."""
        self.ranks.stop_waiting()
        # After an error a device may wait for a rank that is gone.
        wait = error is None or self.ranks.world_size == 1 or self._topology.device == "cpu"
        if wait:
            self.recording.end_schedule(write=True)
        self._measured = self._measurements(wait)

    def leave_record(self) -> None:
        """Write what was measured now that the schedule is over: the script may end where no code of ours runs."""
        recording, ranks = self.recording, self.ranks
        measured = self._measurements(wait=False)
        record = self._record(measured)
        write_exit_record(recording.folder, record, measured.kinds, self._samples.result(), ended=False)
        assemble_manifest(recording.folder, ranks.world_size, ranks.info.launcher)

    def complete(self, error: BaseException | None, counter: StepCounter, outcome: OutcomeReporter) -> None:
        """Write this rank's part of the manifest, and the whole of it if this rank failed first or ended last."""
        measured = self._measured or self._measurements(wait=False)
        record = self._record(measured)
        if error is not None:
            self._complete_failed(error, record, measured.kinds, counter.count, outcome)
        elif not (self.recording.folder / FAILURE_NAME).exists():
            write_exit_record(self.recording.folder, record, measured.kinds, self._samples.result())
            self._complete_ended(counter, outcome)

    def leave_at_once(self, code: int, counter: StepCounter, outcome: OutcomeReporter) -> None:
        """Write this rank's part of the manifest where the process is about to end, and nothing can be waited for.

        Args:
            code: With which exit code it ends. Another than 0 is a failure, which the last rank to end records: the
                others may lose their connections by it, and then say what they waited for.

        Raises:
            StoreError: The manifest cannot be read or written.
        """
        folder = self.recording.folder
        has_failed = (folder / FAILURE_NAME).exists()
        if not has_failed:  # first: without it, this rank would be taken for one that was killed
            measured = self._measured or self._measurements(wait=False)
            record = self._record(measured)
            write_exit_record(folder, record, measured.kinds, self._samples.result(), code=code)
        self.hangs.stop(None)
        if self.captures.recording_in_progress is None:  # else the steps that it has recorded are lost
            self.recording.end_followers(SystemExit(code) if code else None)
        if not has_failed:
            outcome.prints_answer = False
            self._complete_ended(counter, outcome)
        self.ranks.stop_waiting()

    def _complete_failed(
        self,
        error: BaseException,
        record: RankRecord,
        kinds: list[StepKind],
        steps: int,
        outcome: OutcomeReporter,
    ) -> None:
        recording, ranks = self.recording, self.ranks
        left = read_exit_records(recording.folder)
        fields = partial(fields_of_failed, recording.folder, record, kinds, left, self._samples.result())
        try:
            ended_by = exit_cause(error)
            cause = self.hangs.explain(find_first_cause(recording.folder, ranks.rank, ended_by), ended_by)
            if record_failure(recording.folder, cause.rank, cause.error, fields):
                outcome.report_failure(recording.folder, cause.rank, ranks.world_size, steps, cause)
        finally:  # also where whoever started the ranks ends this one meanwhile
            self.hangs.forget_turn()
            remove_exit_records(recording.folder)

    def _complete_ended(self, counter: StepCounter, outcome: OutcomeReporter) -> None:
        folder, ranks = self.recording.folder, self.ranks
        reported = read_manifest(folder).state == "completed"  # this rank began after the others had ended
        if assemble_manifest(folder, ranks.world_size, ranks.info.launcher):
            if len(read_manifest(folder).ranks) == ranks.world_size:
                ranks.clear()  # not before: a rank that steps later must find the folder
            failure = read_failure(folder)
            if failure is not None:
                cause = Cause(failure.rank, RunError(failure.message))
                outcome.report_failure(folder, failure.rank, ranks.world_size, counter.count, cause)
            elif not reported:
                outcome.report_end(folder, describe_steps(counter))

    def _record(self, measured: StepMeasurements) -> RankRecord:
        record = rank_record(self.ranks.rank, self._topology, measured)
        return msgspec.structs.replace(record, check=self._samples.check())

    def _measurements(self, wait: bool) -> StepMeasurements:
        """Return what was measured and can be known of a script; step 0 is timed from the script's start."""
        measured = self.recording.measurements(wait=wait)
        first = [self._cold_ns] if measured.wall_ns else []
        return msgspec.structs.replace(measured, wall_ns=first + measured.wall_ns[1:], load_ns=[], loss=[])
