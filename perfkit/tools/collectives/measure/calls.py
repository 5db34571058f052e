"""Each operator as a call on its own messages, with the check of its result.

Every function takes the group's member and the message, and returns a `Call`. A member without a part (an odd rank out
in `send_recv_pairs`) has a call that does nothing.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from perfkit.tools.collectives.config import Message

_PERIOD: Final = 127
"""Positions after which values repeat: a prime, so that parts of equal size begin at different ones."""
_VALUES: Final = 101
_RANK_STEP: Final = 31
_EXACT: Final = {
    torch.float64: 1 << 53,
    torch.float32: 1 << 24,
    torch.float16: 1 << 11,
    torch.bfloat16: 1 << 8,
    torch.int64: 1 << 62,
    torch.int32: 1 << 30,
    torch.int8: 127,
    torch.uint8: 255,
}
"""Largest integer up to which a type represents all."""


def values_of_ranks(ranks: int, dtype: torch.dtype, *, summed: bool) -> Tensor:
    """Return one period of every rank's values, shape (ranks, period), int64.

    Args:
        ranks: Number of ranks.
        dtype: Type of the message.
        summed: Whether the operator adds up the ranks' values.
    """
    position, rank = torch.arange(_PERIOD)[None], torch.arange(ranks)[:, None]
    most = _EXACT[dtype] // ranks if summed else _VALUES
    if most >= 1:
        return (position + _RANK_STEP * rank) % min(_VALUES, most + 1)
    # More ranks than the largest exact integer: at each position only so many of them have a one.
    every = -(-ranks // _EXACT[dtype])
    return ((position + rank) % every == 0).long()


def message(period: Tensor, elements: int, dtype: torch.dtype, device: torch.device, first: int = 0) -> Tensor:
    """Return a message that repeats `period`, beginning with the element `first`."""
    begin = period.roll(-(first % _PERIOD)).to(dtype)
    return begin.repeat(-(-elements // _PERIOD))[:elements].to(device)


def count_wrong(result: Tensor, expected: Tensor) -> int:
    """Return the number of elements that differ; NaN differs from everything."""
    return int((result != expected).sum().item())


class Member(NamedTuple):
    """This rank as a member of a group."""

    group: dist.ProcessGroup | None
    """None for the default group."""
    ranks: Sequence[int]
    """Ranks of the group, by number within it."""
    place: int
    """This rank's number within the group."""
    device: torch.device

    @property
    def size(self) -> int:
        """Number of ranks in the group."""
        return len(self.ranks)


class Call(NamedTuple):
    """A collective that can be issued any number of times."""

    issue: Callable[[], Sequence[Any]]
    """Issues it; returns what to `wait()` for."""
    fill: Callable[[], None]
    """Writes the input with the values to check, and values that are wrong everywhere into the output."""
    count_wrong: Callable[[], int]
    """Returns the number of wrong elements after one call."""
    clear: Callable[[], None] = lambda: None
    """Writes zeros into what repeated calls would sum up without end."""

    def run(self) -> None:
        """Issue it and wait for it."""
        for work in self.issue():
            work.wait()


Build = Callable[[Member, Message, torch.dtype, bool], Call]

# torch 2.13 renamed both; older versions have only the old names.
_all_gather: Final[Callable[..., Any]] = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
_reduce_scatter: Final[Callable[..., Any]] = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)


def build_call(name: str, member: Member, size: Message, dtype: torch.dtype, in_place: bool) -> Call:
    """Return an operator's call.

    Args:
        name: A key of `perfkit.tools.collectives.config.OPERATIONS`.
        member: This rank in the group.
        size: The message.
        dtype: Type of its elements.
        in_place: Whether input and output share memory.
    """
    return _BUILD[name](member, size, dtype, in_place)


