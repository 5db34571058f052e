"""Gates on a benchmark against an earlier one, by the rules of `perfkit compare`."""

import pytest

from perfkit.pipeline.benchmarks import compare_benchmarks, differences
from perfkit.records.benchmark import CollectiveBenchmark
from perfkit.subjects.comparison.gates import parse_gate
from tests.support.reports.collective_builders import benchmark

STEADY = [0.98, 0.99, 1.0, 1.01, 1.02]


def of(latency_us: float, large_ms: float, repeats: int = 5) -> CollectiveBenchmark:
    some = STEADY[(5 - repeats) // 2 :][:repeats]
    return benchmark({8: [latency_us * 1e3 * one for one in some], 1 << 20: [large_ms * 1e6 * one for one in some]})


def outcome(
    condition: str, before: CollectiveBenchmark, after: CollectiveBenchmark, noise: float | None = None
) -> tuple[str, str]:
    (gate,) = compare_benchmarks("old.json", before, after, [parse_gate(condition)], noise).gates
    return gate.state, gate.message


@pytest.mark.parametrize(
    ("condition", "state"),
    [
        ("all_reduce.busbw < -10%", "failed"),
        ("all_reduce.busbw < -60%", "passed"),
        ("all_reduce.busbw < 1", "failed"),
        ("all_reduce.busbw < 0.5", "passed"),
        ("all_reduce.latency > +5%", "passed"),
        ("all_reduce.latency > 90us", "failed"),
        ("all_reduce.latency > 1ms", "passed"),
        ("all_reduce.latency > 3", "not_evaluated"),
        ("all_reduce.busbw < 3ms", "not_evaluated"),
        ("all_gather.busbw < -10%", "not_evaluated"),
        ("step_time > +5%", "not_evaluated"),
    ],
)
def test_a_condition_is_decided_by_the_smallest_or_the_largest_message(condition: str, state: str) -> None:
    assert outcome(condition, of(100, 1), of(100, 2))[0] == state


def test_too_few_repeats_cannot_tell_a_change_from_noise() -> None:
    state, message = outcome("all_reduce.busbw < -10%", of(100, 1), of(100, 2, repeats=1))
    assert state == "not_evaluated"
    assert "1 repeat:" in message
    assert outcome("all_reduce.busbw < -10%", of(100, 1), of(100, 2, repeats=1), noise=0.05)[0] == "failed"


def test_a_change_within_the_repeats_or_the_assumed_noise_is_undecided() -> None:
    assert outcome("all_reduce.latency > +0.1%", of(100, 1), of(100.5, 1))[0] == "not_evaluated"
    assert outcome("all_reduce.latency > +5%", of(100, 1), of(120, 1))[0] == "failed"
    assert outcome("all_reduce.latency > +5%", of(100, 1), of(120, 1), noise=0.3)[0] == "not_evaluated"


def test_a_condition_fails_if_it_holds_in_any_series() -> None:
    slow = benchmark([(one, times) for one, times in _two_types(2.0)])
    fast = benchmark([(one, times) for one, times in _two_types(1.0)])
    state, message = outcome("all_reduce.busbw < -10%", fast, slow)
    assert state == "failed"
    assert "int8" in message


def _two_types(second: float) -> list[tuple]:  # type: ignore[type-arg]
    from msgspec.structs import replace

    from tests.support.reports.collective_builders import ALL_REDUCE

    times = {1 << 20: [1e6 * one for one in STEADY]}
    slower = {1 << 20: [second * 1e6 * one for one in STEADY]}
    return [(ALL_REDUCE, times), (replace(ALL_REDUCE, dtype="int8"), slower)]


def test_what_the_earlier_file_does_not_have_is_not_compared() -> None:
    other = benchmark({64: [1e6, 1e6, 1e6]})
    result = compare_benchmarks("old.json", other, of(100, 1), [parse_gate("all_reduce.busbw < -10%")])
    assert result.changes == []
    assert result.gates[0].state == "not_evaluated"
    assert [finding.code for finding in differences(other, of(100, 1))] == ["configurations_differ"]


def test_differences_of_machines_are_findings_and_none_are_not() -> None:
    from msgspec.structs import replace

    now = of(100, 1)
    assert list(differences(now, now)) == []
    then = replace(now, threads=4, device_names=["other"], versions={"torch": "1"})
    assert [finding.code for finding in differences(then, now)] == [
        "configurations_differ",
        "devices_differ",
        "versions_differ",
    ]
