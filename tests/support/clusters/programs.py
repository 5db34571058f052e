"""What each rank of a cluster does in a step: data-parallel, sharded, tensor-parallel and pipelined training."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from tests.support.clusters.events import Process
from tests.support.clusters.rank import AUTOGRAD, COMPUTE, MAIN, Group, Rank, after

_NETWORK, _REDUCE, _TENSOR = 20, 24, 28
_FROM_BEFORE, _TO_NEXT, _FROM_NEXT, _TO_BEFORE = 30, 31, 32, 33
_COPY_US: Final = 40


class Model(NamedTuple):
    """What a rank computes and sends in a step; times in microseconds."""

    layers: int = 8
    kernels: int = 4
    """Of each layer in the forward pass; the backward pass has twice as many."""
    kernel_us: int = 300
    transfer_us: Mapping[str, int] = {}
    """Of each collective, by dimension."""
    micro_batches: int = 6
    sizes: Sequence[float] = (1.0,)
    """Of the collectives that reduce, one after the other, relative to `transfer_us`."""
    is_synchronised: bool = False
    """Whether the host reads the loss at the end of the step."""
    mix: tuple[tuple[str, float], ...] = (("gemm", 1.0),)
    """The kernels that run in place of one, with their shares of its time."""


Step = Callable[[Rank, Model, Mapping[str, Group]], Process]


def _layer(rank: Rank, model: Model, name: str, passes: int = 1) -> Process:
    for _ in range(model.kernels * passes):
        for kernel, share in model.mix:
            yield from rank.kernel(round(model.kernel_us * share), f"{kernel}_{name}")


def _finish(rank: Rank, model: Model) -> Process:
    yield from rank.hand_over(MAIN)
    for _ in range(4):
        yield from rank.kernel(_COPY_US, "adam", operator="aten::_fused_adam_")
    if model.is_synchronised:
        yield from rank.synchronise()


def _all_reduce(rank: Rank, model: Model, group: Group, dimension: str, stream: int, number: int = 0) -> Process:
    """Reduce what the compute stream has made so far."""
    yield from after(rank, COMPUTE, [stream])
    us, size = model.transfer_us[dimension], model.sizes[number % len(model.sizes)]
    yield from rank.collective((dimension, group.ranks), "allreduce", group, us, stream, size=size)


def replicated(rank: Rank, model: Model, groups: Mapping[str, Group], *, copies: bool = False) -> Process:
    """DDP: a bucket for every other layer; gradients are views of buckets, or are copied out of them at the end."""
    for _ in range(model.layers):
        yield from _layer(rank, model, "forward")
    yield from rank.hand_over(AUTOGRAD)
    reduced = []
    for layer in range(model.layers):
        yield from _layer(rank, model, "backward", passes=2)
        if layer % 2:
            yield from _all_reduce(rank, model, groups["dp"], "dp", _NETWORK, layer // 2)
            reduced.append(rank.record(_NETWORK))
            yield from reduced[-1].call()
    for one in reduced:
        yield from rank.wait(COMPUTE, one)
        if copies:
            yield from rank.kernel(_COPY_US, "copy", operator="aten::copy_")
    yield from _finish(rank, model)


def replicated_with_copies(rank: Rank, model: Model, groups: Mapping[str, Group]) -> Process:
    """DDP without `gradient_as_bucket_view`."""
    yield from replicated(rank, model, groups, copies=True)


def sharded(rank: Rank, model: Model, groups: Mapping[str, Group]) -> Process:
    """FSDP2: parameters are gathered a layer ahead, gradients scattered behind each layer, and reduced by replicas."""
    group, us = groups["shard"], model.transfer_us["shard"]

    def gather() -> Process:
        yield from rank.kernel(_COPY_US, "copy_in", operator="fsdp::all_gather_copy_in", stream=_NETWORK)
        yield from rank.collective(("gather", group.ranks), "_allgather_base", group, us, _NETWORK)

    for name, thread in (("forward", MAIN), ("backward", AUTOGRAD)):
        if thread != rank.thread:
            yield from rank.hand_over(thread)
        yield from gather()
        for layer in range(model.layers):
            gathered = rank.record(_NETWORK)
            yield from gathered.call()
            yield from rank.wait(COMPUTE, gathered)
            yield from rank.kernel(_COPY_US, "copy_out", operator="fsdp::split_with_sizes_copy")
            if layer + 1 < model.layers:
                yield from after(rank, COMPUTE, [_NETWORK])
                yield from gather()
            yield from _layer(rank, model, name, 1 if name == "forward" else 2)
            if name == "backward":
                yield from after(rank, COMPUTE, [_REDUCE])
                yield from rank.kernel(_COPY_US, "copy_in", operator="fsdp::chunk_cat", stream=_REDUCE)
                yield from rank.collective(("reduce", group.ranks), "_reduce_scatter_base", group, us, _REDUCE)
                if "replicate" in groups:
                    between, us_between = groups["replicate"], model.transfer_us["replicate"]
                    yield from rank.collective(("replicate", between.ranks), "allreduce", between, us_between, _REDUCE)
    yield from after(rank, _REDUCE, [COMPUTE])
    yield from _finish(rank, model)


def sharded_on_one_stream(rank: Rank, model: Model, groups: Mapping[str, Group]) -> Process:
    """FSDP1: gathers and scatters share the stream of their group, behind which they wait in order of issue."""
    group, us = groups["shard"], model.transfer_us["shard"]

    def gather() -> Process:
        yield from rank.collective(("gather", group.ranks), "_allgather_base", group, us, _NETWORK)

    for name, thread in (("forward", MAIN), ("backward", AUTOGRAD)):
        if thread != rank.thread:
            yield from rank.hand_over(thread)
        yield from gather()
        for layer in range(model.layers):
            gathered = rank.record(_NETWORK)
            yield from gathered.call()
            yield from rank.wait(COMPUTE, gathered)
            if layer + 1 < model.layers:
                yield from gather()
            yield from _layer(rank, model, name, 1 if name == "forward" else 2)
            if name == "backward":
                yield from after(rank, COMPUTE, [_REDUCE])
                yield from rank.kernel(_COPY_US, "div", operator="aten::div_", stream=_REDUCE)
                yield from after(rank, _REDUCE, [_NETWORK])
                yield from rank.collective(("reduce", group.ranks), "_reduce_scatter_base", group, us, _NETWORK)
    yield from after(rank, _NETWORK, [_REDUCE])
    yield from after(rank, _REDUCE, [COMPUTE])
    yield from _finish(rank, model)


def accumulated(rank: Rank, model: Model, groups: Mapping[str, Group]) -> Process:
    """DDP that accumulates gradients over two passes without communication."""
    for _ in range(2):
        for name, thread in (("forward", AUTOGRAD), ("backward", MAIN)):
            for _ in range(model.layers):
                yield from _layer(rank, model, name, 1 if name == "forward" else 2)
            yield from rank.hand_over(thread)
    yield from replicated(rank, model, groups)


def experts(rank: Rank, model: Model, groups: Mapping[str, Group]) -> Process:
    """Experts, to which each layer sends its tokens, and which send them back."""
    for _ in range(model.layers):
        yield from _layer(rank, model, "forward")
        for _ in range(2):
            yield from _all_reduce(rank, model, groups["ep"], "ep", _TENSOR)
            yield from after(rank, _TENSOR, [COMPUTE])
            yield from rank.kernel(_COPY_US, "permute", operator="aten::index_select")
    yield from rank.hand_over(AUTOGRAD)
    for _ in range(model.layers):
        yield from _layer(rank, model, "backward", passes=2)
    yield from _finish(rank, model)


def tensor(rank: Rank, model: Model, groups: Mapping[str, Group]) -> Process:
    """Tensor parallelism, whose all-reduces the next layer waits for, and data parallelism around it."""
    for _ in range(model.layers):
        yield from _layer(rank, model, "forward")
        yield from _all_reduce(rank, model, groups["tp"], "tp", _TENSOR)
        yield from after(rank, _TENSOR, [COMPUTE])
    yield from rank.hand_over(AUTOGRAD)
    reduced = []
    for layer in range(model.layers):
        yield from _layer(rank, model, "backward", passes=2)
        yield from _all_reduce(rank, model, groups["tp"], "tp", _TENSOR)
        yield from after(rank, _TENSOR, [COMPUTE])
        if layer % 4 == 3 and len(groups["dp"].ranks) > 1:
            yield from _all_reduce(rank, model, groups["dp"], "dp", _NETWORK, layer // 2)
            reduced.append(rank.record(_NETWORK))
            yield from reduced[-1].call()
    for one in reduced:
        yield from rank.wait(COMPUTE, one)
    yield from _finish(rank, model)


def pipelined(rank: Rank, model: Model, groups: Mapping[str, Group]) -> Process:
    """A pipeline with one forward and one backward pass in turn, and data parallelism around it."""
    group = groups["pp"]
    stages, stage = len(group.ranks), group.ranks.index(rank.number)
    ahead = min(stages - 1 - stage, model.micro_batches)
    order = ["forward"] * ahead + ["forward", "backward"] * (model.micro_batches - ahead) + ["backward"] * ahead
    for name in order:
        yield from _stage(rank, model, group, stage, name)
    if len(groups["dp"].ranks) > 1:
        yield from _all_reduce(rank, model, groups["dp"], "dp", _NETWORK)
        yield from after(rank, _NETWORK, [COMPUTE])
    yield from _finish(rank, model)


def _stage(rank: Rank, model: Model, group: Group, stage: int, name: str) -> Process:
    """Receive, compute and send; the main thread waits for messages, autograd's launches the backward pass."""
    is_forward = name == "forward"
    before, behind = (stage - 1, stage + 1) if is_forward else (stage + 1, stage - 1)
    if 0 <= before < len(group.ranks):
        stream = _FROM_BEFORE if is_forward else _FROM_NEXT
        yield from _message(rank, model, group, name, (before, stage), "recv", stream)
        yield from after(rank, stream, [COMPUTE])
    if not is_forward:
        yield from rank.hand_over(AUTOGRAD)
    for _ in range(model.layers // len(group.ranks) or 1):
        yield from _layer(rank, model, name, 1 if is_forward else 2)
    if not is_forward:
        yield from rank.hand_over(MAIN)
    if 0 <= behind < len(group.ranks):
        stream = _TO_NEXT if is_forward else _TO_BEFORE
        yield from after(rank, COMPUTE, [stream])
        yield from _message(rank, model, group, name, (stage, behind), "send", stream)


def _message(
    rank: Rank, model: Model, group: Group, name: str, ends: tuple[int, int], what: str, stream: int
) -> Process:
    peer = group.ranks[ends[1] if what == "send" else ends[0]]
    key = name, group.ranks, ends
    yield from rank.collective(key, what, group, model.transfer_us["pp"], stream, peer)


PROGRAMS: Final[Mapping[str, Step]] = {
    "ddp": replicated,
    "ddp-copies": replicated_with_copies,
    "fsdp": sharded,
    "hsdp": sharded,
    "fsdp1": sharded_on_one_stream,
    "accumulated": accumulated,
    "experts": experts,
    "tp": tensor,
    "pp": pipelined,
}
