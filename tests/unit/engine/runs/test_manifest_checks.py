"""Threads and cores of a host."""

import pytest

from perfkit.engine.runs.manifest_checks import oversubscription
from perfkit.records.manifest import RankRecord


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