class _Buffers:
    """Tensors of one call: an input and an output of this rank, and what they must contain.

    Args:
        member: This rank in the group.
        dtype: Type of elements.
        summed: Whether the operator adds up the ranks' values.
    """

    def __init__(self, member: Member, dtype: torch.dtype, *, summed: bool) -> None:
        self._member, self._dtype, self._summed = member, dtype, summed

    @cached_property
    def _periods(self) -> Tensor:
        """One period of every member's values; needed only to check results."""
        return values_of_ranks(self._member.size, self._dtype, summed=self._summed)

    def empty(self, elements: int) -> Tensor:
        return torch.zeros(elements, dtype=self._dtype, device=self._member.device)

    def values(self, elements: int, place: int | None = None, first: int = 0) -> Tensor:
        """Return the message of a member, from its element `first` on; of this one by default."""
        own = self._member.place if place is None else place
        return message(self._periods[own], elements, self._dtype, self._member.device, first)

    def sums(self, elements: int, first: int = 0) -> Tensor:
        """Return the sum of all members' messages, from its element `first` on."""
        return message(self._periods.sum(0), elements, self._dtype, self._member.device, first)

    def parts(self, per_rank: int) -> Tensor:
        """Return all members' messages, one after the other."""
        return torch.cat([self.values(per_rank, place) for place in range(self._member.size)])


def _call_on(
    issue: Callable[[], Sequence[Any]],
    source: Tensor | None,
    given: Callable[[], Tensor],
    result: Tensor | None,
    expected: Callable[[], Tensor],
) -> Call:
    """Return a call with an input and an output, either of which this rank may lack, and which may share memory."""

    def fill() -> None:
        if result is not None:
            result.fill_(113)  # no message has this value
        if source is not None:
            source.copy_(given())

    def clear() -> None:
        for tensor in (source, result):
            if tensor is not None:
                tensor.zero_()

    return Call(issue, fill, lambda: 0 if result is None else count_wrong(result, expected()), clear)


def _all_reduce(member: Member, size: Message, dtype: torch.dtype, in_place: bool) -> Call:  # noqa: ARG001
    buffers = _Buffers(member, dtype, summed=True)
    tensor = buffers.empty(size.elements)
    return _call_on(
        lambda: [dist.all_reduce(tensor, group=member.group, async_op=True)],
        tensor,
        lambda: buffers.values(size.elements),
        tensor,
        lambda: buffers.sums(size.elements),
    )


def _reduce(member: Member, size: Message, dtype: torch.dtype, in_place: bool) -> Call:  # noqa: ARG001
    buffers = _Buffers(member, dtype, summed=True)
    tensor = buffers.empty(size.elements)
    call = _call_on(
        lambda: [dist.reduce(tensor, member.ranks[0], group=member.group, async_op=True)],
        tensor,
        lambda: buffers.values(size.elements),
        tensor,
        lambda: buffers.sums(size.elements),
    )
    # What the others' tensors contain afterwards is not defined.
    return call if member.place == 0 else call._replace(count_wrong=lambda: 0)


def _broadcast(member: Member, size: Message, dtype: torch.dtype, in_place: bool) -> Call:  # noqa: ARG001
    buffers = _Buffers(member, dtype, summed=False)
    tensor = buffers.empty(size.elements)
    root = member.place == 0
    return _call_on(
        lambda: [dist.broadcast(tensor, member.ranks[0], group=member.group, async_op=True)],
        tensor if root else None,
        lambda: buffers.values(size.elements),
        tensor,
        lambda: buffers.values(size.elements, 0),
    )


def _gather_all(member: Member, size: Message, dtype: torch.dtype, in_place: bool) -> Call:
    buffers = _Buffers(member, dtype, summed=False)
    result = buffers.empty(size.elements)
    own = result.view(member.size, -1)[member.place] if in_place else buffers.empty(size.per_rank)
    return _call_on(
        lambda: [_all_gather(result, own, group=member.group, async_op=True)],
        own,
        lambda: buffers.values(size.per_rank),
        result,
        lambda: buffers.parts(size.per_rank),
    )


def _scatter_reduced(member: Member, size: Message, dtype: torch.dtype, in_place: bool) -> Call:
    buffers = _Buffers(member, dtype, summed=True)
    source = buffers.empty(size.elements)
    first = member.place * size.per_rank
    result = source[first : first + size.per_rank] if in_place else buffers.empty(size.per_rank)
    return _call_on(
        lambda: [_reduce_scatter(result, source, group=member.group, async_op=True)],
        source,
        lambda: buffers.values(size.elements),
        result,
        lambda: buffers.sums(size.per_rank, first),
    )


