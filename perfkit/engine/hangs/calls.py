"""What every rank issued in each process group, which ranks wait there, and which have left a collective out.

Of two ranks that wait for each other in different groups, one has left a collective out, or they use the groups in a
different order. The last collective that a rank issued before the one it waits in marks the point; if the one that the
others wait in followed that every time before, the rank has left it out.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Final

from msgspec import Struct

from perfkit.engine.hangs.places import DEFAULT_GROUP, issued_at, program_frame
from perfkit.records.facts import Fact, fact
from perfkit.records.hang import IssuedCollective, RankState


class GroupCalls(Struct, frozen=True):
    """The collectives of one process group, as far as they were recorded."""

    name: str
    description: str
    """What the program calls it."""
    members: list[int]
    """Ranks of the group that left a record, or that are known to be in it."""
    complete: bool
    """Whether all members are known."""
    calls: dict[int, dict[int, IssuedCollective]]
    """By rank and number."""

    @property
    def label(self) -> Fact:
        """Its name in messages."""
        whole = self.description == DEFAULT_GROUP
        return fact("default_group") if whole else fact("group", name=self.description or self.name)

    def last(self, rank: int) -> int:
        """Return the number of the last collective that a rank issued; 0 if none."""
        return max(self.calls.get(rank, {}), default=0)

    def outstanding(self, rank: int) -> IssuedCollective | None:
        """Return the first collective that a rank issued and that has not ended there."""
        open_calls = [call for call in self.calls.get(rank, {}).values() if not call.done]
        return min(open_calls, key=lambda call: call.seq, default=None)


def group_calls(states: Sequence[RankState], world_size: int | None) -> list[GroupCalls]:
    """Return the process groups in which collectives were recorded, in order of their names."""
    by_group: dict[str, dict[int, dict[int, IssuedCollective]]] = {}
    descriptions: dict[str, str] = {}
    for state in states:
        for call in sorted(state.collectives or [], key=lambda call: call.ns):
            issued = by_group.setdefault(call.group, {}).setdefault(state.rank, {})
            if issued and call.seq < next(reversed(issued)):
                issued.clear()  # the group was destroyed, and another one has its name
            issued[call.seq] = call
            descriptions[call.group] = call.description
    known = {group.name: group.ranks for state in states for group in state.groups}
    return [
        _group(name, descriptions[name], by_rank, known.get(name), world_size)
        for name, by_rank in sorted(by_group.items())
    ]


def _group(
    name: str,
    description: str,
    by_rank: dict[int, dict[int, IssuedCollective]],
    known: list[int] | None,
    world_size: int | None,
) -> GroupCalls:
    whole = description == DEFAULT_GROUP and world_size is not None
    members = known or (list(range(world_size)) if whole and world_size else sorted(by_rank))
    return GroupCalls(
        name=name,
        description=description,
        members=sorted({*members, *by_rank}),
        complete=known is not None or whole,
        calls=by_rank,
    )


def describe_call(call: IssuedCollective, group: GroupCalls | None = None, *, message: bool = False) -> Fact:
    """Return a collective as it was issued, in a group, with its message or without."""
    return fact(
        "issued_call",
        op=call.op,
        seq=call.seq,
        group=group and group.label,
        size_bytes=call.bytes if message else None,
        dtype=call.dtype if message else None,
        site=issued_at(call.frames),
    )


_FEWEST: Final = 2
"""Earlier occasions that are needed."""

_Site = tuple[str, str, str, int]
"""Group, operator, and where the program issues it."""


def times_before(calls: Sequence[IssuedCollective], waits_in: IssuedCollective, expected: IssuedCollective) -> int:
    """Return how often a rank issued `expected` where it now waits in another collective; 0 if not always.

    Args:
        calls: All collectives of the rank.
        waits_in: The one of them that it waits in.
        expected: The one that the other ranks wait in.
    """
    ordered = sorted((call for call in calls if call.ns <= waits_in.ns), key=lambda call: call.ns)
    sites = [_site(call) for call in ordered]
    if len(sites) < 2 or None in (sites[-2], _site(expected)):
        return 0
    followers = [after for before, after in pairwise(sites[:-1]) if before == sites[-2]]
    always = len(followers) >= _FEWEST and set(followers) == {_site(expected)}
    return len(followers) if always else 0


def _site(call: IssuedCollective) -> _Site | None:
    frame = program_frame(call.frames)
    return None if frame is None else (call.group, call.op, frame.file, frame.line)


class Wait:
    """Ranks of a group that wait in one collective, and those that have not issued it.

    Args:
        number: Of the collective.
        missing: Ranks that have not issued it.
        history: All collectives of each rank, in every group, in any order.
        at_work: Ranks whose main thread is elsewhere than where they issued what has not ended: they do not wait in it
            (yet).
    """

    def __init__(
        self,
        group: GroupCalls,
        number: int,
        missing: list[int],
        history: Mapping[int, list[IssuedCollective]],
        at_work: Collection[int],
    ) -> None:
        self.group = group
        self.history = history
        self.at_work = at_work
        self.number = number
        self.missing = missing
        self.calls = {rank: by[number] for rank, by in sorted(group.calls.items()) if number in by}
        """The collective as each waiting rank has issued it."""

    @property
    def first(self) -> IssuedCollective:
        """The collective as the first of the waiting ranks has issued it."""
        return next(iter(self.calls.values()))

    @property
    def blocked(self) -> set[int]:
        """The ranks that wait in it, as far as it is known."""
        return set(self.calls).difference(self.at_work)


def find_waits(groups: Sequence[GroupCalls], at_work: Collection[int]) -> list[Wait]:
    """Return the first collective of each group that some ranks wait in and others have not issued."""
    history: dict[int, list[IssuedCollective]] = {}
    for group in groups:
        for rank, by_number in group.calls.items():
            history.setdefault(rank, []).extend(by_number.values())
    return [wait for group in groups if (wait := _first_wait(group, history, at_work)) is not None]


def _first_wait(
    group: GroupCalls, history: Mapping[int, list[IssuedCollective]], at_work: Collection[int]
) -> Wait | None:
    outstanding = [call for rank in group.calls if (call := group.outstanding(rank)) is not None]
    for number in sorted({call.seq for call in outstanding}):
        missing = [rank for rank in group.members if group.last(rank) < number]
        if missing:
            return Wait(group, number, missing, history, at_work)
    return None
