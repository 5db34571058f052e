"""Ranks that wait in a collective which other ranks of the group have not issued."""

from collections.abc import Collection, Mapping, Sequence

from perfkit.diagnosis.calls import GroupCalls
from perfkit.schema.hang.rank_state import IssuedCollective


class Wait:
    """Ranks of a group that wait in one collective, and those that have not issued it.

    Args:
        group: The group and its collectives.
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
