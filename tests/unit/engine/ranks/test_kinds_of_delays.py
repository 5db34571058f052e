"""Made runs of every kind of delay, with light and heavy noise: who is late, by how much, since when; and nobody."""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from perfkit.engine.ranks.lateness import COLUMN, OWN, OwnTimes
from perfkit.engine.ranks.stragglers import find_stragglers

MS = 1_000_000
Floats = NDArray[np.float64]
NOISES: Final[Mapping[str, Callable[[np.random.Generator, tuple[int, int]], Floats]]] = {
    "normal": lambda draw, shape: draw.normal(0, 1, shape),
    "exponential": lambda draw, shape: draw.exponential(1, shape),
    "pareto": lambda draw, shape: np.minimum(draw.pareto(2.2, shape), 30),
    "hiccups": lambda draw, shape: (
        draw.normal(0, 0.5, shape) + (draw.random(shape) < 0.08) * draw.exponential(8, shape)
    ),
}


class Run(NamedTuple):
    """Own times, and the truth about them."""

    times: OwnTimes
    late: dict[int, float]
    """Lag (ms) by rank."""
    since: int | None = None
    """Index of the step from which on it is late."""


def own_ms(draw: np.random.Generator, shape: tuple[int, int], noise: str, ms: float) -> Floats:
    """Return healthy ranks whose steps take about 87 ms, shape (ranks, steps, categories)."""
    own = np.zeros((*shape, len(COLUMN)))
    own[:, :, COLUMN["compute"]] = 80 + ms * NOISES[noise](draw, shape)
    own[:, :, COLUMN["memcpy"]] = 1 + 0.05 * draw.exponential(1, shape)
    own[:, :, COLUMN["data_loading"]] = 0.14 + 0.03 * draw.exponential(1, shape)
    own[:, :, COLUMN["overhead"]] = 6 + ms / 4 * NOISES[noise](draw, shape)
    return own


def run_of(own: Floats, late: dict[int, float], since: int | None = None) -> Run:
    """Let all ranks wait for the last one in each step."""
    exposed = np.maximum(own, 0)
    whole = exposed.sum(axis=2)
    exposed[:, :, COLUMN["communication"]] = whole.max(axis=0) - whole + 4
    ranks, steps = whole.shape
    return Run(OwnTimes([*range(ranks)], [*range(2, 2 + steps)], np.rint(MS * exposed).astype(np.int64)), late, since)


def irregular_loader(draw: np.random.Generator, own: Floats) -> Run:
    row, lags = int(draw.integers(len(own))), draw.uniform(2, 14, own.shape[1])
    own[row, :, COLUMN["data_loading"]] += lags
    return run_of(own, {row: float(np.median(lags))})


def irregular(draw: np.random.Generator, own: Floats) -> Run:
    row, lags = int(draw.integers(len(own))), 8 + draw.exponential(15, own.shape[1])
    own[row, :, COLUMN["compute"]] += lags
    return run_of(own, {row: float(np.median(lags))})


def spread(draw: np.random.Generator, own: Floats) -> Run:
    row, lag = int(draw.integers(len(own))), draw.uniform(10, 40)
    for name, share in zip(OWN, draw.dirichlet([2, 0.5, 1, 2]), strict=True):
        own[row, :, COLUMN[name]] += lag * share
    return run_of(own, {row: lag})


def quota(draw: np.random.Generator, own: Floats) -> Run:
    row, factor = int(draw.integers(len(own))), draw.uniform(1.15, 1.5)
    before = own[row].sum(axis=1)
    own[row] *= factor
    return run_of(own, {row: float(np.median((factor - 1) * before))})


def two_ranks(draw: np.random.Generator, own: Floats) -> Run:
    rows, lags = draw.choice(len(own), 2, replace=False), (draw.uniform(10, 15), draw.uniform(25, 40))
    for row, lag, name in zip(rows, lags, draw.choice(["compute", "data_loading", "overhead"], 2), strict=True):
        own[row, :, COLUMN[name]] += lag
    return run_of(own, dict(zip(rows.tolist(), lags, strict=True)))


def since_a_step(draw: np.random.Generator, own: Floats) -> Run:
    row, lag, steps = int(draw.integers(len(own))), draw.uniform(15, 40), own.shape[1]
    first = int(draw.integers(steps // 4 + 1, steps - steps // 4))
    own[row, first:, COLUMN[str(draw.choice(["compute", "data_loading", "overhead"]))]] += lag  # type: ignore[index]
    return run_of(own, {row: lag}, first)


KINDS: Final = (irregular_loader, irregular, spread, quota, two_ranks, since_a_step)


def made(kind: Callable[[np.random.Generator, Floats], Run], seed: int, noise: str) -> Run:
    draw = np.random.default_rng(seed)
    steps = 12 if kind is since_a_step else 6
    shape = int(draw.choice([4, 8, 16])), steps * int(draw.choice([1, 2, 4]))
    return kind(draw, own_ms(draw, shape, noise, ms=float(draw.choice([0.5, 2.0]))))


@pytest.mark.parametrize("kind", KINDS)
def test_the_late_ranks_are_named_each_with_its_own_size(kind: Callable[[np.random.Generator, Floats], Run]) -> None:
    wrong, runs = [], [made(kind, seed, noise) for noise in NOISES for seed in range(25)]
    for run in runs:
        found = {row.rank: row.lag_ns / MS for row in find_stragglers(run.times).ranks}
        if found.keys() != run.late.keys() or any(abs(found[rank] / ms - 1) > 0.2 for rank, ms in run.late.items()):
            wrong.append((run.late, found))
    assert len(wrong) <= 0.05 * len(runs), wrong


def test_a_rank_is_late_from_the_step_on_in_which_it_becomes_so() -> None:
    runs = [made(since_a_step, seed, noise) for noise in NOISES for seed in range(25)]
    found = [(run, find_stragglers(run.times).ranks) for run in runs]
    named = [(run, rows[0]) for run, rows in found if [row.rank for row in rows] == [*run.late]]
    exact = [row for run, row in named if row.first_step == 2 + (run.since or 0)]
    assert all(row.last_step is None for row in exact)
    assert len(exact) >= 0.95 * len(named)


@pytest.mark.parametrize(("first", "last"), [(4, 11), (5, 20), (0, 9)])
def test_a_rank_that_is_late_for_a_while(first: int, last: int) -> None:
    own = own_ms(np.random.default_rng(last), (4, 20), "normal", 1.0)
    own[2, first:last, COLUMN["overhead"]] += 25
    (row,) = find_stragglers(run_of(own, {}).times).ranks
    assert (row.rank, row.steps_late) == (2, last - first)
    assert (row.first_step, row.last_step) == (2 + first if first else None, 1 + last if last < 20 else None)


@pytest.mark.parametrize("noise", NOISES)
def test_nobody_is_late_in_healthy_runs(noise: str) -> None:
    blamed = []
    for seed in range(150):
        draw = np.random.default_rng(seed)
        shape = int(draw.choice([2, 4, 8, 16])), int(draw.choice([3, 5, 10, 20, 40]))
        run = run_of(own_ms(draw, shape, noise, ms=float(draw.choice([0.5, 2.0, 5.0]))), {})
        if find_stragglers(run.times).ranks:
            blamed.append((seed, shape))
    assert len(blamed) <= 1, blamed
