"""Count how often equal stages are called heavy, and how often a stage that takes 30 % longer is found with its size.

Usage: python -m tests.benchmarks.bench_heavy_stages [--cases 500]

The times of micro-batches are generated; `bench_pipelines` records pipelines that sleep. Of each kind of noise and
number of stages, micro-batches and steps: runs with equal stages that name one / runs that name exactly the heavy one
/ those of all runs whose size is within a tenth of 30 %.
"""

import argparse

import numpy as np

from perfkit.engine.pipelines.balance import excess_by_place
from tests.support.traces.stage_noise import CORRELATED, INDEPENDENT, Noise, Shape, times_of

_SHAPES: list[Shape] = [(2, 4, 2), (2, 4, 3), (4, 4, 3), (4, 8, 2), (8, 8, 3), (16, 8, 3), (2, 8, 10), (8, 16, 10)]
_FACTOR = 1.3


def _counts(noise: Noise, shape: Shape, cases: int) -> tuple[int, int, int]:
    draw = np.random.default_rng(13)
    wrong = found = sized = 0
    for _ in range(cases):
        times = times_of(noise, draw, shape)
        wrong += bool(excess_by_place(times))
        at = int(draw.integers(shape[0]))
        times[at] = _FACTOR * times[at]
        named = excess_by_place(times)
        if set(named) == {at}:
            found += 1
            sized += abs(named[at] / (_FACTOR - 1) - 1) <= 0.1
    return wrong, found, sized


def main() -> None:
    """Print a line for each kind of noise."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=500)
    cases: int = parser.parse_args().cases
    print(" " * 28 + "".join(f"{'x'.join(map(str, shape)):>18}" for shape in _SHAPES))
    for name, noise in {**INDEPENDENT, **CORRELATED}.items():
        shares = ([100 * one / cases for one in _counts(noise, shape, cases)] for shape in _SHAPES)
        cells = (f"{wrong:.1f} /{found:4.0f} /{sized:4.0f} %" for wrong, found, sized in shares)
        print(f"{name:<28}" + "".join(f"{cell:>18}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
