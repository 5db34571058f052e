"""Non-negative least squares of the relative error, for models with a few coefficients."""

from itertools import combinations

import numpy as np

from perfkit.base.statistics.bootstrap import Floats


def nnls(columns: Floats, targets: Floats) -> Floats:
    """Return the coefficients >= 0 that minimise the sum of squared relative errors, for each target.

    Every subset of the coefficients is solved with the others at zero. Of the solutions without a negative coefficient,
    the one with the smallest error is the optimum: the active set of Lawson and Hanson's NNLS, found by exhaustion.

    Args:
        columns: shape (observations, coefficients), none of them negative.
        targets: above 0, shape (sets, observations).

    Returns:
        Shape (sets, coefficients).
    """
    weighted = columns[None] / targets[..., None]
    count = columns.shape[1]
    best = np.zeros((len(targets), count))
    least = np.full(len(targets), float(targets.shape[1]))  # with all coefficients at zero, every relative error is 1
    for size in range(1, count + 1):
        for subset in map(list, combinations(range(count), size)):
            solved = _least_squares(weighted[..., subset])
            error = ((np.einsum("sij,sj->si", weighted[..., subset], solved) - 1) ** 2).sum(axis=1)
            better = (solved >= 0).all(axis=1) & (error < least)
            least[better] = error[better]
            best[better] = 0
            best[np.ix_(better, subset)] = solved[better]
    return best


def _least_squares(weighted: Floats) -> Floats:
    """Solve weighted @ x = 1 for each set; columns are scaled because their sizes are orders of magnitude apart."""
    scale = np.sqrt((weighted**2).sum(axis=1))
    scale[scale == 0] = 1
    inverse = np.linalg.pinv(weighted / scale[:, None])
    solved: Floats = inverse.sum(axis=2) / scale
    return solved
