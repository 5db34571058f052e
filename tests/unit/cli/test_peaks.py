"""`perfkit peaks` measures this machine's CPU; small sizes, because only the arithmetic of the figures is checked."""

from pathlib import Path

import pytest
import torch

from perfkit.cli import main
from perfkit.record import peaks
from perfkit.record.distributed.topology import name_device
from perfkit.records.roofline import find_device
from perfkit.storage.device_table_file import load_device_table


@pytest.fixture
def small_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peaks, "_CPU_ARRAY_BYTES", 1 << 20)
    monkeypatch.setattr(peaks, "cache_bytes", lambda: 0)


@pytest.mark.usefixtures("small_arrays")
def test_what_is_measured_is_printed_and_found_by_the_device_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = torch.get_num_threads()
    try:
        arguments = ["--dtypes", "float32,tf32", "--sizes", "64,32", "--repeats", "3", "--threads", "1"]
        assert main(["peaks", "--device", "cpu", *arguments, "-o", str(tmp_path / "row.toml")]) == 0
    finally:
        torch.set_num_threads(before)
    printed, status = capsys.readouterr()
    assert status.startswith(f"Wrote {tmp_path / 'row.toml'} (")
    assert printed.count(" rows ") == 2
    assert printed.count("peak") == 1
    assert "tf32      not measured: the device has no TF32" in printed
    row = find_device(load_device_table(tmp_path / "row.toml"), name_device(torch.device("cpu")), threads=1)
    assert row is not None
    assert list(row.tflops) == ["float32"]
    assert 0 < row.tflops["float32"] < 10
    assert row.bandwidth_gb_per_s is not None
    assert 0.1 < row.bandwidth_gb_per_s < 1000
    assert "medians of 3" in row.source


def test_figures_follow_from_the_times() -> None:
    assert peaks.GemmTime("float32", 1000, 1e6).flops_per_s == 2e12  # 2e9 operations in 1 ms
    assert peaks.TriadTime(1_000_000, 1e6).bytes_per_s == 3e9
    gemms = [peaks.GemmTime("float32", n, t) for n, t in ((10, 2.0), (20, 4.0), (40, 64.0))]
    found = peaks.MeasuredPeaks("x", None, gemms, {}, peaks.TriadTime(1000, 100), 64_000_000_000)
    assert found.best("float32") == gemms[1]  # 1000, 4000 and 2000 operations per ns
    assert found.row("").tflops == {"float32": 4.0}
    assert (found.row("").bandwidth_gb_per_s, found.row("").memory_gb) == (30.0, 64.0)


@pytest.mark.usefixtures("small_arrays")
def test_sizes_that_take_too_long_or_do_not_fit_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peaks, "_LONGEST_S", 1e-9)
    slow = peaks.measure_peaks(torch.device("cpu"), dtypes=["float32"], sizes=[16], repeats=1)
    assert (slow.gemms, slow.failed) == ([], {})
    monkeypatch.setattr(peaks, "_LONGEST_S", 10.0)
    monkeypatch.setattr(peaks, "free_bytes", lambda: 4 * 3 * 4 * 32**2)
    fits = peaks.measure_peaks(torch.device("cpu"), dtypes=["float32"], sizes=[32, 33], repeats=1)
    assert [gemm.size for gemm in fits.gemms] == [32]


def test_caches_that_several_cpus_share_count_once(tmp_path: Path) -> None:
    for cpu, level, size, shared in (
        (0, 3, "32768K", "0-1"),
        (1, 3, "32768K", "0-1"),
        (2, 3, "32768K", "2"),
        (0, 2, "2048K", "0"),
    ):
        folder = tmp_path / f"cpu{cpu}" / "cache" / f"index{level}"
        folder.mkdir(parents=True)
        for name, text in (("level", str(level)), ("size", size), ("shared_cpu_list", shared)):
            (folder / name).write_text(f"{text}\n")
    assert peaks.cache_bytes(tmp_path) == 2 * 32 * 1024**2
    assert peaks.cache_bytes(tmp_path / "none") == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dtypes", "float32,int3"], "there is no 'int3'"),
        (["--sizes", "12,x"], "write numbers from 1 to 131,072, such as 1024,2048"),
        (["--sizes", "0"], "write numbers from 1 to 131,072, such as 1024,2048"),
        (["--device", "toaster"], "not available here; choose from auto, cpu"),
        (["--device", "cpu:x"], "--device cpu:x: "),
    ],
)
def test_wrong_options_are_refused_in_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["peaks", *arguments]) == 2
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.count("\n") == 1
