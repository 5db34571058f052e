from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from perfkit.errors import StoreError
from perfkit.records.benchmark import PairTest, PairTime
from perfkit.storage.report_file import load_collectives
from tests.support.reports.collective_builders import benchmark

RECORD = benchmark({8: [1e3, 2e3, 3e3]})


def pairs(a: int, b: int) -> PairTest:
    return PairTest(
        small_bytes=8,
        large_bytes=1024,
        passes=1,
        rounds=1,
        pairs=[PairTime(ranks=(a, b), latency_ns=1e3, time_ns=2e3, bandwidth=5e8)],
        slow=[],
        latency_noise=0.1,
        bandwidth_noise=0.1,
    )


def test_a_pair_of_ranks_is_read_back(tmp_path: Path) -> None:
    record = replace(RECORD, pairs=pairs(0, 1))
    (tmp_path / "a.json").write_bytes(msgspec.json.encode(record))
    assert load_collectives(tmp_path / "a.json") == record


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(msgspec.json.encode(RECORD))
    assert load_collectives(tmp_path / "a.json") == RECORD


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"{}", "not a file of"),
        (b"[1", "not a file of"),
        (b'{"schema_version": 2, "runs": []}', "not a file of"),
        (msgspec.json.encode(replace(RECORD, schema_version=99)), "schema version 99"),
        (msgspec.json.encode(replace(RECORD, series=[])), "unknown series"),
        (msgspec.json.encode(replace(RECORD, pairs=pairs(0, 2))), "unknown series or rank"),
        (msgspec.json.encode(replace(RECORD, pairs=pairs(-1, 0))), "unknown series or rank"),
        (msgspec.json.encode(replace(RECORD, pairs=pairs(1, 1))), "unknown series or rank"),
        (msgspec.json.encode(replace(RECORD, world_size=10**9)), "unknown series or rank"),
        (msgspec.json.encode(replace(RECORD, measurements=[replace(RECORD.measurements[0], time_ns=0)])), "positive"),
    ],
)
def test_anything_else_is_one_line(data: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(data)
    with pytest.raises(StoreError, match=message) as error:
        load_collectives(tmp_path / "a.json")
    assert "\n" not in str(error.value)


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be read"):
        load_collectives(tmp_path / "none.json")
