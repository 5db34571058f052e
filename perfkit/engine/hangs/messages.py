"""Ranks that wait in a send or receive whose other end has not been issued.

The k-th receive from a rank lacks its send if that rank has issued fewer than k sends to this one in the group,
whatever their tags; so does a send without its receive. Where the other end has issued enough, nothing is claimed,
unless both ranks wait in the two ends of a message with different tags.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from msgspec import Struct

from perfkit.base.formatting import ranges
from perfkit.engine.hangs.places import describe_awaited
from perfkit.records.hang import AwaitedMessage, Fault, MessageKind, RankState

MOST_LISTED: Final = 8
_PLURALS: Final = (
    *(
        (f"has not {done} it: it {one}", f"have not {done} it: {several}")
        for done in ("issued", "sent", "received")
        for one, several in (("issued ", "they issued "), ("is in ", "they are in "), ("", "each "))
    ),
    (
        "runs, but did not write what it does (a call that does not return may hold Python's lock), so that it is not "
        "known what it has issued",
        "run, but did not write what they do (a call that does not return may hold Python's lock), so that it is not "
        "known what they have issued",
    ),
    ("ended because it lost its ", "ended because they lost their "),
    ("has left no record of its ", "have left no record of their "),
    ("has ", "have "),
    ("is ", "are "),
    ("was ", "were "),
    ("waits for its ", "each wait for their "),
    ("waits in ", "wait in "),
)
"""How what is said of one rank begins, and the same of several."""


def name_ranks(ranks: Sequence[int]) -> str:
    """Return `rank 3`, or `ranks 0-2`."""
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {ranges(ranks)}"


def list_by_text(texts: Mapping[int, str]) -> str:
    """Return what is known of each rank, those of which it is the same together: `ranks 0-2 are in ...; rank 3 ...`."""
    ranks_of: dict[str, list[int]] = {}
    for rank, text in texts.items():
        ranks_of.setdefault(text, []).append(rank)
    return "; ".join(_plural(text, ranks) for text, ranks in list(ranks_of.items())[:MOST_LISTED])


def _plural(text: str, ranks: Sequence[int]) -> str:
    """Return what was said of one rank, of all these."""
    if len(ranks) > 1:
        for one, several in _PLURALS:
            if text.startswith(one):
                text = several + text.removeprefix(one)
                break
    return f"{name_ranks(ranks)} {text}"


_OTHER_END: Final[dict[MessageKind, str]] = {"recv": "has not sent it", "send": "has not received it"}
"""What is said of the rank that one waits for."""


class MessageWait(Struct, frozen=True):
    """A rank that waits in a send or receive."""

    rank: int
    kind: MessageKind
    group: str
    """What the program calls the group, or its name."""
    text: str
    """`recv from rank 1 at pipe.py:20`."""
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
    waits: Sequence[MessageWait], places: Mapping[int, str | None], recorded: Collection[int]
) -> list[Fault]:
    """Return who waits for whom: ranks that wait for each other in a circle, and those that wait for another.

    Args:
        waits: Who waits in a message.
        places: What is known of each rank, after `it`.
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
    alike: dict[tuple[str, tuple[int, ...]], list[MessageWait]] = {}
    for wait in waits:
        if wait.rank not in in_circle:
            alike.setdefault((wait.text, tuple(wait.missing)), []).append(wait)
    return faults + [_wait_fault(several, places, recorded) for several in alike.values()]


def _circle_fault(waits: Sequence[MessageWait]) -> Fault:
    ranks = sorted(wait.rank for wait in waits)
    each = "; ".join(f"rank {wait.rank} waits in {wait.text}" for wait in waits[:MOST_LISTED])
    return Fault(
        kind="deadlock",
        message=f"{each}: they wait for each other",
        group=waits[0].group,
        op=waits[0].kind,
        ranks=ranks,
        waiting=ranks,
    )


def _wait_fault(waits: Sequence[MessageWait], places: Mapping[int, str | None], recorded: Collection[int]) -> Fault:
    ranks, missing = [wait.rank for wait in waits], waits[0].missing
    texts = {}
    for rank in missing:
        place = places.get(rank)
        other_end = _OTHER_END[waits[0].kind] + (f": it {place}" if place else "")
        texts[rank] = other_end if rank in recorded else place or "left no file"
    verb = "waits in" if len(ranks) == 1 else "wait in"
    return Fault(
        kind="not_issued",
        message=f"{name_ranks(ranks)} {verb} {waits[0].text}; {list_by_text(texts)}",
        group=waits[0].group,
        op=waits[0].kind,
        ranks=missing,
        waiting=ranks,
    )
