"""The benchmark against a loop written by hand."""

import json
from pathlib import Path

import pytest

from perfkit.schema.collectives import CollectiveBenchmark
from perfkit.util.json_decoding import decode_json
from tests.support.processes.launching import PYTHON, TORCHRUN, execute

SIZES = (8, 4096, 2 << 20)
TURNS = 2


def loop() -> dict[int, float]:
    """Return the shortest time of each size by the loop."""
    sizes = [str(size) for size in SIZES]
    done = execute([*TORCHRUN, "-m", "tests.support.processes.hand_written_loop", *sizes])
    assert done.returncode == 0, done.stderr
    return {int(size): min(samples) for size, samples in json.loads(done.stdout.splitlines()[-1]).items()}


def benchmark(file: Path) -> dict[int, float]:
    """Return the same by the benchmark."""
    options = ["-n", "2", "--operators", "all_reduce", "--threads", "1", "--max-size", "2M", "--factor", "512"]
    done = execute([*PYTHON, "collectives", *options, "-o", str(file)])
    assert done.returncode == 0, done.stderr
    record = decode_json(file.read_bytes(), CollectiveBenchmark)
    return {row.bytes: min(row.samples_ns) for row in record.measurements}


@pytest.mark.slow
@pytest.mark.timing
def test_the_benchmark_measures_what_a_loop_written_by_hand_does(tmp_path: Path) -> None:
    turns = [(loop(), benchmark(tmp_path / "net.json")) for _ in range(TURNS)]
    by_hand, measured = ({size: min(turn[side][size] for turn in turns) for size in SIZES} for side in range(2))
    for size in SIZES:
        # The shortest of all samples: what else the machine does only adds to them.
        assert measured[size] == pytest.approx(by_hand[size], rel=0.3), size
