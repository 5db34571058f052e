"""Non-negative least squares against known coefficients, the optimality conditions and a brute-force reference."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from perfkit.base.statistics.nnls import nnls

COLUMNS = arrays.arrays(np.float64, (6, 3), elements=st.floats(0.01, 100))
TARGET = arrays.arrays(np.float64, (6,), elements=st.floats(0.1, 100))


def error(coefficients: np.ndarray, columns: np.ndarray, target: np.ndarray) -> float:
    return float(((columns @ coefficients / target - 1) ** 2).sum())


def coordinate_descent(columns: np.ndarray, target: np.ndarray, sweeps: int = 300) -> np.ndarray:
    """Minimise the same error one coefficient at a time, each clipped at zero."""
    weighted = columns / target[:, None]
    coefficients = np.zeros(columns.shape[1])
    for _ in range(sweeps):
        for k, column in enumerate(weighted.T):
            rest = 1 - weighted @ coefficients + column * coefficients[k]
            coefficients[k] = max(0.0, float(column @ rest / (column @ column)))
    return coefficients


def test_exact_observations_return_their_coefficients() -> None:
    columns = np.array([[1.0, 1e3], [1.0, 1e6], [1.0, 1e9]])
    truth = np.array([[20_000.0, 3e-2], [5.0, 0.0], [0.0, 2.0]])
    np.testing.assert_allclose(nnls(columns, truth @ columns.T), truth, rtol=1e-9, atol=1e-9)


def test_a_negative_slope_is_zero() -> None:
    ((level, slope),) = nnls(np.array([[1.0, 1.0], [1.0, 2.0], [1.0, 3.0]]), np.array([[30.0, 20.0, 10.0]])).tolist()
    assert slope == 0
    assert level > 0


def test_a_column_of_zeros_has_no_coefficient() -> None:
    best = nnls(np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([[2.0, 2.0]]))
    np.testing.assert_allclose(best, [[2.0, 0.0]])


@given(columns=COLUMNS, target=TARGET)
def test_brute_force_is_no_better(columns: np.ndarray, target: np.ndarray) -> None:
    best = nnls(columns, target[None])[0]
    assert (best >= 0).all()
    assert error(best, columns, target) <= error(coordinate_descent(columns, target), columns, target) + 1e-9


@given(columns=COLUMNS, target=TARGET)
def test_no_non_negative_coefficients_are_closer(columns: np.ndarray, target: np.ndarray) -> None:
    best = nnls(columns, target[None])[0]
    draw = np.random.default_rng(0)
    for scale in (1e-3, 1e-2, 0.1, 1.0):
        others = np.maximum(best + draw.normal(0, scale, (50, 3)), 0)
        assert min(error(other, columns, target) for other in others) >= error(best, columns, target) - 1e-7


@given(columns=COLUMNS, targets=arrays.arrays(np.float64, (4, 6), elements=st.floats(0.1, 100)))
def test_sets_are_solved_independently(columns: np.ndarray, targets: np.ndarray) -> None:
    together = nnls(columns, targets)
    one_by_one = np.concatenate([nnls(columns, target[None]) for target in targets])
    np.testing.assert_allclose(together, one_by_one, rtol=1e-6, atol=1e-9)
