"""Recognise the schedule of a pipeline by the order in which its ranks compute (metrics.md section 13)."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from perfkit.engine.pipelines.replay import BACKWARD, FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, Action

_WHOLE: Final = {FORWARD, BACKWARD}
_SPLIT: Final = {FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT}


def recognise_schedule(orders: Sequence[Sequence[Action]]) -> str | None:
    """Return the schedule's name, as in `--pp-schedule`; None if it is another.

    Args:
        orders: each rank's actions, in order; in the order of the ranks' first stages.
    """
    ranks = len(orders)
    stages = [sorted({action.stage for action in order}) for order in orders]
    batches = len({action.micro_batch for order in orders for action in order})
    kinds = {action.kind for order in orders for action in order}
    per_rank = len(stages[0])
    if kinds not in (_WHOLE, _SPLIT) or any(len(order) != len(kinds) * per_rank * batches for order in orders):
        return None
    if kinds == _SPLIT and stages == [[rank, 2 * ranks - 1 - rank] for rank in range(ranks)]:
        is_zbv = all(_without_weights(order) == _zbv(rank, ranks, batches) for rank, order in enumerate(orders))
        return "zbv" if is_zbv else None
    if stages != [list(range(rank, ranks * per_rank, ranks)) for rank in range(ranks)]:
        return None
    if kinds == _SPLIT:
        return "zero-bubble" if _are_in_turns(orders, per_rank, batches, 1, INPUT_GRADIENT) else None
    if per_rank > 1:
        return "interleaved" if _are_in_turns(orders, per_rank, batches, 2, BACKWARD) else None
    if all([action.kind for action in order] == [FORWARD] * batches + [BACKWARD] * batches for order in orders):
        return "gpipe" if batches > 1 else "none"
    return "1f1b" if _are_in_turns(orders, 1, batches, 1, BACKWARD) else None


def _are_in_turns(orders: Sequence[Sequence[Action]], per_rank: int, batches: int, apart: int, backward: int) -> bool:
    """Return whether all ranks compute forwards and backwards in turn; when weights get their gradients is free.

    Args:
        per_rank: stages of each rank.
        apart: how many forwards more than the next rank each rank computes before its first backward.
        backward: the kind that alternates with forwards.
    """
    return all(
        _without_weights(order) == _in_turns(rank, len(orders), per_rank, batches, apart, backward)
        for rank, order in enumerate(orders)
    )


def _without_weights(order: Sequence[Action]) -> list[Action]:
    return [action for action in order if action.kind != WEIGHT_GRADIENT]


def _in_turns(rank: int, ranks: int, per_rank: int, batches: int, apart: int, backward: int) -> list[Action]:
    """Return some forwards ahead, then forwards and backwards in turn, then the backwards that are left.

    A rank computes a round of micro-batches, as many as there are ranks or somewhat more, stage by stage, then the
    next round.
    """
    size = -(-batches // max(1, batches // ranks))

    def action(kind: int, number: int) -> Action:
        first, place = divmod(number, size * per_rank)
        turn, batch = divmod(place, size)
        own = turn if kind == FORWARD else per_rank - 1 - turn
        return Action(rank + own * ranks, kind, first * size + batch)

    count = per_rank * batches
    ahead = min(count, (per_rank - 1) * size + apart * (ranks - 1 - rank))
    order = [action(FORWARD, number) for number in range(ahead)]
    for number in range(count):
        if ahead + number < count:
            order.append(action(FORWARD, ahead + number))
        order.append(action(backward, number))
    return order


def _zbv(rank: int, ranks: int, batches: int) -> list[Action]:
    """Return the forwards and backwards of a rank's two stages: down to the last rank, and from there back up.

    The schedule is that of at least 2p - 1 micro-batches, without those that there are not.
    """
    down, up = rank, 2 * ranks - 1 - rank
    most = max(batches, 2 * ranks - 1)
    ahead = [(down, FORWARD)] * (2 * (ranks - rank) - 1) + [(up, FORWARD), (down, FORWARD)] * rank
    ahead += [(up, FORWARD), (up, INPUT_GRADIENT)] * (ranks - rank)
    left = most - (2 * ranks - 1 - rank)
    turns = [(down, FORWARD), (down, INPUT_GRADIENT), (up, FORWARD), (up, INPUT_GRADIENT)]
    steady = turns * left + turns[1:] * (most - ranks - left)
    rest = [(down, INPUT_GRADIENT), (up, INPUT_GRADIENT)] * rank + [(down, INPUT_GRADIENT)] * (ranks - rank)
    count: Counter[tuple[int, int]] = Counter()
    order = []
    for stage, kind in (*ahead, *steady, *rest):
        order.append(Action(stage, kind, count[stage, kind]))
        count[stage, kind] += 1
    return [action for action in order if action.micro_batch < batches]
