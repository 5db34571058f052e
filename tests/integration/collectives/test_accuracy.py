"""The benchmark against a loop written by hand."""

import json
from statistics import median

import pytest

from tests.support.processes.launching import TORCHRUN, execute

SIZES = ("8", "4096", str(2 << 20))
TURNS = 25


@pytest.mark.slow
@pytest.mark.timing
def test_the_benchmark_measures_what_a_loop_written_by_hand_does() -> None:
    done = execute([*TORCHRUN, "-m", "tests.support.processes.hand_written_loop", str(TURNS), *SIZES])
    assert done.returncode == 0, done.stderr
    times = json.loads(done.stdout.splitlines()[-1])
    assert list(times) == list(SIZES)
    for size, pairs in times.items():
        assert median(measured / by_hand for by_hand, measured in pairs) == pytest.approx(1, abs=0.3), size
