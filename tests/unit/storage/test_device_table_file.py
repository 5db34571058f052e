"""The table of devices: perfkit's own, a user's before it, and everything that can be wrong with a file."""

from collections import Counter
from pathlib import Path

import pytest

from perfkit.errors import UsageError
from perfkit.records.roofline import DevicePeaks, find_device
from perfkit.storage.device_table_file import device_row_text, load_device_table, write_device_row

GOOD = '[[device]]\nname = "Acme 1"\ntflops = { bfloat16 = 10, float32 = 1.5 }\nbandwidth_gb_per_s = 100\n'


def test_the_built_in_table_has_one_row_with_a_source_for_each_device() -> None:
    table = load_device_table()
    assert max(Counter(row.name for row in table).values()) == 1
    assert all(row.source and row.bandwidth_gb_per_s and row.memory_gb and row.threads is None for row in table)
    for row in table:  # half precision is never slower than single
        assert row.tflops["float32"] <= min(row.tflops.get(name, 1e9) for name in ("tf32", "bfloat16", "float16"))


def test_a_users_row_comes_first_and_only_exact_names_count(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text(GOOD.replace("Acme 1", "NVIDIA H200"))
    table = load_device_table(file)
    found = find_device(table, "NVIDIA H200")
    assert found is not None
    assert (found.flops_per_s("bfloat16"), found.bytes_per_s, found.flops_per_s("tf32")) == (10e12, 100e9, None)
    assert find_device(table, "NVIDIA H200 NVL") is None


def test_a_row_for_a_number_of_threads_is_true_of_no_other() -> None:
    rows = [DevicePeaks(name="CPU", tflops={"float32": n / 10}, threads=n) for n in (1, 4)]
    table = load_device_table(rows)
    assert find_device(table, "CPU", 4) == rows[1]
    assert find_device(table, "CPU", 2) is None
    assert find_device(table, "CPU") is None


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    row = DevicePeaks(
        name='A "name" \\ with\nall of it é', tflops={"float32": 0.0631}, bandwidth_gb_per_s=10.4, threads=2, source="x"
    )
    write_device_row(tmp_path / "row.toml", row)
    (read, *_) = load_device_table(tmp_path / "row.toml")
    assert read.name == 'A "name" \\ with\\nall of it é'
    assert (read.tflops, read.bandwidth_gb_per_s, read.threads) == (row.tflops, row.bandwidth_gb_per_s, row.threads)
    assert "memory_gb" not in device_row_text(row)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[[device]", "not valid TOML: "),
        ("", "no device: each begins with a line [[device]]"),
        ("name = 'x'\n" + GOOD, "name is not part of a device: put it below a line [[device]]"),
        (GOOD + "gflops = 3", "device 1: there is no gflops"),
        ("[[device]]\nname = 'x'", "device 1: tflops is missing"),
        ("[[device]]\nname = 'x'\ntflops = { float32 = 'fast' }", "device 1: "),
        ("[[device]]\nname = 'x'\ntflops = { float32 = -1 }", "tflops.float32 is not a positive number: -1.0"),
        (GOOD + "memory_gb = inf", "memory_gb is not a positive number: inf"),
        (GOOD + "threads = 0", "threads is not a positive number: 0"),
        (GOOD.replace("Acme 1", ""), "name is empty"),
    ],
)
def test_every_problem_is_one_line_that_names_the_file(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "devices.toml"
    file.write_text(text)
    with pytest.raises(UsageError) as caught:
        load_device_table(file)
    message = str(caught.value)
    assert message.startswith(f"--device-table {file}: ")
    assert "\n" not in message
    assert problem in message


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        load_device_table(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="not valid TOML"):
        load_device_table(tmp_path / "bytes.toml")
