"""The benchmark on one real rank, with sources whose truth is known."""

import ctypes
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from perfkit.record.benchmark_rank import Setting
from perfkit.record.distributed.launcher_env import RankInfo
from perfkit.record.distributed.rank_group import ProcessRankGroup
from perfkit.record.distributed.topology import discover_topology
from perfkit.records.benchmark import InputBenchmark
from perfkit.tools.input.config import InputConfig
from perfkit.tools.input.measure.benchmark import measure
from perfkit.tools.input.measure.page_cache import cached_share, drop, measure_speed
from perfkit_workloads.data.memory import Memory
from perfkit_workloads.data.source import Source
from tests.unit.workloads.conftest import make_source

SMALL: dict[str, Any] = {"samples": 64, "batch_size": 8, "sample_size": "4K", "repeats": 3, "threads": 1}


def run(folder: Path, sources: dict[str, Source[Any]], **options: Any) -> InputBenchmark:
    ranks = ProcessRankGroup(torch.device("cpu"))
    before = torch.get_num_threads()
    topology = discover_topology(ranks, RankInfo(), torch.device("cpu"), 1)
    config = InputConfig(data_dir=str(folder), **(SMALL | options))
    record = measure(config, Setting(ranks, topology, "now"), sources)
    torch.set_num_threads(before)
    return record


def built_in(*names: str) -> dict[str, Source[Any]]:
    return {name: make_source(source=name)[0] for name in names}


class Sleeping(Memory):
    """Takes 60 ms per batch."""

    def dataset(self, *arguments: Any) -> Any:
        return _Sleeping(super().dataset(*arguments))


class _Sleeping:
    def __init__(self, samples: Any) -> None:
        self._samples = samples

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: Any) -> Any:
        time.sleep(0.06)
        return self._samples[index]


class Wrong(Memory):
    def dataset(self, *arguments: Any) -> Any:
        return _Wrong(super().dataset(*arguments))


class _Wrong(_Sleeping):
    def __getitem__(self, index: Any) -> Any:
        return self._samples[[one // 2 for one in index]]


@pytest.mark.slow
def test_all_sources_are_measured_cold_and_warm_and_agree(tmp_path: Path) -> None:
    record = run(tmp_path, built_in("memory", "hdf5", "safetensors", "pt", "bin", "arrow"))
    # So small a file is read in less than a time slice: what else runs here may keep it cached, or out of the cache.
    assert {one.code for one in record.findings} <= {"cache_not_dropped", "not_cached"}
    assert len(record.series) == 12
    assert len(record.measurements) == 2 + 10 * 2
    assert [one.source for one in record.files] == ["hdf5", "safetensors", "pt", "bin", "arrow"]
    assert record.files[3].bytes == 64 * 4096 // 2
    for row in record.measurements:
        assert (row.loads, len(row.passes)) == (8, 3)
        assert row.p99_ns >= row.median_ns > 0
        assert row.bytes_per_s == pytest.approx(row.loads_per_s * 8 * 4096)


def test_a_slow_source_takes_as_long_as_it_sleeps_and_workers_hide_it(tmp_path: Path) -> None:
    options: dict[str, Any] = {"num_workers": "0,1", "worker_start": "fork", "read": "batched", "step": "160ms"}
    record = run(tmp_path, {"memory": Sleeping(make_source()[0].config)}, repeats=3, **options)
    own, ahead = record.measurements
    assert own.median_ns >= 60e6
    assert own.load_ns >= 60e6
    direct, hidden = record.hidden
    assert (direct.hidden, direct.step_ns) == (0, 160_000_000)
    assert direct.wait_ns >= 60e6
    assert ahead.load_ns > 40e6, "one worker is as slow as the rank itself, but for the batches it has prefetched"
    assert hidden.hidden > 0, "nothing is hidden without workers; how much of it is, depends on what else runs"


def test_a_source_with_other_batches_is_an_error(tmp_path: Path) -> None:
    sources: dict[str, Source[Any]] = {
        "hdf5": Memory(make_source()[0].config),
        "memory": Wrong(make_source()[0].config),
    }
    record = run(tmp_path, sources, read="batched", repeats=1)
    assert [one.code for one in record.findings if one.severity == "error"] == ["different_batches"]


def test_files_and_preloading(tmp_path: Path) -> None:
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:  # else the files may go where other tests' objects were, and the process does not grow
        trim(0)
    record = run(tmp_path, built_in("hdf5"), files=4, preload=True, read="batched", repeats=1, sample_size="256K")
    (row,) = record.measurements
    assert (row.cache, row.file_share) == ("warm", None), "what is in memory is neither cold nor read from a file"
    assert record.files[0].files == 4
    # The files are in memory, of which the process may have some left.
    assert row.ranks[0].memory_bytes is None or row.ranks[0].memory_bytes > 2 << 20


def test_cold_can_be_left_out(tmp_path: Path) -> None:
    record = run(tmp_path, built_in("bin"), cold=False, read="batched", repeats=1)
    assert [row.cache for row in record.measurements] == ["warm"]
    assert record.cache_dropped_by is None


def test_a_dropped_file_is_out_of_the_page_cache(tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.write_bytes(bytes(8 << 20))
    drop([file])
    share = cached_share([file])
    if share is None:
        pytest.skip("the system does not report it")
    file.read_bytes()
    assert cached_share([file]) == 1
    drop([file])
    left = cached_share([file])
    if left is None or left > 0.1:
        pytest.skip("this file system keeps what is dropped")
    speed = measure_speed([file])
    assert speed.cold is not None
    assert speed.warm is not None
