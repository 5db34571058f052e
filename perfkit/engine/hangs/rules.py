"""Which rank keeps the others waiting: rules over what the ranks left. Pure.

The collectives of a process group have the same numbers on all its ranks. So ranks that issued different collectives
under one number do not match, and a rank whose numbers end earlier has not issued what the others wait for. What a rank
has not recorded is not held against it: it may have lost the oldest entries, or may be ahead by one.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from perfkit._version import __version__
from perfkit.engine.hangs.calls import GroupCalls, Wait, describe_call, find_waits, group_calls, times_before
from perfkit.engine.hangs.messages import find_message_waits, message_faults
from perfkit.engine.hangs.places import describe_place, issued_at, program_frame
from perfkit.records.facts import Fact, Statement, fact, statement
from perfkit.records.hang import Diagnosis, Fault, FaultKind, IssuedCollective, RankPlace, RankState, Verdict

_SAME_SIZE: Final = ("all_reduce", "broadcast", "reduce", "_reduce_scatter_base", "_all_gather_base", "_allgather_base")
"""Operators whose inputs have the same size on all ranks. Those of gather, scatter and all_to_all need not."""
DUE_TO_ANOTHER_RANK: Final = "ended because another rank was gone or late"
"""How a rank has ended that is not the cause, such as one that has waited too long."""


def diagnose(
    path: str,
    states: Sequence[RankState],
    *,
    absent: Mapping[int, str] | None = None,
    unread: Sequence[str] = (),
    first: int | None = None,
) -> Diagnosis:
    """Compare what the ranks left; what is found is stated (`perfkit.records.facts.Statement`).

    Args:
        states: One per rank, in any order.
        absent: What is known of ranks that left no file, in words after 'rank 3': `was killed`.
        unread: Files that could not be read, and why.
        first: The rank that failed first, as far as it is known: its end comes before those of others.
    """
    absent = absent or {}
    world_size = _world_size(states, absent)
    own_ends = {state.rank: state.ended for state in states if state.ended not in (None, DUE_TO_ANOTHER_RANK)}
    ended = {rank: fact("text", text=text) for rank, text in {**absent, **own_ends}.items()}
    places = {state.rank: describe_place(state) for state in states} | {rank: ended[rank] for rank in absent}
    groups = group_calls(states, world_size)
    recorded = {state.rank for state in states if state.collectives is not None}
    outstanding = {state.rank: _busy_with(state, groups, places) for state in states}
    at_work = {state.rank for state in states if state.main and outstanding[state.rank] == places[state.rank]}
    waits, messages = find_waits(groups, at_work), find_message_waits(states)
    waiting = {rank for wait in waits for rank in wait.blocked} | {message.rank for message in messages}
    faults = _mismatches(groups) or _causes_first(
        [
            *_not_issued(waits, places | outstanding, recorded),
            *message_faults(messages, places | outstanding, {state.rank for state in states}),
        ],
        waiting,
    )
    named = {rank for fault in faults for rank in (*fault.ranks, *fault.waiting)}
    faults += [
        Fault(kind="gone", message=statement("gone", rank=rank, how=how), ranks=[rank])
        for rank, how in sorted(ended.items(), key=lambda end: (end[0] != first, end[0]))
        if rank not in named
    ]
    missing = sorted(set(range(world_size or 0)) - set(places))
    verdict = _verdict(states, faults, missing, groups)
    return Diagnosis(
        perfkit_version=__version__,
        path=path,
        verdict=verdict,
        headline=_headline(verdict, faults, states, groups),
        world_size=world_size,
        faults=faults,
        ranks=[_place(state, groups) for state in sorted(states, key=lambda state: state.rank)]
        + [RankPlace(rank=rank, steps=None, state=text, frame=None) for rank, text in sorted(absent.items())],
        unread=[*unread, *([statement("no_files", ranks=missing)] if missing else [])],
    )


def _world_size(states: Sequence[RankState], absent: Mapping[int, str]) -> int | None:
    """Return how many ranks there are, as far as it is known; dumps only name the members of their groups."""
    sizes = [state.world_size for state in states if state.world_size is not None]
    if sizes or absent:
        sizes += [rank + 1 for rank in (*(state.rank for state in states), *absent)]
    groups = (group.ranks for state in states for group in state.groups)
    sizes += [len(ranks) for ranks in groups if sorted(ranks) == list(range(len(ranks)))]
    return max(sizes, default=None)


def _verdict(
    states: Sequence[RankState], faults: Sequence[Fault], missing: Sequence[int], groups: Sequence[GroupCalls]
) -> Verdict:
    if faults:
        return "fault"
    unrecorded = missing or any(state.collectives is None or state.in_message for state in states)
    uncertain = any(_may_lack_a_rank(group, {state.rank for state in states}) for group in groups)
    return "unknown" if unrecorded or uncertain or not any(map(_compares, groups)) else "agree"


def _may_lack_a_rank(group: GroupCalls, ranks: Collection[int]) -> bool:
    """Return whether ranks wait in a group that others may be members of: gloo's dumps do not name the members."""
    waits = any(group.outstanding(rank) is not None for rank in group.calls)
    return waits and not group.complete and not set(ranks) <= set(group.calls)


