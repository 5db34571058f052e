"""Traces of pipelines that are replicated, data-parallel, on devices: what a late rank costs is known."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from tests.support.traces.device_pipeline import DevicePipeline
from tests.support.traces.pipeline_builder import Span, one_forward_one_backward, simulate
from tests.support.traces.trace_builder import collective_args

_REDUCE_US: Final = 100
"""What the sum of a stage's gradients takes once both replicas are there."""
_ALL_REDUCE: Final = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"

Delay = Callable[[int, int], int]
"""How much longer a rank takes in a step (us): arguments are its number and the step's."""


def none(_rank: int, _step: int) -> int:
    """No delay."""
    return 0


class Work(NamedTuple):
    """What ranks do."""

    time: Callable[[int, str, int, int], int]
    """Time of an action (us): stage, kind, rank and step."""
    compute: Delay = none
    """Beyond that, evenly over the rank's actions."""
    load: Delay = none
    """Loading data before the first action."""
    stages: int = 2
    replicas: int = 2
    batches: int = 4


class _Replica(DevicePipeline):
    def add_step(
        self, number: int, start: int, spans: Sequence[Sequence[Span]], summed: Sequence[int], length: int, work: Work
    ) -> None:
        """Add a step in which the gradients of each stage are `summed` at some time (us after its start)."""
        for stage, own in enumerate(spans):
            rank, builder = self.ranks[stage], self.builders[stage]
            builder.step(number, start, length)
            loading = work.load(rank, number)
            if loading:
                builder.data_loading(start + 1, loading)
            host, free = start + 2 + loading, start + loading
            for before, span in pairwise([None, *own, None]):
                end = start + span.begin if span else (before.end if before else 0) + start + 20
                for together in self._batches(self._messages(stage, before, span)):
                    host = self._send_and_receive(stage, host, together, free, end)
                    free += 15
                if span is not None:
                    host = self._action(stage, host, span, 100 * number + span.action[2], start)
                    free = start + span.end
            self._sum(stage, host, start + own[-1].end + 30, start + summed[stage], work)
            end = start + length - 5
            # The norm of all gradients.
            args = collective_args("allreduce", 1, 1, "Float", "3", self.description, self.ranks, None)
            builder.op("c10d::allreduce_", host + 10, 8).op("record_param_comms", host + 11, 6, args=args)
            begin = start + summed[stage] + 5
            self._launch(stage, _ALL_REDUCE, host + 12, begin, end - 15 - begin, args)
            builder.op("aten::item", host + 20, end - host - 20)
            self._launches[stage] += 1
            builder.launch(self._launches[stage], host + 21, end - host - 22, name="cudaStreamSynchronize")

    def _sum(self, stage: int, host: int, begin: int, end: int, work: Work) -> None:
        members = [stage * work.replicas + replica for replica in range(work.replicas)]
        args = collective_args("allreduce", 9, 9, "Float", f"dp{stage}", "mesh_dp", members, None)
        self.builders[stage].op("c10d::allreduce_", host, 8).op("record_param_comms", host + 1, 6, args=args)
        self._launch(stage, _ALL_REDUCE, host + 2, begin, end - begin, args)


def train(folder: Path, steps: int, work: Work) -> float:
    """Write the traces of a run, 1F1B with rank `replicas * stage + replica`, and return its mean step (us)."""
    size = work.stages * work.replicas
    lines = [
        _Replica(range(replica, size, work.replicas), size, batched=False) for replica in range(work.replicas)
    ]
    start = 1000
    for number in range(steps):
        spans = [_spans(line.ranks, number, work) for line in lines]
        last = [max(own[stage][-1].end for own in spans) + 30 + _REDUCE_US for stage in range(work.stages)]
        length = max(last) + 100
        for line, own in zip(lines, spans, strict=True):
            line.add_step(number, start, own, last, length, work)
        start += length
    folder.mkdir(parents=True, exist_ok=True)
    for line in lines:
        for rank, builder in zip(line.ranks, line.builders, strict=True):
            builder.write(folder / f"rank{rank}.json")
    return (start - 1000) / steps


def _spans(ranks: Sequence[int], number: int, work: Work) -> list[list[Span]]:
    def time(stage: int, kind: str) -> int:
        rank = ranks[stage]
        return work.time(stage, kind, rank, number) + work.compute(rank, number) // (2 * work.batches)

    loading = [work.load(rank, number) for rank in ranks]
    return simulate(one_forward_one_backward(len(ranks), work.batches), time, 20, free=loading)
