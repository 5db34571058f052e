"""Each operator as a call on its own messages, with the check of its result.

Every function takes the buffers of this rank's part, and returns a `Call`. A member without a part (an odd rank out in
`send_recv_pairs`) has a call that does nothing.
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


# torch 2.13 renamed both; older versions have only the old names.
_all_gather: Final[Callable[..., Any]] = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
_reduce_scatter: Final[Callable[..., Any]] = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)


class Buffers:
    """Tensors of one call: an input and an output of this rank, and what they must contain.

    Args:
        member: This rank in the group.
        size: The message.
        dtype: Type of elements.
        in_place: Whether input and output share memory.
        summed: Whether the operator adds up the ranks' values.
    """

    def __init__(
        self, member: Member, size: Message, dtype: torch.dtype, *, in_place: bool = False, summed: bool = False
    ) -> None:
        self.member, self.size, self.in_place = member, size, in_place
        self.first = member.place * size.per_rank
        """The element with which this rank's part begins."""
        self.sent: dict[str, Any] = {"group": member.group, "async_op": True}
        self._dtype, self._summed = dtype, summed

    @cached_property
    def _periods(self) -> Tensor:
        """One period of every member's values; needed only to check results."""
        return values_of_ranks(self.member.size, self._dtype, summed=self._summed)

    def whole(self) -> Tensor:
        return torch.zeros(self.size.elements, dtype=self._dtype, device=self.member.device)

    def part(self) -> Tensor:
        return torch.zeros(self.size.per_rank, dtype=self._dtype, device=self.member.device)

    def split(self, tensor: Tensor | None) -> list[Tensor] | None:
        return None if tensor is None else list(tensor.view(self.member.size, -1))

    def values(self, place: int | None = None) -> Tensor:
        """Return the message of a member; of this one by default."""
        return self._message(self._of(place), self.size.elements)

    def part_values(self, place: int | None = None, first: int = 0) -> Tensor:
        """Return one rank's part of a member's message, from its element `first` on."""
        return self._message(self._of(place), self.size.per_rank, first)

    def sums(self) -> Tensor:
        """Return the sum of all members' messages."""
        return self._message(self._periods.sum(0), self.size.elements)

    def part_sums(self) -> Tensor:
        """Return this rank's part of the sum."""
        return self._message(self._periods.sum(0), self.size.per_rank, self.first)

    def parts(self, first: int = 0) -> Tensor:
        """Return a part of each member's message, one after the other."""
        return torch.cat([self.part_values(place, first) for place in range(self.member.size)])

    def _of(self, place: int | None) -> Tensor:
        return self._periods[self.member.place if place is None else place]

    def _message(self, period: Tensor, elements: int, first: int = 0) -> Tensor:
        return message(period, elements, self._dtype, self.member.device, first)


def build_call(name: str, member: Member, size: Message, dtype: torch.dtype, in_place: bool) -> Call:
    """Return an operator's call.

    Args:
        name: A key of `perfkit.tools.collectives.config.OPERATIONS`.
        member: This rank in the group.
        size: The message.
        dtype: Type of its elements.
        in_place: Whether input and output share memory.
    """
    return _BUILD[name](Buffers(member, size, dtype, in_place=in_place, summed=name in _SUMMED))


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


def _all_reduce(on: Buffers) -> Call:
    tensor = on.whole()
    return _call_on(lambda: [dist.all_reduce(tensor, **on.sent)], tensor, on.values, tensor, on.sums)


def _reduce(on: Buffers) -> Call:
    tensor, root = on.whole(), on.member.ranks[0]
    call = _call_on(lambda: [dist.reduce(tensor, root, **on.sent)], tensor, on.values, tensor, on.sums)
    # What the others' tensors contain afterwards is not defined.
    return call if on.member.place == 0 else call._replace(count_wrong=lambda: 0)


def _broadcast(on: Buffers) -> Call:
    tensor, root = on.whole(), on.member.ranks[0]
    source = tensor if on.member.place == 0 else None
    return _call_on(lambda: [dist.broadcast(tensor, root, **on.sent)], source, on.values, tensor, lambda: on.values(0))


def _gather_all(on: Buffers) -> Call:
    result = on.whole()
    own = result.view(on.member.size, -1)[on.member.place] if on.in_place else on.part()
    return _call_on(lambda: [_all_gather(result, own, **on.sent)], own, on.part_values, result, on.parts)


def _scatter_reduced(on: Buffers) -> Call:
    source = on.whole()
    result = source[on.first : on.first + on.size.per_rank] if on.in_place else on.part()
    return _call_on(lambda: [_reduce_scatter(result, source, **on.sent)], source, on.values, result, on.part_sums)


def _all_to_all(on: Buffers) -> Call:
    source, result = on.whole(), on.whole()
    return _call_on(
        lambda: [dist.all_to_all_single(result, source, **on.sent)],
        source,
        on.values,
        result,
        lambda: on.parts(on.first),
    )


def _gather(on: Buffers) -> Call:
    own, result = on.part(), on.whole() if on.member.place == 0 else None
    parts, root = on.split(result), on.member.ranks[0]
    return _call_on(lambda: [dist.gather(own, parts, root, **on.sent)], own, on.part_values, result, on.parts)


def _scatter(on: Buffers) -> Call:
    own, source = on.part(), on.whole() if on.member.place == 0 else None
    parts, root = on.split(source), on.member.ranks[0]
    return _call_on(lambda: [dist.scatter(own, parts, root, **on.sent)], source, on.parts, own, on.part_values)


def _ring(on: Buffers) -> Call:
    """Every rank sends to the next one of the group and receives from the one before."""
    place, size = on.member.place, on.member.size
    return exchange(on, to=(place + 1) % size, source=(place - 1) % size)


def _pairs(on: Buffers) -> Call:
    """Every rank with an even number sends to the next one."""
    partner = on.member.place ^ 1
    if partner >= on.member.size:
        return Call(list, lambda: None, lambda: 0)
    sends = on.member.place % 2 == 0
    return exchange(on, to=partner if sends else None, source=None if sends else partner)


def exchange(on: Buffers, *, to: int | None, source: int | None) -> Call:
    """Return the call that sends a message to one member and receives one from another; None for neither."""
    own = None if to is None else on.whole()
    received = None if source is None else on.whole()

    def issue() -> Sequence[Any]:
        # Receives first: gloo tells a peer that one is open in the same stream as a message. Behind a message, the peer
        # would hear of it, and begin to send, only once that has arrived: one way after the other.
        operations = []
        if received is not None and source is not None:
            operations.append(dist.P2POp(dist.irecv, received, on.member.ranks[source], on.member.group))
        if own is not None and to is not None:
            operations.append(dist.P2POp(dist.isend, own, on.member.ranks[to], on.member.group))
        return dist.batch_isend_irecv(operations)

    return _call_on(issue, own, on.values, received, lambda: on.values(source))


def _barrier(on: Buffers) -> Call:
    index, group = on.member.device.index, on.member.group
    devices = None if index is None or dist.get_backend(group) == "gloo" else [index]
    return Call(lambda: [dist.barrier(group, async_op=True, device_ids=devices)], lambda: None, lambda: 0)


_SUMMED: Final = ("all_reduce", "reduce", "reduce_scatter")
_BUILD: Final[dict[str, Callable[[Buffers], Call]]] = {
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
