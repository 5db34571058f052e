"""Bring the actions of a pipeline's ranks together, step by step."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from perfkit.engine.pipelines.actions import PipelineActions
from perfkit.engine.pipelines.replay import Action
from perfkit.trace.intervals import Ints


class RankActions(NamedTuple):
    """What one rank computes in each of the measured steps, which have the same actions in the same order."""

    order: list[Action]
    work_ns: Ints
    """Shape (a, k)."""
    bubble_ns: Ints
    """Shape (k,)."""


class PipelineSteps(NamedTuple):
    """The measured steps of a pipeline."""

    number: list[int]
    ranks: dict[int, RankActions]


def gather_steps(actions: Mapping[int, Sequence[PipelineActions]]) -> PipelineSteps | None:
    """Return the steps that all ranks recorded; None if there are none.

    The first step of a trace is left out if there are others: what a rank waits for at the end of a step, until the
    others are done with it, is often in the next one, and the first step lacks it.

    Args:
        actions: what each rank of one pipeline computes, by rank and trace.
    """
    by_rank = {rank: _by_step(traces) for rank, traces in actions.items()}
    common = set.intersection(*(set(steps) for steps in by_rank.values()))
    later = {step for step in common if not any(by_rank[rank][step].is_first for rank in by_rank)}
    number = sorted(later or common)
    number = [
        step for step in number if all(np.array_equal(of[step].keys, of[number[0]].keys) for of in by_rank.values())
    ]
    if not number:
        return None
    return PipelineSteps(number, {rank: _stacked([steps[step] for step in number]) for rank, steps in by_rank.items()})


class _Step(NamedTuple):
    keys: Ints
    """Stage, kind and micro-batch of each action, in order; shape (3, a)."""
    work_ns: Ints
    bubble_ns: int
    is_first: bool


def _by_step(traces: Sequence[PipelineActions]) -> dict[int, _Step]:
    """Return the steps of a rank by number."""
    found: dict[int, _Step] = {}
    for trace in traces:
        step = trace.action("step")
        by = np.argsort(step, kind="stable")
        step, work_ns = step[by], trace.action("work_ns")[by]
        keys = np.stack([trace.action(name)[by] for name in Action._fields])
        numbers, bubbles, firsts = (trace.step(name).tolist() for name in ("step", "bubble_ns", "is_first"))
        of_step = dict(zip(numbers, zip(bubbles, firsts, strict=True), strict=True))
        cuts = [0, *(np.flatnonzero(np.diff(step)) + 1).tolist(), len(step)]
        for begin, end in pairwise(cuts):
            if end > begin:
                number = int(step[begin])
                found[number] = _Step(
                    keys[:, begin:end], work_ns[begin:end], of_step[number][0], bool(of_step[number][1])
                )
    return found


def _stacked(steps: Sequence[_Step]) -> RankActions:
    return RankActions(
        [Action(*key) for key in steps[0].keys.T.tolist()],
        np.stack([step.work_ns for step in steps], axis=1),
        np.array([step.bubble_ns for step in steps], np.int64),
    )
