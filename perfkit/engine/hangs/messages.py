"""Ranks that wait in a send or receive whose other end has not been issued.

The k-th receive from a rank lacks its send if that rank has issued fewer than k sends to this one in the group,
whatever their tags; so does a send without its receive. Where the other end has issued enough, nothing is claimed,
unless both ranks wait in the two ends of a message with different tags.
"""

from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct

from perfkit.engine.hangs.places import describe_awaited
from perfkit.records.facts import Fact, fact, statement
from perfkit.records.hang import AwaitedMessage, Fault, MessageKind, RankState


class MessageWait(Struct, frozen=True):
    """A rank that waits in a send or receive."""

    rank: int
    kind: MessageKind
    group: str
    """What the program calls the group, or its name."""
    message: Fact
    missing: list[int]
    """Ranks that it waits for: they have not issued the other end, or have left no record."""


def find_message_waits(states: Sequence[RankState]) -> list[MessageWait]:
    """Return the ranks that wait in a send or receive, as far as it is known whose other end is missing."""
    by_rank = {state.rank: state for state in states}
    return [
        MessageWait(
            state.rank, state.awaits.kind, state.awaits.description, describe_awaited(state.awaits, state.main), missing
        )
        for state in sorted(states, key=lambda state: state.rank)
        if state.awaits is not None and state.ended is None and (missing := _missing(state, state.awaits, by_rank))
    ]


def _missing(state: RankState, awaits: AwaitedMessage, by_rank: Mapping[int, RankState]) -> list[int]:
    if awaits.peer is not None:
        peer = by_rank.get(awaits.peer)
        if peer is None:
            return [awaits.peer]
        lacks = peer.messages is not None and _other_ends(awaits, state.rank, peer) < awaits.number
        return [awaits.peer] if lacks or _other_tag(awaits, state.rank, peer) else []
    members = next((group.ranks for group in state.groups if group.name == awaits.group), [])
    others = [rank for rank in members if rank != state.rank]
    if not all(rank in by_rank and by_rank[rank].messages is not None for rank in others):
        return []
    sent = sum(_other_ends(awaits, state.rank, by_rank[rank]) for rank in others)
    return others if sent < awaits.number else []


def _other_tag(awaits: AwaitedMessage, rank: int, peer: RankState) -> bool:
    """Return whether two ranks wait in the two ends of a message, which do not match because their tags differ."""
    other = peer.awaits
    return (
        other is not None
        and (other.peer, other.group) == (rank, awaits.group)
        and other.kind != awaits.kind
        and other.tag != awaits.tag
    )


def _other_ends(awaits: AwaitedMessage, rank: int, peer: RankState) -> int:
    """Return how many messages a peer has issued that may be the other end of one of a rank; receives from any may."""
    kind = "send" if awaits.kind == "recv" else "recv"
    return sum(
        count.count
        for count in peer.messages or []
        if (count.kind, count.group) == (kind, awaits.group) and count.peer in (rank, None)
    )


def message_faults(
    waits: Sequence[MessageWait], places: Mapping[int, Fact | None], recorded: Collection[int]
) -> list[Fault]:
    """Return who waits for whom: ranks that wait for each other in a circle, and those that wait for another.

    Args:
        waits: Who waits in a message.
        places: What is known of each rank.
        recorded: Ranks that have left a record: of others it is not known that they have not sent.
    """
    # Circles in which each rank waits for the next, each beginning with its lowest rank.
    waits_for = {wait.rank: wait.missing[0] for wait in waits if len(wait.missing) == 1}
    circles: list[list[int]] = []
    for start in sorted(waits_for):
        path = [start]
        while (following := waits_for.get(path[-1])) is not None and following not in path:
            path.append(following)
        if following == start and start == min(path):
            circles.append(path)
    by_rank = {wait.rank: wait for wait in waits}
    faults = [_circle_fault([by_rank[rank] for rank in circle]) for circle in circles]
    in_circle = {rank for circle in circles for rank in circle}
    same: dict[tuple[str, tuple[int, ...]], list[MessageWait]] = {}
    for wait in waits:
        if wait.rank not in in_circle:
            same.setdefault((repr(wait.message), tuple(wait.missing)), []).append(wait)
    return faults + [_wait_fault(several, places, recorded) for several in same.values()]


def _circle_fault(waits: Sequence[MessageWait]) -> Fault:
    ranks = sorted(wait.rank for wait in waits)
    return Fault(
        kind="deadlock",
        message=statement("circle", messages={wait.rank: wait.message for wait in waits}),
        group=waits[0].group,
        op=waits[0].kind,
        ranks=ranks,
        waiting=ranks,
    )


def _wait_fault(waits: Sequence[MessageWait], places: Mapping[int, Fact | None], recorded: Collection[int]) -> Fault:
    ranks, missing = [wait.rank for wait in waits], waits[0].missing
    culprits = {}
    for rank in missing:
        place = places.get(rank)
        not_done = fact("not_done", done="sent" if waits[0].kind == "recv" else "received", place=place)
        culprits[rank] = not_done if rank in recorded else place or fact("left_no_file")
    return Fault(
        kind="not_issued",
        message=statement("waiting_for", ranks=ranks, verb="waits in", what=waits[0].message, culprits=culprits),
        group=waits[0].group,
        op=waits[0].kind,
        ranks=missing,
        waiting=ranks,
    )
