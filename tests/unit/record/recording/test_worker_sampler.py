"""A worker process is sampled while the process that trains wants it."""

import sys
import time
from pathlib import Path

import pytest

from perfkit.record.recording.worker_sampler import FLAG, WorkerSampler, read_samples

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs timers of Linux")


def fetch(sampler: WorkerSampler) -> None:
    sampler.before_fetch()
    time.sleep(0.05)
    sampler.after_fetch()


def test_it_samples_while_the_flag_is_there(tmp_path: Path) -> None:
    sampler = WorkerSampler(str(tmp_path), 3)
    fetch(sampler)
    assert read_samples(tmp_path, 0) == []
    (tmp_path / FLAG).touch()
    begin_ns = time.time_ns()
    for _ in range(3):
        fetch(sampler)
    (tmp_path / FLAG).unlink()
    fetch(sampler)
    (found,) = read_samples(tmp_path, begin_ns)
    assert found.worker == 3
    assert found.begin_ns >= begin_ns
    names = {found.functions[place.function].name for place in found.places}
    assert "fetch" in names
    assert read_samples(tmp_path, time.time_ns()) == []


def test_a_damaged_file_has_no_samples(tmp_path: Path) -> None:
    (tmp_path / "1.0.samples").write_bytes(b'{"begin_ns": 1')
    assert read_samples(tmp_path, 0) == []


def test_where_the_folder_is_gone_it_goes_on(tmp_path: Path) -> None:
    (tmp_path / FLAG).touch()
    sampler = WorkerSampler(str(tmp_path), 0)
    sampler.before_fetch()
    (tmp_path / FLAG).unlink()
    tmp_path.rmdir()
    time.sleep(0.03)
    sampler.after_fetch()
    sampler.before_fetch()