def _compares(group: GroupCalls) -> bool:
    """Return whether two ranks of a group have recorded a collective of the same number."""
    numbers = [number for by_number in group.calls.values() for number in by_number]
    return len(set(numbers)) < len(numbers)


def _headline(
    verdict: Verdict, faults: Sequence[Fault], states: Sequence[RankState], groups: Sequence[GroupCalls]
) -> str:
    if faults:
        return faults[0].message
    if verdict == "agree":
        compared = sum(len(by_number) for group in groups for by_number in group.calls.values())
        return statement("all_agree", compared=compared)
    places = {state.rank: place for state in states if (place := describe_place(state)) is not None}
    return statement("no_culprit", places=dict(sorted(places.items())))


def _mismatches(groups: Sequence[GroupCalls]) -> list[Fault]:
    found = [fault for group in groups if (fault := _first_mismatch(group)) is not None]
    return [fault for _, fault in sorted(found, key=lambda pair: pair[0])]


def _first_mismatch(group: GroupCalls) -> tuple[int, Fault] | None:
    numbers = sorted({number for by_number in group.calls.values() for number in by_number})
    for number in numbers:
        calls = {rank: by[number] for rank, by in sorted(group.calls.items()) if number in by}
        kind = _difference(list(calls.values())) if len(calls) > 1 else None
        if kind is not None:
            return min(call.ns for call in calls.values()), _mismatch(group, kind, calls)
    return None


def _difference(calls: Sequence[IssuedCollective]) -> FaultKind | None:
    if len({call.op for call in calls}) > 1:
        return "operator"
    if len({call.dtype for call in calls if call.dtype is not None}) > 1:
        return "dtype"
    if calls[0].op in _SAME_SIZE and len({_elements(call) for call in calls}) > 1:
        return "size"
    return None


def _elements(call: IssuedCollective) -> int:
    return sum(map(math.prod, call.sizes))


def _mismatch(group: GroupCalls, kind: FaultKind, calls: Mapping[int, IssuedCollective]) -> Fault:
    what = {"operator": lambda call: call.op, "dtype": lambda call: call.dtype, "size": _elements}[kind]
    parts: dict[object, list[int]] = {}
    for rank, call in calls.items():
        parts.setdefault(what(call), []).append(rank)
    usual, *others = sorted(parts.values(), key=lambda ranks: (-len(ranks), ranks))
    first = calls[usual[0]]
    return Fault(
        kind=kind,
        message=statement(
            "mismatch",
            kind=kind,
            ranks=usual,
            call=describe_call(first, group, message=True),
            others={
                ranks[0]: fact("instead", ranks=ranks, call=describe_call(calls[ranks[0]], message=True))
                for ranks in others
            },
        ),
        group=Statement(group.label),
        seq=first.seq,
        op=first.op,
        ranks=sorted(rank for ranks in others for rank in ranks),
        waiting=usual,
    )


def _not_issued(waits: Sequence[Wait], places: Mapping[int, Fact | None], recorded: Collection[int]) -> list[Fault]:
    faults: list[Fault] = []
    partners = _partners(waits)
    in_deadlock: set[str] = set()
    for wait in sorted(waits, key=lambda wait: min(call.ns for call in wait.calls.values())):
        partner = partners[_ends(wait)]
        if partner is None:
            faults.append(_wait_fault(wait, places, recorded))
        elif partner.group.name not in in_deadlock:
            first, second = _order(wait, partner)
            faults.append(_deadlock(first, second))
            in_deadlock.add(first.group.name)
    return faults


_Ends = tuple[frozenset[int], frozenset[int]]
"""The ranks that others wait for, and those that wait."""


def _ends(wait: Wait) -> _Ends:
    return frozenset(wait.missing), frozenset(wait.blocked)


