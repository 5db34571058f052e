"""Marks the run of a user's own loop as failed, if an error ends it."""

from torch import nn

from perfkit.capture.distributed.rank_group import ProcessRankGroup
from perfkit.capture.distributed.topology import Topology
from perfkit.capture.hangs.step_watch import StepWatch
from perfkit.capture.lifecycle.failure_guard import record_failure
from perfkit.capture.on_demand.agent import CaptureAgent
from perfkit.capture.recording.manifest_writer import manifest_fields_after_failure
from perfkit.capture.recording.session import Session
from perfkit.capture.recording.throughput import StepWork


class MarkFailed:
    """Context manager that marks the run as failed after an error, and stops the profiler; the error is re-raised."""

    def __init__(
        self,
        session: Session,
        ranks: ProcessRankGroup,
        topology: Topology,
        work: StepWork | None,
        model: nn.Module | None,
        agent: CaptureAgent,
        hangs: StepWatch | None,
    ) -> None:
        self._agent = agent
        self._hangs = hangs
        self._session = session
        self._ranks = ranks
        self._topology = topology
        self._work = work
        self._model = model

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None or self._session.is_forked:
            return
        if self._hangs is not None:
            # Of an interrupted run there is nothing to be explained.
            self._hangs.stop(None if isinstance(error, KeyboardInterrupt) else error)
        self._agent.close(failed=True)
        rank = self._ranks.rank
        record_failure(
            self._session.folder,
            rank,
            error,
            lambda: manifest_fields_after_failure(
                rank, self._topology, self._session.measurements(wait=False), self._work, self._model
            ),
        )
        if self._session.monitor is not None:
            self._session.monitor.close()
        # Stopping waits for the device, which may wait for a rank that is gone.
        if self._ranks.world_size == 1 or self._topology.device == "cpu":
            self._session.discard()
