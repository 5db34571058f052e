"""Replay a pipeline's schedule with given durations and free transfers (metrics.md section 13).

Each rank computes its actions one after another, in the order in which it did. A forward needs that of the stage
before; a backward needs that of the stage after, or the forward of the last stage.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from perfkit.trace.intervals import Ints

FORWARD, BACKWARD, INPUT_GRADIENT, WEIGHT_GRADIENT = range(4)
"""Kinds of actions, in the order of `perfkit.engine.pipelines.actions.KINDS`."""


class Action(NamedTuple):
    """What a stage computes of a micro-batch."""

    stage: int
    kind: int
    micro_batch: int


class Plan(NamedTuple):
    """An order in which all actions can be computed."""

    ranks: int
    rank: list[int]
    """Rank of each action, by its place in the pipeline."""
    row: list[int]
    """Number of each action among those of all ranks, concatenated."""
    after: list[int]
    """Row of the action on another stage, or of the last stage's forward, that it needs; -1 for none."""


def make_plan(orders: Sequence[Sequence[Action]], stages: int) -> Plan | None:
    """Return a plan for the actions of each rank; None if one needs an action that does not come.

    Args:
        orders: each rank's actions, in order.
    """
    first_row = np.cumsum([0, *(len(order) for order in orders)]).tolist()
    rows = {action: first_row[rank] + place for rank, order in enumerate(orders) for place, action in enumerate(order)}
    plan = Plan(len(orders), [], [], [])
    done, position, progressing = set[int](), [0] * len(orders), True
    while progressing:
        progressing = False
        for rank, order in enumerate(orders):
            while position[rank] < len(order):
                needed = _needed(order[position[rank]], stages, rows)
                if needed is None or (needed >= 0 and needed not in done):
                    break
                row = first_row[rank] + position[rank]
                plan.rank.append(rank)
                plan.row.append(row)
                plan.after.append(needed)
                done.add(row)
                position[rank] += 1
                progressing = True
    return plan if len(done) == len(rows) == first_row[-1] else None


def _needed(action: Action, stages: int, rows: dict[Action, int]) -> int | None:
    """Return the row that an action needs; -1 if it needs none of another stage, None if it is missing."""
    stage, kind, micro_batch = action
    if kind == WEIGHT_GRADIENT or (kind == FORWARD and stage == 0):
        return -1
    if kind == FORWARD:
        return rows.get(Action(stage - 1, FORWARD, micro_batch))
    if stage == stages - 1:
        return rows.get(Action(stage, FORWARD, micro_batch))
    found = (rows.get(Action(stage + 1, backward, micro_batch)) for backward in (BACKWARD, INPUT_GRADIENT))
    return next((row for row in found if row is not None), None)


def replay(plan: Plan, work_ns: Ints) -> Ints:
    """Return the time from the first begin to the last end in each step, shape (k,).

    Args:
        work_ns: duration of each in each step, shape (a, k).
    """
    end_ns = np.zeros_like(work_ns)
    free_ns = np.zeros((plan.ranks, work_ns.shape[1]), np.int64)
    for rank, row, after in zip(plan.rank, plan.row, plan.after, strict=True):
        begin_ns = free_ns[rank] if after < 0 else np.maximum(free_ns[rank], end_ns[after])
        end_ns[row] = free_ns[rank] = begin_ns + work_ns[row]
    return np.asarray(free_ns.max(axis=0))