def _partners(waits: Sequence[Wait]) -> dict[_Ends, Wait | None]:
    """Return, for each two ends of a wait, the first one in which its ranks and those that it waits for change places.

    A job may have thousands of groups, in which the same few ranks wait.
    """
    first: dict[_Ends, Wait] = {}
    for wait in waits:
        first.setdefault(_ends(wait), wait)
    return {
        (missing, blocked): next(
            (one for (ones, others), one in first.items() if missing & others and ones & blocked), None
        )
        for missing, blocked in first
    }


def _causes_first(faults: Sequence[Fault], waiting: Collection[int]) -> list[Fault]:
    """Return the faults, last those whose blamed ranks all wait themselves: then another fault is the cause."""
    return sorted(faults, key=lambda fault: fault.kind != "deadlock" and set(fault.ranks) <= set(waiting))


def _left_out(one: Wait, other: Wait) -> Fact | None:
    """Return that ranks have left out what those of `one` wait in, if their earlier steps show it; else None."""
    ranks = sorted(set(one.missing) & set(other.calls))
    times = [times_before(one.history[rank], other.calls[rank], one.first) for rank in ranks]
    if not times or not all(times):
        return None
    site = issued_at(one.first.frames)
    return fact("left_out", ranks=ranks, op=one.first.op, group=one.group.label, site=site, times=min(times))


def _order(one: Wait, other: Wait) -> tuple[Wait, Wait]:
    """Return first the wait for the few ranks that differ, unless it is known which left something out."""
    one, other = sorted((one, other), key=lambda wait: len(wait.missing))
    return (other, one) if not _left_out(one, other) and _left_out(other, one) else (one, other)


def _deadlock(one: Wait, other: Wait) -> Fault:
    waits = {wait.group.name: fact("not_issued_by", wait=_waiting(wait), ranks=wait.missing) for wait in (one, other)}
    return Fault(
        kind="deadlock",
        message=statement("deadlock", waits=waits, why=_left_out(one, other) or fact("other_order")),
        group=Statement(one.group.label),
        seq=one.number,
        op=one.first.op,
        ranks=one.missing,
        waiting=list(one.calls),
    )


def _wait_fault(wait: Wait, places: Mapping[int, Fact | None], recorded: Collection[int]) -> Fault:
    culprits = {rank: _whereabouts(rank, places, recorded) for rank in wait.missing}
    return Fault(
        kind="not_issued",
        message=statement("waiting_for", **_waiting(wait).values, culprits=culprits),
        group=Statement(wait.group.label),
        seq=wait.number,
        op=wait.first.op,
        ranks=wait.missing,
        waiting=list(wait.calls),
    )


def _whereabouts(rank: int, places: Mapping[int, Fact | None], recorded: Collection[int]) -> Fact:
    """Return what is known of a rank that others wait for: only a record shows that it has not issued something."""
    place = places.get(rank)
    if rank not in recorded:
        return place or fact("left_no_record" if rank in places else "left_no_file")
    return fact("not_done", done="issued", place=place)


def _busy_with(state: RankState, groups: Sequence[GroupCalls], places: Mapping[int, Fact | None]) -> Fact | None:
    """Return the collective that a rank waits in: its main thread is where it issued that, or either is unknown."""
    stack = {(frame.file, frame.line) for frame in state.main}
    for call, group in _open_calls(state, groups):
        site = program_frame(call.frames)
        if state.ended is None and (not stack or site is None or (site.file, site.line) in stack):
            return fact("issued_open", call=describe_call(call, group))
    return places.get(state.rank)


def _open_calls(state: RankState, groups: Sequence[GroupCalls]) -> list[tuple[IssuedCollective, GroupCalls]]:
    """Return the first collective of each group that has not ended on a rank, the oldest first."""
    calls = [(call, group) for group in groups if (call := group.outstanding(state.rank)) is not None]
    return sorted(calls, key=lambda pair: pair[0].ns)


def _waiting(wait: Wait) -> Fact:
    verb = "waits in" if wait.blocked else "issued"
    return fact("waiting", ranks=list(wait.calls), verb=verb, what=describe_call(wait.first, wait.group, message=True))


def _place(state: RankState, groups: Sequence[GroupCalls]) -> RankPlace:
    open_calls = _open_calls(state, groups)
    frame, place = program_frame(state.main), describe_place(state)
    stated = Statement(place or fact("unknown_place"))
    if open_calls and state.ended is None:
        call, group = open_calls[0]
        stated = statement("not_ended", call=describe_call(call, group), place=place)
        frame = frame or program_frame(call.frames)
    return RankPlace(rank=state.rank, steps=state.steps, state=stated, frame=frame)
