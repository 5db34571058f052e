"""What every rank issued in each process group, by number of the collective."""

from collections.abc import Sequence

from msgspec import Struct

from perfkit.diagnosis.places import DEFAULT_GROUP, program_frame, show_frame
from perfkit.schema.hang.rank_state import IssuedCollective, RankState
from perfkit.util.formatting import escape_unprintable, size


class GroupCalls(Struct, frozen=True):
    """The collectives of one process group, as far as they were recorded."""

    name: str
    label: str
    """As in messages: `group dp`."""
    members: list[int]
    """Ranks of the group that left a record, or that are known to be in it."""
    complete: bool
    """Whether all members are known."""
    calls: dict[int, dict[int, IssuedCollective]]
    """By rank and number."""

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
        label=_label(name, description),
        members=sorted({*members, *by_rank}),
        complete=known is not None or whole,
        calls=by_rank,
    )


def _label(name: str, description: str) -> str:
    if description == DEFAULT_GROUP:
        return "the default group"
    return f"group {escape_unprintable(description or name)}"


def describe_call(call: IssuedCollective) -> str:
    """Return `all_reduce #812`."""
    return f"{escape_unprintable(call.op)} #{call.seq}"


def describe_message(call: IssuedCollective) -> str:
    """Return `25 MB, float32`; empty for a collective without data."""
    parts = [size(call.bytes)] if call.bytes is not None else []
    return escape_unprintable(", ".join([*parts, *([call.dtype] if call.dtype else [])]))


def issued_at(call: IssuedCollective) -> str:
    """Return ` at train.py:12`, where the program issued a collective; empty if that was not recorded."""
    frame = program_frame(call.frames)
    return "" if frame is None else f" at {show_frame(frame, function=False)}"
