"""Traces of pipelines on devices, as torch and NCCL leave them: without annotations, the host ahead of the device."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from tests.support.traces.pipeline_builder import Order, Span, simulate
from tests.support.traces.trace_builder import TraceBuilder, collective_args

KERNEL: Final = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
_EVALUATES: Final = "autograd::engine::evaluate_function: "
_MAIN, _AUTOGRAD = 1, 2
_COMPUTE, _NETWORK = 7, 20


class Message(NamedTuple):
    """A send or receive of a rank."""

    operator: str
    peer: int


class DevicePipeline:
    """Writes the traces of one pipeline.

    Args:
        ranks: rank of each stage.
        world_size: number of ranks.
        batched: whether messages are issued together (`batch_isend_irecv`): one kernel without metadata follows them.
        named: whether the program names the group of the pipeline.
    """

    def __init__(self, ranks: Sequence[int], world_size: int, *, batched: bool, named: bool = True) -> None:
        self.ranks, self.batched, self.description = tuple(ranks), batched, "mesh_pp" if named else "undefined"
        self.builders = [TraceBuilder(rank, world_size, backend="nccl", host_name="a") for rank in ranks]
        listed = [
            {"pg_name": "0", "pg_desc": "default_pg", "ranks": list(range(world_size))},
            {"pg_name": "3", "pg_desc": self.description, "ranks": list(ranks)},
        ]
        for rank, builder in zip(ranks, self.builders, strict=True):
            info = {"backend": "nccl", "rank": rank, "world_size": world_size, "pg_config": listed}
            builder.header(distributedInfo=info)
        self._launches = [0] * len(ranks)

    def step(self, number: int, start: int, orders: Sequence[Order], time: Callable[[int, str], int]) -> int:
        """Add a step that begins at `start` (us), and return when it ends."""
        spans = simulate(orders, time, delay=20)
        length = max(own[-1].end for own in spans) + 200
        for stage, own in enumerate(spans):
            self.builders[stage].step(number, start, length)
            self._rank(stage, number, start, own, length)
        return start + length

    def _rank(self, stage: int, number: int, start: int, spans: Sequence[Span], length: int) -> None:
        """Add what one rank does in a step: the host issues all of it in the first quarter of a millisecond or so."""
        host, free = start + 1, start
        for before, span in pairwise([None, *spans, None]):
            messages = self._messages(stage, before, span)
            end = start + span.begin if span else (before.end if before else 0) + start + 20
            for together in self._batches(messages):
                host = self._send_and_receive(stage, host, together, free, end)
                free += 15  # of a send before a receive
            if span is not None:
                host = self._action(stage, host, span, 100 * number + span.action[2], start)
                free = start + span.end
        # The norm of all gradients: the host waits for the result.
        args = collective_args("allreduce", 1, 1, "Float", "3", self.description, self.ranks, None)
        last, builder = start + spans[-1].end + 30, self.builders[stage]
        builder.op("c10d::allreduce_", host, 8).op("record_param_comms", host + 1, 6, args=args)
        self._launch(stage, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", host + 2, last, start + length - 20 - last, args)

    def _messages(self, stage: int, before: Span | None, after: Span | None) -> list[Message]:
        """Return the sends of what the rank has computed, and the receives of what it computes next."""
        found = []
        if before is not None:
            to = stage + (1 if before.action[1] == "F" else -1)
            found += [Message("send", self.ranks[to])] if 0 <= to < len(self.ranks) else []
        if after is not None:
            of = stage - (1 if after.action[1] == "F" else -1)
            found += [Message("recv", self.ranks[of])] if 0 <= of < len(self.ranks) else []
        return found

    @staticmethod
    def _batches(messages: list[Message]) -> list[list[Message]]:
        """Return what torch's and Megatron-LM's 1F1B issue together: a send to a neighbour and a receive from it."""
        apart = len({message.peer for message in messages}) > 1
        return [[message] for message in messages] if apart else [messages] if messages else []

    def _send_and_receive(self, stage: int, host: int, messages: Sequence[Message], begin: int, end: int) -> int:
        """Add messages that run from `begin` to `end` on the device; return when the host has issued them."""
        for message in messages:
            side = "Dst Rank" if message.operator == "send" else "Src Rank"
            args = collective_args(message.operator, 8, 8, "Float", "3", self.description, self.ranks, None)
            args[side] = message.peer
            name = "c10d::send" if message.operator == "send" else "c10d::recv_"
            self.builders[stage].op(name, host, 6).op("record_param_comms", host + 1, 4, args=args)
            if not self.batched:
                until = begin + 15 if message.operator == "send" else end
                at = begin if message.operator == "send" or len(messages) == 1 else begin + 15
                self._launch(stage, KERNEL, host + 2, at, max(1, until - at), args)
            host += 7
        if self.batched:
            until = end if any(message.operator == "recv" for message in messages) else begin + 15
            self._launch(stage, KERNEL, host, begin, max(1, until - begin), None)
            host += 4
        return host

    def _action(self, stage: int, host: int, span: Span, sequence: int, start: int) -> int:
        """Add the operators of one action and its kernel; return when the host has issued them."""
        builder, (_, kind, _) = self.builders[stage], span.action
        if kind == "F":
            builder.op("aten::mm", host, 10, args={"Sequence number": sequence, "Fwd thread id": 0})
            self._launch(stage, "gemm", host + 3, start + span.begin, span.end - span.begin, None)
            return host + 12
        numbered = {"Sequence number": sequence, "Fwd thread id": 1}
        builder.op(f"{_EVALUATES}MmBackward0", host, 10, _AUTOGRAD, args=numbered)
        self._launch(stage, "gemm", host + 3, start + span.begin, span.end - span.begin, None, thread=_AUTOGRAD)
        builder.op(f"{_EVALUATES}torch::autograd::AccumulateGrad", host + 10, 4, _AUTOGRAD)
        return host + 16

    def _launch(
        self,
        stage: int,
        kernel: str,
        host: int,
        begin: int,
        length: int,
        args: dict[str, object] | None,
        *,
        thread: int = _MAIN,
    ) -> None:
        self._launches[stage] += 1
        number, stream = self._launches[stage], _COMPUTE if kernel == "gemm" else _NETWORK
        builder = self.builders[stage].launch(number, host, 2, thread)
        builder.kernel(kernel, begin, length, number, stream, args=args)