def _all_to_all(member: Member, size: Message, dtype: torch.dtype, in_place: bool) -> Call:  # noqa: ARG001
    buffers = _Buffers(member, dtype, summed=False)
    source, result = buffers.empty(size.elements), buffers.empty(size.elements)
    first = member.place * size.per_rank
    return _call_on(
        lambda: [dist.all_to_all_single(result, source, group=member.group, async_op=True)],
        source,
        lambda: buffers.values(size.elements),
        result,
        lambda: torch.cat([buffers.values(size.per_rank, other, first) for other in range(member.size)]),
    )


def _gather(member: Member, size: Message, dtype: torch.dtype, in_place: bool) -> Call:  # noqa: ARG001
    buffers = _Buffers(member, dtype, summed=False)
    own, root = buffers.empty(size.per_rank), member.place == 0
    result = buffers.empty(size.elements) if root else None
    parts = None if result is None else list(result.view(member.size, -1))
    return _call_on(
        lambda: [dist.gather(own, parts, member.ranks[0], group=member.group, async_op=True)],
        own,
        lambda: buffers.values(size.per_rank),
        result,
        lambda: buffers.parts(size.per_rank),
    )


def _scatter(member: Member, size: Message, dtype: torch.dtype, in_place: bool) -> Call:  # noqa: ARG001
    buffers = _Buffers(member, dtype, summed=False)
    own, root = buffers.empty(size.per_rank), member.place == 0
    source = buffers.empty(size.elements) if root else None
    parts = None if source is None else list(source.view(member.size, -1))
    return _call_on(
        lambda: [dist.scatter(own, parts, member.ranks[0], group=member.group, async_op=True)],
        source,
        lambda: buffers.parts(size.per_rank),
        own,
        lambda: buffers.values(size.per_rank),
    )


def _ring(member: Member, size: Message, dtype: torch.dtype, in_place: bool) -> Call:  # noqa: ARG001
    """Every rank sends to the next one of the group and receives from the one before."""
    before, after = (member.place - 1) % member.size, (member.place + 1) % member.size
    return exchange(member, size, dtype, to=after, source=before)


def _pairs(member: Member, size: Message, dtype: torch.dtype, in_place: bool) -> Call:  # noqa: ARG001
    """Every rank with an even number sends to the next one."""
    partner = member.place ^ 1
    if partner >= member.size:
        return Call(list, lambda: None, lambda: 0)
    sends = member.place % 2 == 0
    return exchange(member, size, dtype, to=partner if sends else None, source=None if sends else partner)


def exchange(member: Member, size: Message, dtype: torch.dtype, *, to: int | None, source: int | None) -> Call:
    """Return the call that sends a message to one member and receives one from another; None for neither."""
    buffers = _Buffers(member, dtype, summed=False)
    own = None if to is None else buffers.empty(size.elements)
    received = None if source is None else buffers.empty(size.elements)

    def issue() -> Sequence[Any]:
        # Receives first: gloo tells a peer that one is open in the same stream as a message. Behind a message, the peer
        # would hear of it, and begin to send, only once that has arrived: one way after the other.
        operations = []
        if received is not None and source is not None:
            operations.append(dist.P2POp(dist.irecv, received, member.ranks[source], member.group))
        if own is not None and to is not None:
            operations.append(dist.P2POp(dist.isend, own, member.ranks[to], member.group))
        return dist.batch_isend_irecv(operations)

    return _call_on(
        issue,
        own,
        lambda: buffers.values(size.elements),
        received,
        lambda: buffers.values(size.elements, source),
    )


def _barrier(member: Member, size: Message, dtype: torch.dtype, in_place: bool) -> Call:  # noqa: ARG001
    devices = None if member.device.index is None or dist.get_backend(member.group) == "gloo" else [member.device.index]
    return Call(
        lambda: [dist.barrier(member.group, async_op=True, device_ids=devices)],
        lambda: None,
        lambda: 0,
    )


_BUILD: Final[dict[str, Build]] = {
    "all_reduce": _all_reduce,
    "all_gather": _gather_all,
    "reduce_scatter": _scatter_reduced,
    "all_to_all": _all_to_all,
    "broadcast": _broadcast,
    "reduce": _reduce,
    "gather": _gather,
    "scatter": _scatter,
    "send_recv": _ring,
    "send_recv_pairs": _pairs,
    "barrier": _barrier,
}
