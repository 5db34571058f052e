"""Files that a user gives as tables: whatever they are, one line says what is wrong, and nothing waits."""

import os
from pathlib import Path

import pytest

from perfkit.cli import main
from tests.support.traces.trace_builder import TraceBuilder

DEVICE = '[[device]]\nname = "a"\nsource = "x"\ntflops = {{ bfloat16 = {} }}\n'
CLUSTER = '[[cluster]]\nname = "x"\ndevice = "NVIDIA H100 80GB HBM3"\nnetwork_gb_per_s = 1.0\ndevices_per_host = {}\n'
RULE = '[[rule]]\nkind = "compute"\npattern = "{}"\n'


def command(option: str, table: Path, trace: Path) -> list[str]:
    if option == "--cluster-table":
        return ["plan", "gpt", "--cluster", "x", option, str(table)]
    if option == "--config":
        return ["run", "gpt", option, str(table)]
    return ["analyze", str(trace), "--no-cache", option, str(table)]


def message(option: str, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    trace = TraceBuilder().step(0, 0, 10).op("aten::mm", 0, 5).write(tmp_path / "rank0.json")
    assert main(command(option, table, trace)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert option in line
    return line


@pytest.mark.parametrize("option", ["--device-table", "--kernel-rules", "--cluster-table", "--config"])
def test_what_is_no_table(option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipe, deep, long = tmp_path / "pipe.toml", tmp_path / "deep.toml", tmp_path / "long.toml"
    os.mkfifo(pipe)
    deep.write_text("x = " + "[" * 100_000)
    long.write_text("x = 1" + "0" * 5_000)
    assert "it is not a regular file" in message(option, pipe, tmp_path, capsys)
    assert "it is not a regular file" in message(option, Path("/dev/zero"), tmp_path, capsys)
    assert "not valid TOML: nested too deeply" in message(option, deep, tmp_path, capsys)
    assert "not valid TOML" in message(option, long, tmp_path, capsys)


@pytest.mark.parametrize(
    ("option", "text", "problem"),
    [
        ("--device-table", DEVICE.format("1" + "0" * 400), "out of range"),
        ("--cluster-table", CLUSTER.format("1" + "0" * 400), "devices_per_host"),
        ("--kernel-rules", RULE.format("a{99999999999}"), "is not a regular expression"),
        ("--kernel-rules", RULE.format("(" * 5_000 + "a" + ")" * 5_000), "is not a regular expression"),
    ],
    ids=["device", "cluster", "count", "groups"],
)
def test_what_no_number_and_no_pattern_can_be(
    option: str, text: str, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "table.toml"
    table.write_text(text)
    assert problem in message(option, table, tmp_path, capsys)


@pytest.mark.parametrize("option", ["--step-marker", "--data-marker"])
@pytest.mark.parametrize("marker", ["a{99999999999}", "(" * 5_000 + "a" + ")" * 5_000, "("])
def test_a_marker_that_is_no_pattern(
    option: str, marker: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = TraceBuilder().step(0, 0, 10).op("aten::mm", 0, 5).write(tmp_path / "rank0.json")
    assert main(["analyze", str(trace), "--no-cache", option, marker]) == 2
    error = capsys.readouterr().err
    assert f"{option} {marker!r} is not a regular expression" in error
    assert error.count("\n") == 1
