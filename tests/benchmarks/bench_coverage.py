"""How often the 95 % intervals of scaling contain the true value, over many noisy sets of runs.

Run it with `python -m tests.benchmarks.bench_coverage`. Runs scatter by a log-normal error; steps do not, so that every
interval rests on how runs differ.
"""

import argparse
from collections.abc import Callable, Sequence
from typing import NamedTuple

from perfkit.records.run import RunReport
from perfkit.records.scaling import Estimate, ScalingSeries
from perfkit.subjects.scaling.summary import scaling
from tests.support.reports.scaling_builders import make_strong, make_weak

Truth = dict[str, float]


class Case(NamedTuple):
    """A law with known parameters, and how its runs are sampled."""

    name: str
    draw: Callable[[int], list[RunReport]]
    truth: Truth


def usl_ms(g: float, s: float, k: float, samples: Callable[[int], float]) -> Callable[[int], float]:
    """Return the step time of the universal scalability law; `samples`: per step, over all ranks."""
    return lambda p: 1e3 * samples(p) * (1 + s * (p - 1) + k * p * (p - 1)) / (g * p)


def usl_truth(g: float, s: float, k: float, size: int) -> Truth:
    """Return the parameters, and the throughput of a larger world size."""
    return {"usl.g": g, "usl.s": s, "usl.k": k, "forecast": g * size / (1 + s * (size - 1) + k * size * (size - 1))}


def cases(noise: float, repeats: int) -> list[Case]:
    """Return the sampled sets."""
    sizes = [1, 2, 4, 8, 16, 32]
    made = []
    for s, k in ((0.05, 0.001), (0.02, 0.0)):
        step_ms = usl_ms(320, s, k, lambda p: 32 * p)

        def weak(seed: int, step_ms: Callable[[int], float] = step_ms) -> list[RunReport]:
            return make_weak(step_ms, sizes, repeats=repeats, noise=noise, seed=seed)

        made.append(Case(f"USL, s = {s}, k = {k}", weak, usl_truth(320, s, k, 64)))
    for f in (0.1, 0.01):

        def strong(seed: int, f: float = f) -> list[RunReport]:
            return make_strong(lambda p: 1000 * (f + (1 - f) / p), sizes, repeats=repeats, noise=noise, seed=seed)

        made.append(
            Case(f"Amdahl, f = {f}", strong, {"amdahl.serial_fraction": f, "speedup at 32": 1 / (f + (1 - f) / 32)})
        )

    def gustafson(seed: int) -> list[RunReport]:
        return make_weak(lambda p: 100 * p / (0.1 + 0.9 * p), sizes, repeats=repeats, noise=noise, seed=seed)

    return [*made, Case("Gustafson, s = 0.1", gustafson, {"gustafson.serial_fraction": 0.1})]


def estimates(series: ScalingSeries) -> dict[str, Estimate | None]:
    """Return the estimates to compare with the true values, by name."""
    found: dict[str, Estimate | None] = {
        f"{fit.model}.{name}": estimate for fit in series.fits for name, estimate in fit.parameters.items()
    }
    found["forecast"] = next((one.samples_per_s for one in series.forecasts if one.world_size == 64), None)
    found["speedup at 32"] = next((point.speedup for point in series.points if point.world_size == 32), None)
    return found


def coverage(case: Case, draws: int) -> dict[str, tuple[int, int]]:
    """Return how many intervals contained the true value, and of how many."""
    held = {name: [0, 0] for name in case.truth}
    for seed in range(draws):
        together = scaling(case.draw(seed))
        found = estimates(together.series[0]) if together else {}
        for name, truth in case.truth.items():
            estimate = found.get(name)
            if estimate is not None and estimate.interval is not None:
                held[name][0] += estimate.interval[0] <= truth <= estimate.interval[1]
                held[name][1] += 1
    return {name: (yes, of) for name, (yes, of) in held.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print one line per parameter."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--noise", type=float, default=0.03, help="relative standard deviation of a run")
    parser.add_argument("--repeats", type=int, nargs="+", default=[1, 3, 5])
    options = parser.parse_args(arguments)
    for repeats in options.repeats:
        for case in cases(options.noise, repeats):
            for name, (yes, of) in coverage(case, options.draws).items():
                share = f"{100 * yes / of:.1f} %" if of else "-"
                print(
                    f"{repeats} repeats  {case.name:24} {name:26} {share:>8} of {of} intervals contain the true value"
                )


if __name__ == "__main__":
    main()
