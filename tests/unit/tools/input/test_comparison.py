"""Conditions on a benchmark of input, by the rules of `perfkit compare`."""

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from perfkit.errors import StoreError
from perfkit.pipeline.benchmarks import compare_benchmarks, differences
from perfkit.records.benchmark import InputBenchmark
from perfkit.storage.report_file import load_input
from perfkit.subjects.comparison.gates import parse_gate
from tests.support.reports.input_builders import benchmark, measurement

STEADY = [0.98, 0.99, 1.0, 1.01, 1.02]


def of(warm_ms: float, cold_ms: float = 10, passes: int = 5) -> InputBenchmark:
    times = STEADY[(5 - passes) // 2 :][:passes]
    return benchmark(
        [
            measurement(0, [0.1, 0.1, 0.1]),
            measurement(1, [cold_ms * one for one in times], "cold"),
            measurement(1, [warm_ms * one for one in times]),
        ]
    )


@pytest.mark.parametrize(
    ("condition", "state"),
    [
        ("hdf5.load > +50%", "failed"),
        ("hdf5.load > +150%", "passed"),
        ("hdf5.rate < -10%", "failed"),
        ("hdf5.rate < -60%", "passed"),
        ("hdf5.rate < 501", "failed"),
        ("hdf5.rate < 499", "passed"),
        ("hdf5.median > 1.9ms", "failed"),
        ("hdf5.p99 > 5ms", "failed"),
        ("hdf5.p99 > 7ms", "passed"),
        ("hdf5.cold_load > +5%", "passed"),
        ("hdf5.cold_load > 9ms", "failed"),
        ("memory.cold_load > 9ms", "not_evaluated"),
        ("hdf5.load > 3", "not_evaluated"),
        ("hdf5.rate < 3ms", "not_evaluated"),
        ("pt.load > 1ms", "not_evaluated"),
        ("hdf5.busbw < 1", "not_evaluated"),
    ],
)
def test_a_condition_names_a_source_and_a_metric(condition: str, state: str) -> None:
    (gate,) = compare_benchmarks("old.json", of(1), of(2), [parse_gate(condition)]).gates
    assert gate.state == state, gate.message


def test_too_few_passes_and_small_changes_are_undecided() -> None:
    wanted = [parse_gate("hdf5.load > +5%")]
    assert compare_benchmarks("", of(1), of(2, passes=1), wanted).gates[0].state == "not_evaluated"
    assert compare_benchmarks("", of(1), of(2, passes=1), wanted, 0.05).gates[0].state == "failed"
    assert compare_benchmarks("", of(1), of(1.2), wanted, 0.3).gates[0].state == "not_evaluated"


def test_only_the_same_series_in_the_same_state_of_the_cache_is_compared() -> None:
    other = replace(of(1), series=[replace(one, num_workers=2) for one in of(1).series])
    assert compare_benchmarks("", other, of(1), []).changes == []
    assert [one.code for one in differences(other, of(1))] == ["configurations_differ"]
    changes = compare_benchmarks("", of(1), of(2), []).changes
    assert [(one.cache, round(one.ratio, 3), one.significant) for one in changes[1:]] == [
        ("cold", 1.0, False),
        ("warm", 2.0, True),
    ]
    assert list(differences(of(1), of(2))) == []
    (found,) = differences(replace(of(1), samples=5), of(2))
    assert "samples (5 / 1024)" in found.message


def test_a_file_is_read_back_and_anything_else_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(msgspec.json.encode(of(1)))
    assert load_input(file) == of(1)
    for damaged in (
        replace(of(1), series=[]),
        replace(of(1), measurements=[replace(measurement(0, [1.0]), load_ns=0.0)]),
    ):
        file.write_bytes(msgspec.json.encode(damaged))
        with pytest.raises(StoreError, match="not a file of `perfkit input"):
            load_input(file)
