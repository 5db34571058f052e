"""Traces of pipelines that follow a schedule exactly, for tests of the bubble."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from tests.support.traces.trace_builder import TraceBuilder

Order = list[tuple[int, str, int]]
"""Actions of one rank in order: stage, kind (`F` or `B`), micro-batch."""


def gpipe(ranks: int, micro_batches: int) -> list[Order]:
    """All forwards, then all backwards."""
    batches = range(micro_batches)
    return [[(rank, kind, batch) for kind in "FB" for batch in batches] for rank in range(ranks)]


def one_forward_one_backward(ranks: int, micro_batches: int) -> list[Order]:
    """A rank computes as many forwards first as ranks follow it, itself included; then backward and forward in turn."""
    orders = []
    for rank in range(ranks):
        ahead = min(micro_batches, ranks - rank)
        order: Order = [(rank, "F", batch) for batch in range(ahead)]
        for batch in range(micro_batches):
            order.append((rank, "B", batch))
            if batch + ahead < micro_batches:
                order.append((rank, "F", batch + ahead))
        orders.append(order)
    return orders


def looped(ranks: int, micro_batches: int, chunks: int) -> list[Order]:
    """Several stages on each rank: all forwards, stage by stage, then all backwards."""
    batches = range(micro_batches)
    stages = [[rank + ranks * chunk for chunk in range(chunks)] for rank in range(ranks)]
    return [
        [(stage, "F", batch) for stage in own for batch in batches]
        + [(stage, "B", batch) for stage in reversed(own) for batch in batches]
        for own in stages
    ]


class Span(NamedTuple):
    """An action in time (us)."""

    action: tuple[int, str, int]
    begin: int
    end: int


def simulate(
    orders: Sequence[Order],
    time: Callable[[int, str], int],
    delay: int = 0,
    slow: Mapping[tuple[int, str, int], int] | None = None,
    free: Sequence[int] | None = None,
) -> list[list[Span]]:
    """Return when each rank computes each action, if its time depends on stage and kind, and transfers take `delay`.

    Actions in `slow` take so much longer. Each rank computes from `free` on, at first it loads data.
    """
    last = max(stage for order in orders for stage, _, _ in order)
    end: dict[tuple[int, str, int], int] = {}
    spans: list[list[Span]] = [[] for _ in orders]
    while any(len(done) < len(order) for done, order in zip(spans, orders, strict=True)):
        for done, order, begins in zip(spans, orders, free or [0] * len(orders), strict=True):
            if len(done) == len(order):
                continue
            stage, kind, batch = order[len(done)]
            if kind == "F":
                needed = (stage - 1, "F", batch) if stage else None
            else:
                needed = (stage + 1, "B", batch) if stage < last else (stage, "F", batch)
            if needed is not None and needed not in end:
                continue
            moved = needed is not None and needed[0] != stage
            ready = 0 if needed is None else end[needed] + (delay if moved else 0)
            begin = max(ready, done[-1].end if done else begins)
            end[stage, kind, batch] = begin + time(stage, kind) + (slow or {}).get((stage, kind, batch), 0)
            done.append(Span((stage, kind, batch), begin, end[stage, kind, batch]))
    return spans


def traces(
    orders: Sequence[Order],
    times: Sequence[Callable[[int, str], int]],
    *,
    delay: int = 0,
    prefix: str = "perfkit.pipeline.",
    header: Mapping[str, object] | None = None,
    slow: Mapping[tuple[int, str, int], int] | None = None,
) -> list[TraceBuilder]:
    """Return a trace of each rank with a step for each of `times`: computation, and receives wherever a rank waits.

    All ranks end a step together. `header` adds to perfkit's part of the header. In the last step the actions in `slow`
    take so much longer.
    """
    builders = [
        TraceBuilder(rank, len(orders), backend="gloo", host_name="a").header(
            perfkit={"mesh": {"pp": len(orders)}, **(header or {})}
        )
        for rank in range(len(orders))
    ]
    start = 0
    for number, time in enumerate(times):
        by_rank = simulate(orders, time, delay, slow if number == len(times) - 1 else None)
        length = max(spans[-1].end for spans in by_rank)
        for builder, spans in zip(builders, by_rank, strict=True):
            builder.step(number, start, length)
            at = 0
            for (stage, kind, batch), begin, end in spans:
                if begin > at:
                    builder.gloo("recv", start + at, begin - at)
                builder.annotation(f"{prefix}{stage}{kind}{batch}", start + begin, end - begin)
                builder.op("aten::mm", start + begin, end - begin)
                at = end
            if length > at:  # it waits for the others
                builder.gloo("recv", start + at, length - at)
        start += length
    return builders


def unannotated(
    orders: Sequence[Order],
    times: Sequence[Callable[[int, str], int]],
    *,
    ranks: Sequence[int] | None = None,
    world_size: int | None = None,
    host: str | None = "a",
) -> list[TraceBuilder]:
    """Return traces of a program that does not annotate its pipeline: autograd's operators, sends and receives.

    Actions take some 100 us at least.

    Args:
        orders: what each stage computes.
        times: how long, in each step.
        ranks: rank of each stage; None for the stage's number.
        world_size: number of ranks; None for as many as there are stages.
        host: name of all ranks' host.
    """
    numbers = list(range(len(orders)) if ranks is None else ranks)
    builders = [TraceBuilder(rank, world_size or len(orders), backend="gloo", host_name=host) for rank in numbers]
    start, last = 0, max(stage for order in orders for stage, _, _ in order)
    for number, time in enumerate(times):
        by_stage = simulate(orders, time, delay=20)
        length = max(spans[-1].end for spans in by_stage) + 100
        for builder, spans in zip(builders, by_stage, strict=True):
            builder.step(number, start, length)
            free = 0
            for (stage, kind, batch), begin, end in spans:
                if stage != (0 if kind == "F" else last):
                    builder.op("c10d::recv_", start + free + 1, 1).gloo("recv", start + free + 1, begin + 5 - free)
                _autograd(builder, kind, 1000 * number + 100 * stage + batch, start + begin + 10, end - begin - 20)
                if stage != (last if kind == "F" else 0):
                    until = end if end < spans[-1].end else length  # at last it waits for the others
                    builder.op("c10d::send", start + end - 5, 1).gloo("send", start + end - 5, until - end + 4)
                free = end
        start += length
    return builders


def _autograd(builder: TraceBuilder, kind: str, sequence: int, start: int, length: int) -> None:
    """Add the operators of one action: a forward's node, or its backward and what has no number of its own."""
    if kind == "F":
        builder.op("aten::mm", start, length, args={"Sequence number": sequence, "Fwd thread id": 0})
        return
    evaluates = "autograd::engine::evaluate_function: "
    numbered = {"Sequence number": sequence, "Fwd thread id": 1}
    builder.op(f"{evaluates}MmBackward0", start, length - 20, args=numbered)
    builder.op("MmBackward0", start + 1, length - 22, args=numbered)
    builder.op(f"{evaluates}torch::autograd::AccumulateGrad", start + length - 20, 20)
