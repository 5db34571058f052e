"""Threads and cores of a host, and the rates of a run."""

import pytest

from perfkit.engine.runs.manifest_checks import at_mean_step, oversubscription
from perfkit.records.manifest import RankRecord, Throughput
from perfkit.records.run import StepTimes


def rank(number: int, threads: int, cores: int | None, device: str = "cpu") -> RankRecord:
    return RankRecord(
        rank=number,
        local_rank=number,
        node_rank=0,
        host="a",
        device=device,
        device_name="",
        threads=threads,
        node_cores=cores,
        step_wall_ns=[],
        load_ns=[],
        loss=[],
    )


@pytest.mark.parametrize(
    ("threads", "cores", "device", "expected"),
    [
        (2, 2, "cpu", ["oversubscribed"]),
        (2, 4, "cpu", []),
        (1, 1, "cpu", []),
        (2, None, "cpu", []),
        (2, 2, "cuda:0", []),
    ],
)
def test_more_threads_than_cores(threads: int, cores: int | None, device: str, expected: list[str]) -> None:
    found = list(oversubscription([rank(number, threads, cores, device) for number in range(2)]))
    assert [fact.code for fact in found] == expected
    assert all((fact.values["threads"], fact.values["cores"]) == (4, 2) for fact in found)


def test_rates_are_those_of_the_mean_step() -> None:
    rates = Throughput(
        samples_per_s=400.0,
        tokens_per_s=1_200.0,
        flops_per_s=None,
        mfu=0.4,
        mfu_reason=None,
        read_bytes_per_s=7.0,
        measured_on="plain",
        step_ns=100,
    )
    of_mean = at_mean_step(rates, StepTimes(plain_ns=[100, 100, 400], recorded_ns=[900]))
    assert (of_mean.step_ns, of_mean.samples_per_s, of_mean.tokens_per_s, of_mean.mfu) == (200, 200, 600, 0.2)
    assert (of_mean.read_bytes_per_s, of_mean.flops_per_s) == (7, None)
    assert of_mean.samples_per_step == rates.samples_per_step
    assert at_mean_step(rates, StepTimes(plain_ns=[50, 150], recorded_ns=[])) is rates
    assert at_mean_step(rates, None) is rates
