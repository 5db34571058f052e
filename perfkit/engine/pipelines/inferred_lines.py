"""Find the pipelines of programs that do not annotate micro-batches: which ranks form one, in the order of its stages.

Data tells the order: the forward of a micro-batch begins on a stage after it has ended on the one before, and its
backward after that of the stage behind it has ended. Ranks for which this does not hold of all micro-batches in all
steps form no pipeline (metrics.md section 13).
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from perfkit.engine.communication.collective_calls import CollectiveCalls
from perfkit.engine.communication.dimensions import PIPELINE
from perfkit.engine.communication.message_batches import RECEIVE, SEND, is_exchange
from perfkit.engine.pipelines.actions import PipelineActions
from perfkit.engine.pipelines.replay import BACKWARD, FORWARD
from perfkit.engine.ranks.clock_alignment import aligned
from perfkit.engine.ranks.linked_ranks import connected
from perfkit.records.cross_rank import HostClock
from perfkit.trace.intervals import Ints

_TOLERANCE_NS: Final = 50_000
"""Clocks of processes on one host agree within less."""


class _Times(NamedTuple):
    """When a rank computes each micro-batch, by its own clock; shape (k, m) for k steps and m micro-batches."""

    forward_begin: Ints
    forward_end: Ints
    backward_begin: Ints
    backward_end: Ints


def find_inferred_lines(
    actions: Mapping[int, Sequence[PipelineActions]],
    calls: Mapping[int, CollectiveCalls],
    clocks: Sequence[HostClock],
    world_size: int | None,
) -> list[list[int]]:
    """Return the ranks of each pipeline, first stage first; empty if it is not certain which these are.

    Args:
        world_size: number of ranks; None if unknown.
    """
    if not actions or any(trace.names_stages for traces in actions.values() for trace in traces):
        return []
    kinds = [(rank, kind) for rank in actions for kind in calls[rank].kinds if kind.dimension in (None, PIPELINE)]
    parts = connected(actions, [(rank, kind.peer) for rank, kind in kinds if kind.peer not in (None, rank)])
    if all(len(part) == 1 for part in parts):
        # Nothing tells who sends to whom: ranks of one group are one pipeline, or none.
        groups = _named(actions) or ([sorted(actions)] if world_size in (None, len(actions)) else [])
        parts = groups if {rank for group in groups for rank in group} == set(actions) == set(calls) else []
    clock_of = {rank: clock for clock in clocks for rank in clock.ranks}
    lines = [_in_order(part, actions, calls, clock_of) for part in parts]
    whole = [line for line in lines if line]
    return whole if len(whole) == len(parts) and len({len(line) for line in whole}) == 1 else []


def _named(actions: Mapping[int, Sequence[PipelineActions]]) -> list[list[int]]:
    """Return the groups that the program calls those of pipelines; empty unless each rank is in exactly one."""
    groups = {trace.group for traces in actions.values() for trace in traces}
    distinct = sorted(group for group in groups if group)
    together = [rank for group in distinct for rank in group]
    return [list(group) for group in distinct] if None not in groups and len(set(together)) == len(together) else []


def _in_order(
    ranks: Sequence[int],
    actions: Mapping[int, Sequence[PipelineActions]],
    calls: Mapping[int, CollectiveCalls],
    clock_of: Mapping[int, HostClock],
) -> list[int]:
    """Return the ranks in the order of their stages; empty if they are no pipeline, or nothing tells it."""
    if len(ranks) < 2 or not all(rank in actions and rank in clock_of for rank in ranks):
        return []
    hosts = {id(clock_of[rank]): clock_of[rank] for rank in ranks}
    if len(hosts) > 1 and any(clock.offset_ns is None for clock in hosts.values()):
        return []
    margin_ns = _TOLERANCE_NS + sum(clock.residual_ns or 0 for clock in hosts.values() if len(hosts) > 1)
    steps = ({number for trace in actions[rank] for number in trace.action("step").tolist()} for rank in ranks)
    numbers = sorted(set.intersection(*steps))
    times = {rank: _times(actions[rank], numbers, clock_of[rank]) for rank in ranks}
    known = {rank: one for rank, one in times.items() if one is not None}
    if not numbers or len(known) < len(ranks) or len({one.forward_begin.shape for one in known.values()}) > 1:
        return []
    line = sorted(ranks, key=lambda rank: int(known[rank].forward_begin[0, 0]))
    follows = all(_follows(known[one], known[other], margin_ns) for one, other in pairwise(line))
    return line if follows and _exchange(line, calls, numbers, known[line[0]].forward_begin.shape[1]) else []


def _times(traces: Sequence[PipelineActions], numbers: Sequence[int], clock: HostClock) -> _Times | None:
    """Return when each micro-batch of the given steps is computed; None if steps differ in them."""
    names = ("step", "kind", "micro_batch", "work_begin_ns", "work_end_ns")
    table = np.stack([np.concatenate([trace.action(name) for trace in traces]) for name in names])
    table = table[:, np.isin(table[0], numbers)]
    found: list[Ints] = []
    for kind in (FORWARD, BACKWARD):
        own = table[:, table[1] == kind]
        own = own[:, np.lexsort((own[2], own[0]))]
        batches = own.shape[1] // max(1, len(numbers))
        if not batches or not np.array_equal(own[2], np.tile(np.arange(batches), len(numbers))):
            return None
        if not np.array_equal(own[0], np.repeat(numbers, batches)):
            return None
        found += [aligned(clock, times).reshape(len(numbers), batches) for times in own[3:]]
    return _Times(*found)


def _follows(one: _Times, other: _Times, margin_ns: int) -> bool:
    """Return whether every micro-batch goes from one stage to the other, and back."""
    later = (other.forward_begin >= one.forward_end - margin_ns).all()
    back = (one.backward_begin >= other.backward_end - margin_ns).all()
    # Actions that are shorter than the clocks' error tell no order.
    certain = (other.forward_begin > one.forward_begin + margin_ns).all()
    certain &= (one.backward_begin > other.backward_begin + margin_ns).all()
    return bool(later and back and certain)


def _exchange(line: Sequence[int], calls: Mapping[int, CollectiveCalls], numbers: Sequence[int], batches: int) -> bool:
    """Return whether each rank sends and receives as a single stage does: messages per micro-batch and neighbour."""
    for place, rank in enumerate(line):
        near = {line[other] for other in (place - 1, place + 1) if 0 <= other < len(line)}
        own = calls[rank]
        kinds = [kind if kind.dimension in (None, PIPELINE) else None for kind in own.kinds]
        messages = [kind for kind in kinds if kind and (kind.operator in (SEND, RECEIVE) or is_exchange(kind))]
        if any(kind.peer not in (None, *near) for kind in messages):
            return False
        for operator in (SEND, RECEIVE):
            are = {kind for kind in messages if kind.operator == operator or is_exchange(kind)}
            wanted = np.array([kind in are for kind in kinds] or [False], np.bool_)
            steps = np.sort(own.column("step")[wanted[own.column("kind")]])
            count = np.searchsorted(steps, numbers, side="right") - np.searchsorted(steps, numbers)
            if (count < len(near) * batches).any():
                return False
            # With several stages per rank the first receives activations, and the last sends some, but not for all
            # forwards. Steps in which shapes are exchanged, too, tell nothing.
            if (count % batches).all():
                return False
    return True
