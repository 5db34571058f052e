import json
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from perfkit.cli import main
from perfkit.errors import StoreError
from perfkit.records.benchmark import SeriesFit
from perfkit.records.cross_rank import BandwidthFit
from perfkit.records.rank import MemoryPeak
from perfkit.tools.plan.check import explained_bytes
from perfkit.tools.plan.formulas.step_time import LATENCY_NS, Rates
from perfkit.tools.plan.measured import measured_rates
from tests.support.reports.collective_builders import ALL_REDUCE
from tests.support.reports.collective_builders import benchmark as collectives


def fit(operator: str, *, ranks: int, alpha_ns: float | None, beta: float | None) -> BandwidthFit:
    return BandwidthFit(
        operator=operator, group=None, group_size=ranks, sizes=8, alpha_ns=alpha_ns, beta=beta, error=0.1, reason=None
    )


def benchmark(tmp_path: Path, *fits: tuple[int, BandwidthFit]) -> Path:
    path = tmp_path / "collectives.json"
    series = [(replace(ALL_REDUCE, concurrent=concurrent), {8: [1.0]}) for concurrent in (1, 4)]
    record = collectives(series, fits=[SeriesFit(series=at, fit=one) for at, one in fits])
    path.write_bytes(msgspec.json.encode(record))
    return path


def test_latency_and_bandwidth_are_those_of_the_largest_group(tmp_path: Path) -> None:
    small = fit("all_reduce", ranks=2, alpha_ns=1000, beta=1e9)
    large = fit("all_reduce", ranks=8, alpha_ns=6000, beta=2e9)
    busy = fit("all_reduce", ranks=64, alpha_ns=1, beta=1)
    rates, device = measured_rates(benchmark(tmp_path, (0, small), (0, large), (1, busy)), Rates(), None)
    assert device is None
    assert rates.bytes_per_s == 2e9
    assert rates.latency_ns == 2000, "a tree of 8 ranks has a depth of 3"
    assert "all_reduce among 8 ranks" in rates.sources[0]


def test_without_a_fit_what_is_assumed_stays_and_is_said(tmp_path: Path) -> None:
    rates, _ = measured_rates(
        benchmark(tmp_path, (0, fit("all_reduce", ranks=2, alpha_ns=None, beta=None))), Rates(), None
    )
    assert (rates.bytes_per_s, rates.latency_ns) == (None, LATENCY_NS)
    assert rates.sources[0].endswith("no fit of latency and bandwidth: both assumed")


def test_a_measured_bandwidth_replaces_that_of_the_links(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = benchmark(tmp_path, (0, fit("all_reduce", ranks=8, alpha_ns=0.0, beta=1e9)))
    plans = []
    for more in ([], ["--from", str(path)]):
        assert main(["plan", "gpt", "--preset", "gpt2", "-n", "8", "--device", "h100", *more, "-f", "json"]) == 0
        plans.append(json.loads(capsys.readouterr().out))
    message = plans[1]["layouts"][0]["traffic"][0]
    assert message["time_ns"] == pytest.approx(message["sent_bytes"])  # 1 GB/s is a byte per ns
    assert plans[0]["layouts"][0]["traffic"][0]["time_ns"] < message["time_ns"]


@pytest.mark.parametrize("content", ["{}", "no JSON", '{"series": [], "fits": [{"series": "x"}]}'])
def test_a_file_of_something_else_is_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text(content)
    with pytest.raises(StoreError, match="not a file of `perfkit collectives"):
        measured_rates(path, Rates(), None)


def test_a_check_takes_the_model_from_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--check", str(tmp_path), "--layers", "4"]) == 2
    assert "--check takes model, ranks and layout from the run" in capsys.readouterr().err


def test_a_trace_of_another_program_cannot_be_checked(capsys: pytest.CaptureFixture[str]) -> None:
    samples = Path(__file__).parents[3] / "data" / "traces"
    trace = next(path for path in sorted(samples.rglob("*.json*")) if "ddp" in path.name or "rank" in path.name)
    assert main(["plan", "--check", str(trace)]) == 2
    assert "runs of `perfkit run gpt` only" in capsys.readouterr().err


@pytest.mark.parametrize(("unknown", "expected"), [(None, 1_000), (0, 1_000), (300, 700), (-300, 1_000)])
def test_memory_whose_release_was_not_recorded_is_not_measured(unknown: int | None, expected: int) -> None:
    peak = MemoryPeak(step=3, allocated_bytes=1_000, reserved_bytes=None, at_ns=0, unknown_bytes=unknown)
    assert explained_bytes(peak) == expected


def test_neither_is_memory_that_may_have_been_released_before_the_peak() -> None:
    peak = MemoryPeak(
        step=3, allocated_bytes=1_000, reserved_bytes=None, at_ns=0, unknown_bytes=100, unseen_release_bytes=250
    )
    assert explained_bytes(peak) == 650
