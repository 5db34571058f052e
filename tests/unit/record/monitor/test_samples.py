"""Samples of the host."""

import math
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from perfkit.record.monitor import samples
from perfkit.record.monitor.samples import Sampler

LARGE = 600 << 20
PROGRAM = """
import torch
from perfkit.record.monitor.samples import Sampler
sample = Sampler(torch.device("cpu")).take().columns
print(sample.rss_bytes, sample.peak_rss_bytes)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux keeps the peak of the program that called exec")
def test_the_peak_is_not_that_of_the_program_that_has_started_this_one() -> None:
    held = bytearray(LARGE)
    held[::4096] = bytes(len(held[::4096])).replace(b"\0", b"\1")
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    resident, peak = map(int, done.stdout.split())
    assert 0 < resident <= peak < LARGE


def test_without_the_kernels_table_the_peak_is_that_of_the_system_call(monkeypatch: pytest.MonkeyPatch) -> None:
    known = Sampler(torch.device("cpu")).take().columns.peak_rss_bytes
    monkeypatch.setattr(samples, "_read_kib", lambda *_: -1)
    assert Sampler(torch.device("cpu")).take().columns.peak_rss_bytes >= known * 0.9


def test_a_table_without_the_line_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "table").write_text("MemTotal: 5 kB\nMemFree:\n")
    path = str(tmp_path / "table")
    assert samples._read_kib(path, "MemTotal:") == 5 * 1024
    assert samples._read_kib(path, "MemFree:") == -1
    assert samples._read_kib(path, "VmHWM:") == -1
    assert samples._read_kib(str(tmp_path / "none"), "VmHWM:") == -1


def test_the_processors_that_the_process_keeps_busy_are_those_since_the_last_sample(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sampler = Sampler(torch.device("cpu"))
    clock = Mock(process_time_ns=Mock(return_value=0), perf_counter_ns=Mock(return_value=0))
    monkeypatch.setattr(samples, "time", clock)
    sampler._process_busy()
    clock.process_time_ns.return_value, clock.perf_counter_ns.return_value = 1500, 1000
    assert sampler._process_busy() == 1.5
    assert math.isnan(sampler._process_busy())
    clock.process_time_ns.return_value, clock.perf_counter_ns.return_value = 1750, 2000
    assert sampler.take().columns.process_busy == 0.25
