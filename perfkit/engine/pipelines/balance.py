"""Find stages that are heavier than the others, and what equal stages or moving a layer would give."""

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from msgspec.structs import replace as replaced
from numpy.typing import NDArray

from perfkit.base.statistics.bootstrap import Floats
from perfkit.engine.pipelines.replay import FORWARD, Action, Plan, replay
from perfkit.engine.pipelines.steps import PipelineSteps, RankActions
from perfkit.records.per_run.pipeline import HeavyStage, LayerMove, PipelineStage, StageExcess
from perfkit.trace.intervals import Ints

_MIN_EXCESS: Final = 0.1
"""Smallest excess over the other stages that is reported."""
_FEWEST: Final = 8
"""Fewest micro-batches of all measured steps that tell a heavy stage."""
_DEVIATIONS: Final = 3.0
"""Least excess, in standard deviations of what slow stretches give by chance."""
_FEW: Final = 3.0
"""With so many micro-batches twice as many deviations are asked for: of few, their spread is uncertain, too."""
_MOST_PARTS: Final = 8
_FEWEST_PER_PART: Final = 3
"""Parts of the recording that have to agree, and their fewest micro-batches."""
_AGREEMENT: Final = 0.5
"""Least excess of each part, as a share of the excess of the whole recording."""
_ENOUGH: Final = 0.2
"""Excess of a part that is enough in any case: where a stage is far heavier, parts may differ more. Without it a stage
that takes twice as long is found in 18 % of recordings of 80 micro-batches with slow stretches, not in all of them."""
_MIN_GAIN: Final = 0.01
"""Smallest gain from moving a layer that is reported, as a share of the pipeline's time."""
_LEAST_CORRELATION: Final = 0.8
"""Autocorrelation that is assumed where less is measured: short series do not tell."""
_MOST_CORRELATION: Final = 0.97
_TAIL: Final = 0.1
"""Share of the values at each end that the spread leaves out, so that a single outlier does not decide."""
_NORMAL_RANGE: Final = 2.563
"""From the 10 % to the 90 % quantile of a normal distribution, in standard deviations."""


def mean_by(keys: Ints, work_ns: Ints) -> Ints:
    """Return each action's work replaced by the mean over those with the same key, step by step; shape (a, k)."""
    mean_ns = np.empty_like(work_ns)
    for key in np.unique(keys).tolist():
        mean_ns[keys == key] = work_ns[keys == key].sum(axis=0) // int((keys == key).sum())
    return mean_ns


def stage_times(steps: PipelineSteps, layers: Mapping[int, int]) -> list[PipelineStage]:
    """Return the mean times of each stage, over the micro-batches whose forward or backward is known.

    Forward and backward of some may be one action, which tells neither (`OVERLAP_F_B` of torch's DualPipeV).

    Args:
        layers: number of layers of each stage; stages of unknown size are missing.
    """
    rows = []
    for rank, own in steps.ranks.items():
        stage, forward = _column(own.order, "stage"), _column(own.order, "kind") == FORWARD
        for number in np.unique(stage).tolist():
            forward_ns, backward_ns = (_mean_per_batch(own, (stage == number) & which) for which in (forward, ~forward))
            rows.append(
                PipelineStage(
                    stage=number,
                    rank=rank,
                    layers=layers.get(number),
                    forward_ns=forward_ns,
                    backward_ns=backward_ns,
                )
            )
    return sorted(rows, key=lambda row: row.stage)


def _mean_per_batch(own: RankActions, chosen: NDArray[np.bool_]) -> float:
    """Return the mean work of the chosen actions per micro-batch that has any; 0 without one (ns)."""
    batches = len({action.micro_batch for action, is_chosen in zip(own.order, chosen, strict=True) if is_chosen})
    return float(own.work_ns[chosen].sum(axis=0).mean()) / batches if batches else 0.0


def find_heavy_stage(plan: Plan, steps: PipelineSteps, times: Sequence[PipelineStage]) -> HeavyStage | None:
    """Return the stage whose micro-batches take longest, if they take longer than those of the others beyond chance.

    The work of each micro-batch (forward and backward) is compared with the median of the other stages' of the same
    micro-batch; those found are then compared with the stages that are not heavy.
    """
    actions = [action for own in steps.ranks.values() for action in own.order]
    work_ns = np.concatenate([own.work_ns for own in steps.ranks.values()])
    totals_ns = _totals(actions, work_ns)
    excess = excess_by_place(totals_ns)
    if not excess:
        return None
    place = max(excess, key=lambda one: (excess[one], one))
    stages = np.array([action.stage for action in actions], np.int64)
    kinds = np.array([action.kind for action in actions], np.int64)
    by_stage_ns = mean_by(stages * len(actions) + kinds, work_ns)
    span_ns = replay(plan, by_stage_ns)
    gain_ns = float(np.median(span_ns - replay(plan, mean_by(kinds, work_ns))))
    heavy = times[place]
    found = HeavyStage(
        stage=heavy.stage,
        rank=heavy.rank,
        excess=excess[place],
        gain_ns=max(gain_ns, 0.0),
        layer_move=None,
        also=[
            StageExcess(stage=times[one].stage, rank=times[one].rank, excess=longer)
            for one, longer in excess.items()
            if one != place
        ],
    )
    moved = _move_layer(by_stage_ns, stages, kinds, times, heavy)
    if moved is None:
        return found
    after_ns, to_stage = moved
    move_gain_ns = float(np.median(span_ns - replay(plan, after_ns)))
    if move_gain_ns < _MIN_GAIN * float(np.median(span_ns)):
        return found
    return replaced(found, layer_move=LayerMove(to_stage=to_stage, gain_ns=move_gain_ns))


