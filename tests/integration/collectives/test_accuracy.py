"""The benchmark against a loop written by hand."""

import json
from statistics import median

import pytest

from tests.support.processes.launching import TORCHRUN, execute

SIZES = ("8", "4096", str(2 << 20))
LAUNCHES, TURNS = 3, 15
"""Where the two ranks run decides about a tenth of a millisecond, for as long as they live: several launches."""


@pytest.mark.slow
@pytest.mark.timing
@pytest.mark.flaky(reruns=2)  # other programs on the machine change wall times
def test_the_benchmark_measures_what_a_loop_written_by_hand_does() -> None:
    ratios: dict[str, list[float]] = {size: [] for size in SIZES}
    for _ in range(LAUNCHES):
        done = execute([*TORCHRUN, "-m", "tests.support.processes.hand_written_loop", str(TURNS), *SIZES])
        assert done.returncode == 0, done.stderr
        for size, pairs in json.loads(done.stdout.splitlines()[-1]).items():
            ratios[size].append(median(measured / by_hand for by_hand, measured in pairs))
    for size, of_launches in ratios.items():
        assert median(of_launches) == pytest.approx(1, abs=0.3), (size, of_launches)
