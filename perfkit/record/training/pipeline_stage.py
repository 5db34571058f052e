"""A stage of a pipeline that annotates what it computes, and lists what it sends and receives."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage
from torch.profiler import record_function

from perfkit.phases import ActionKind, Phase, action_annotation
from perfkit.record.recording.recording import Recording
from perfkit.records.trace_header import RecordedMessage

MOST_MESSAGES: Final = 20_000
"""Most sends and receives of a step that are listed in a trace's header."""


class MessageLog:
    """The sends and receives of one step of all stages of a rank, in order of issue.

    torch's schedules issue them in the order in which they ask the stages for them.
    """

    def __init__(self) -> None:
        self._messages: list[RecordedMessage] = []

    def clear(self) -> None:
        self._messages = []

    def add(self, operations: list[dist.P2POp], operator: str, stage: int, micro_batch: int) -> None:
        if len(self._messages) <= MOST_MESSAGES:
            self._messages += [
                RecordedMessage(operator=operator, peer=operation.peer, stage=stage, micro_batch=micro_batch)
                for operation in operations
            ]

    def taken(self) -> list[RecordedMessage] | None:
        """Return the messages of the step; None if there are too many."""
        return self._messages if len(self._messages) <= MOST_MESSAGES else None


class AnnotatedStage(PipelineStage):
    """A stage whose computations are annotated, by phase and by micro-batch; waiting for other stages is not."""

    recording: Recording | None = None
    """Of the step in progress; none while torch finds out the shapes."""
    log: MessageLog | None = None
    _latest: int = 0
    """The micro-batch of its latest forward."""

    def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **options: Any) -> Any:
        self._latest = fwd_chunk_id
        with self._action("forward", "F", fwd_chunk_id):
            return super().forward_one_chunk(fwd_chunk_id, *args, **options)

    @contextmanager
    def loss(self) -> Iterator[None]:
        """Annotate the loss of the micro-batch whose forward was the latest, as part of it."""
        with self._action("forward", "F", self._latest):
            yield

    def backward_one_chunk(
        self, bwd_chunk_id: int, loss: Any = None, full_backward: bool = True, last_backward: bool = False
    ) -> Any:
        with self._action("backward", "B" if full_backward else "I", bwd_chunk_id):
            return super().backward_one_chunk(bwd_chunk_id, loss, full_backward, last_backward)

    def backward_weight_one_chunk(self, bwd_chunk_id: int, last_backward: bool = False) -> Any:
        with self._action("backward", "W", bwd_chunk_id):
            return super().backward_weight_one_chunk(bwd_chunk_id, last_backward)

    def get_fwd_recv_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
        return self._noted(super().get_fwd_recv_ops(fwd_chunk_id), "recv", fwd_chunk_id)

    def get_bwd_recv_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
        return self._noted(super().get_bwd_recv_ops(bwd_chunk_id), "recv", bwd_chunk_id)

    def get_fwd_send_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
        return self._noted(super().get_fwd_send_ops(fwd_chunk_id), "send", fwd_chunk_id)

    def get_bwd_send_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
        return self._noted(super().get_bwd_send_ops(bwd_chunk_id), "send", bwd_chunk_id)

    @contextmanager
    def _action(self, phase: Phase, kind: ActionKind, micro_batch: int) -> Iterator[None]:
        assert self.recording is not None  # noqa: S101
        with record_function(action_annotation(self.stage_index, kind, micro_batch)), self.recording.phase(phase):
            yield

    def _noted(self, operations: list[dist.P2POp], operator: str, micro_batch: int) -> list[dist.P2POp]:
        if self.log is not None:
            self.log.add(operations, operator, self.stage_index, micro_batch)
        return operations