def excess_by_place(totals_ns: Ints) -> dict[int, float]:
    """Return how much longer the micro-batches of each heavy stage take than those of the stages that are not.

    Args:
        totals_ns: the work of each stage, micro-batch and step; shape (s, m, k).

    Returns:
        Excess, as a share, of the stages that are heavy beyond chance, by index into the s stages.
    """
    found = {place: _excess(totals_ns, place) for place in range(len(totals_ns))}
    longer = {place: excess for place, excess in found.items() if excess >= _MIN_EXCESS}
    if not longer:
        return {}
    series = _excess_series(totals_ns)
    heavy = {place: excess for place, excess in longer.items() if _is_steady(series, place)}
    light = [place for place in found if place not in heavy]
    # Among the others are heavy ones, too: more than half of the stages may be heavy.
    return {place: _excess(totals_ns[[*light, place]], len(light)) or excess for place, excess in heavy.items()}


def _column(order: Sequence[Action], name: str) -> Ints:
    return np.array([getattr(action, name) for action in order], np.int64)


def _totals(actions: Sequence[Action], work_ns: Ints) -> Ints:
    """Return the work of each stage, micro-batch and step; shape (s, m, k)."""
    stages, stage = np.unique(_column(actions, "stage"), return_inverse=True)
    batches, batch = np.unique(_column(actions, "micro_batch"), return_inverse=True)
    totals_ns = np.zeros((len(stages), len(batches), work_ns.shape[1]), np.int64)
    np.add.at(totals_ns, (stage, batch), work_ns)
    return totals_ns


def _excess(totals_ns: Ints, place: int) -> float:
    """Return how much longer a stage's micro-batches take than those of the others, as a share; 0 without others.

    Medians alone decide: one slow micro-batch neither makes a stage heavy nor hides that it is.
    """
    others = np.delete(totals_ns, place, axis=0)
    usual_ns = float(np.median(np.median(others, axis=(1, 2)))) if len(others) else 0.0
    return float(np.median(totals_ns[place])) / usual_ns - 1 if usual_ns > 0 else 0.0


def _excess_series(totals_ns: Ints) -> Floats:
    """Return the logarithm of each stage's work over the median of the others', in order of time; shape (s, k * m)."""
    logs = np.log(np.maximum(totals_ns.transpose(0, 2, 1).reshape(len(totals_ns), -1), 1))
    return np.stack([own - np.median(np.delete(logs, place, axis=0), axis=0) for place, own in enumerate(logs)])


def _is_steady(series: Floats, place: int) -> bool:
    """Return whether a stage is above the others all the time, by more than slow stretches of any stage explain.

    Other programs slow a rank down for many micro-batches: these do not vary independently.
    """
    own, count = series[place], series.shape[1]
    if count < _FEWEST:
        return False
    excess = float(np.median(own))
    parts = np.array_split(own, min(_MOST_PARTS, count // _FEWEST_PER_PART))
    if min(float(np.median(part)) for part in parts) < min(_AGREEMENT * excess, math.log1p(_ENOUGH)):
        return False
    return excess > 0 and excess >= _DEVIATIONS * (1 + _FEW / count) * chance_spread(series)


def _move_layer(
    work_ns: Ints, stages: Ints, kinds: Ints, times: Sequence[PipelineStage], heavy: PipelineStage
) -> tuple[Ints, int] | None:
    """Return the work with one layer of the heavy stage in the lightest, and that stage; None if it has only one."""
    known = {row.stage: row.layers for row in times if row.layers}
    if known.get(heavy.stage, 0) < 2 or len(known) < len(times):
        return None
    lightest = min(times, key=lambda row: row.forward_ns + row.backward_ns)
    after_ns = work_ns.copy()
    for kind in np.unique(kinds).tolist():
        each = {stage: work_ns[(stages == stage) & (kinds == kind)] for stage in known}
        layer_ns = np.median([part[0] // known[stage] for stage, part in each.items() if len(part)], axis=0)
        for stage, sign in ((heavy.stage, -1), (lightest.stage, 1)):
            rows = (stages == stage) & (kinds == kind)
            after_ns[rows] = np.maximum(after_ns[rows] + sign * layer_ns.astype(np.int64), 0)
    return after_ns, lightest.stage


def chance_spread(series: Floats) -> float:
    """Return the standard deviation of the mean of the widest of several series of the same kind.

    The spread of its values, times what an autocorrelated series (AR(1)) of that length and autocorrelation has
    between means of whole series in units of the deviations within one. The autocorrelation is that of all series.

    Args:
        series: values in order of time, about any level; shape (s, n), n at least 2.
    """
    low, high = np.quantile(series, (_TAIL, 1 - _TAIL), axis=1)
    count = int(series.shape[1])
    rho = min(max(autocorrelation(series), _LEAST_CORRELATION), _MOST_CORRELATION)
    lags = np.arange(1, count)
    of_mean = float(1 + 2 * ((1 - lags / count) * rho**lags).sum()) / count
    within = (1 - of_mean) * count / (count - 1)
    widest = float(np.max(high - low)) / _NORMAL_RANGE
    return widest * math.sqrt(of_mean / within)


def autocorrelation(series: Floats) -> float:
    """Return the correlation of neighbouring values, over all series about their own means; 0 if nothing varies.

    The largest tenth of the deviations is clipped, and the first-order bias of short series corrected (Kendall 1954).
    """
    around = series - np.median(series, axis=1, keepdims=True)
    limit = np.quantile(np.abs(around), 1 - _TAIL)
    around = np.clip(around, -limit, limit)
    around -= around.mean(axis=1, keepdims=True)
    squares = float(np.square(around).sum())
    if squares == 0:
        return 0.0
    measured = float((around[:, 1:] * around[:, :-1]).sum()) / squares
    return measured + (1 + 3 * measured) / int(series.shape[1])
