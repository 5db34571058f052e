import gzip
import json
import os
from pathlib import Path

import pytest
import torch

from perfkit.errors import StoreError
from perfkit.record.distributed.topology import threads_per_rank
from perfkit.record.recording.manifest_writer import checksum_of
from perfkit.record.recording.throughput import StepWork, find_peak, measure_throughput
from perfkit.record.recording.trace_export import compress
from perfkit.records.roofline import DevicePeaks
from tests.support.reports.report_builders import make_record


def test_throughput_is_by_the_mean_plain_step_of_the_slowest_rank() -> None:
    ranks = [
        make_record([900, 100, 500, 200, 330], 0, [9, 10, 9, 10, 10]),
        make_record([100, 400, 500, 100, 100], 1, [9, 5, 9, 5, 5]),
    ]
    work = StepWork(batch_size=2, sample_bytes=8, tokens_per_sample=3, flops_per_token=5.0)
    found = measure_throughput(["cold", "plain", "active", "plain", "plain"], ranks, work, 1e12)
    assert found is not None
    assert (found.measured_on, found.step_ns) == ("plain", 210)  # of 100, 200, 330
    assert found.samples_per_s == pytest.approx(4 / 210e-9)
    assert found.tokens_per_s == pytest.approx(12 / 210e-9)
    assert found.flops_per_s == pytest.approx(60 / 210e-9)
    assert found.mfu == pytest.approx(60 / 210e-9 / 2e12)
    assert found.read_bytes_per_s == pytest.approx(3 * 16 / 30e-9 + 3 * 16 / 15e-9)
    waiting = measure_throughput(["plain"], [make_record([900], 0, [9])], work, "unknown", reading=False)
    assert waiting is not None
    assert waiting.read_bytes_per_s is None


def test_throughput_without_plain_steps_or_figures() -> None:
    found = measure_throughput(
        ["cold", "active"], [make_record([10, 20], 0, [1, 1])], StepWork(batch_size=1), "unknown"
    )
    assert found is not None
    assert (found.measured_on, found.step_ns, found.tokens_per_s, found.mfu) == ("active", 20, None, None)
    assert found.mfu_reason is not None
    assert measure_throughput(["cold"], [make_record([10], 0, [1])], StepWork(batch_size=1), "unknown") is None


def test_peaks() -> None:
    assert find_peak("NVIDIA H200", "bfloat16", None) == 989.5e12
    assert find_peak("NVIDIA H200", "bfloat16", 2.0) == 2e12
    unknown = find_peak("NVIDIA H200 NVL", "bfloat16", None)  # a neighbour's name is not enough
    assert "--peak-tflops" in str(unknown)
    own = [DevicePeaks(name="CPU", tflops={"float32": 0.5}, threads=2)]
    assert find_peak("CPU", "float32", None, table=own, threads=2) == 0.5e12
    assert isinstance(find_peak("CPU", "float32", None, table=own, threads=4), str)


def test_compress_keeps_every_byte(tmp_path: Path) -> None:
    whole = {"a": "x" * (1 << 20), "traceEvents": list(range(100_000)), "traceName": "t"}
    trace = json.dumps(whole).encode() + b"\n"
    (tmp_path / "t").write_bytes(trace)
    with (tmp_path / "t.gz").open("w+b") as target:
        compress(tmp_path / "t", target)
    assert gzip.decompress((tmp_path / "t.gz").read_bytes()) == trace


CUT_AFTER_AN_EVENT = b'{"traceEvents": [{"ph": "X", "args": {"Input Dims": [[1, 2]], "a": {}}}'


@pytest.mark.parametrize(
    "content", [b"", b'{"traceEvents": [1, 2', b'{"other": [], "traceName": ""}', b"[]", CUT_AFTER_AN_EVENT]
)
def test_compress_refuses_what_is_no_trace(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(content)
    with (tmp_path / "t.gz").open("w+b") as target, pytest.raises(StoreError, match="not a complete trace"):
        compress(tmp_path / "t", target)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_compress_on_a_full_disk(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(b'{"traceEvents": [], "traceName": "t"}')
    with pytest.raises(OSError, match="No space left"), Path("/dev/full").open("wb") as target:
        compress(tmp_path / "t", target)


def test_threads() -> None:
    both, left, right = frozenset({0, 1, 2, 3}), frozenset({0, 1}), frozenset({2, 3})
    assert threads_per_rank(both, [both, both], 4) == 2
    assert threads_per_rank(both, [both, both], 3) == 1  # a quota of three cores
    assert threads_per_rank(left, [left, right], 2) == 2  # bound to cores of their own
    assert threads_per_rank(left, [left, left, left, right], 2) == 1


def test_checksums_tell_any_bit_and_type() -> None:
    one = checksum_of([torch.zeros(3), torch.ones(2, 2, dtype=torch.bfloat16)])
    assert one == checksum_of([torch.zeros(3), torch.ones(2, 2, dtype=torch.bfloat16)])
    changed = torch.zeros(3)
    changed[2] = 1e-45
    assert one != checksum_of([changed, torch.ones(2, 2, dtype=torch.bfloat16)])
    assert checksum_of([torch.tensor(1.0)]) != checksum_of([torch.tensor(2.0)])
