"""`perfkit stacks`: files whose sums are those of the report."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from perfkit.cli import main
from tests.support.traces.trace_builder import TraceBuilder
from tests.support.traces.work_traces import host_step, module_step

US = 1000


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of two ranks with a device."""
    folder = tmp_path / "run"
    folder.mkdir()
    for rank in (0, 1):
        module_step(TraceBuilder(rank=rank, world_size=2)).write(folder / f"rank{rank}.json")
    return folder


def collapsed(path: Path, folder: Path, *options: str) -> dict[tuple[str, ...], int]:
    out = folder / "out.collapsed"
    assert main(["stacks", str(path), "-o", str(out), *options]) == 0
    lines = (line.rpartition(" ") for line in out.read_text().splitlines())
    return {tuple(names.split(";")): int(weight) for names, _, weight in lines}


def refused(capfd: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["stacks", *arguments]) != 0
    return capfd.readouterr().err


def test_collapsed_by_python_with_operator_and_kernel(run: Path, tmp_path: Path) -> None:
    stacks = collapsed(run, tmp_path)
    assert sum(stacks.values()) == 2 * 395 * US
    stack = ("rank 0", "train.py(10): main", "model.py(5): forward", "aten::mm", "mm_kernel")
    assert stacks[stack] == 40 * US
    backward = ("rank 1", "train.py(10): main", "model.py(5): forward", "MmBackward0", "MmBackward0_kernel")
    assert stacks[backward] == 80 * US


def test_one_rank_has_no_name(run: Path, tmp_path: Path) -> None:
    stacks = collapsed(run, tmp_path, "--ranks", "1", "--by", "module", "--steps", "1")
    assert stacks["Net_0", "Block_1", "aten::relu", "relu_kernel"] == 60 * US
    assert sum(stacks.values()) == 395 * US


def test_weights(run: Path, tmp_path: Path) -> None:
    by_bytes = collapsed(run, tmp_path, "--weight", "communication-bytes", "--by", "operator", "--ranks", "0")
    assert sum(by_bytes.values()) == 4096
    assert all("record_param_comms" in stack for stack in by_bytes)
    exposed = collapsed(run, tmp_path, "--weight", "exposed", "--ranks", "0")
    assert sum(exposed.values()) == 395 * US


def test_host(tmp_path: Path) -> None:
    path = host_step().write(tmp_path / "host.json")
    assert sum(collapsed(path, tmp_path, "--by", "module").values()) == 140 * US


def test_speedscope(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.speedscope.json"
    assert main(["stacks", str(run), "-o", str(out), "--by", "python"]) == 0
    document: dict[str, Any] = json.loads(out.read_text())
    assert document["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    frames = document["shared"]["frames"]
    assert {"name": "forward", "file": "model.py", "line": 5} in frames
    for profile in document["profiles"]:
        assert profile["unit"] == "nanoseconds"
        assert profile["endValue"] == sum(profile["weights"]) == 395 * US
        assert len(profile["samples"]) == len(profile["weights"])
        assert all(0 <= index < len(frames) for sample in profile["samples"] for index in sample)


def test_pprof_decodes(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.pb.gz"
    assert main(["stacks", str(run), "-o", str(out), "--by", "module"]) == 0
    fields = decode(gzip.decompress(out.read_bytes()))
    texts = [value.decode() for number, value in fields if number == 6]
    assert texts[0] == ""
    functions = {dict(decode(value))[1]: texts[dict(decode(value))[2]] for number, value in fields if number == 5}
    names = {}
    for number, value in fields:
        if number == 4:
            location = dict(decode(value))
            names[location[1]] = functions[dict(decode(location[4]))[1]]
    samples = [dict(decode(value)) for number, value in fields if number == 2]
    found = {tuple(names[one] for one in numbers(sample[1])): numbers(sample[2])[0] for sample in samples}
    assert sum(found.values()) == 2 * 395 * US
    assert found["mm_kernel", "aten::mm", "Block_0", "Net_0", "rank 0"] == 40 * US
    value_type = dict(decode(next(value for number, value in fields if number == 1)))
    assert (texts[value_type[1]], texts[value_type[2]]) == ("device", "nanoseconds")


def numbers(packed: bytes) -> list[int]:
    found, at = [], 0
    while at < len(packed):
        value, at = varint(packed, at)
        found.append(value)
    return found


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if not data[at - 1] & 0x80:
            return value, at


def decode(data: bytes) -> list[tuple[int, Any]]:
    """Return the fields of a protobuf message: numbers, or bytes."""
    fields: list[tuple[int, Any]] = []
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        value, at = varint(data, at)
        if tag & 7:
            fields.append((tag >> 3, data[at : at + value]))
            at += value
        else:
            fields.append((tag >> 3, value))
    return fields


def test_names_cannot_break_a_line(tmp_path: Path) -> None:
    builder = TraceBuilder().step(1, 0, 100).op("a;b\nc d", 0, 10).launch(1, 1, 2).kernel("k\x1b[31m", 10, 5, 1)
    (stack,) = collapsed(builder.write(tmp_path / "t.json"), tmp_path)
    assert len(stack) == 2
    assert stack[0].startswith("a:b")
    assert "\x1b" not in stack[1]


def test_what_is_refused(run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    host = str(host_step().write(tmp_path / "host.json"))
    plain = str(TraceBuilder().step(1, 0, 100).op("aten::mm", 0, 10).write(tmp_path / "plain.json"))
    out = ("-o", str(tmp_path / "x.collapsed"))
    assert "--weight device" in refused(capfd, host, *out, "--weight", "device")
    assert "--weight host" in refused(capfd, str(run), *out, "--weight", "host")
    assert "--by module" in refused(capfd, plain, *out, "--by", "module")
    assert "--ranks 7: no such rank" in refused(capfd, str(run), *out, "--ranks", "7")
    assert "--steps 9: no such step" in refused(capfd, str(run), *out, "--steps", "9")
    assert "suffix" in refused(capfd, str(run), "-o", str(tmp_path / "x.json"))
    assert not (tmp_path / "x.collapsed").exists()
    trace = run / "rank0.json"
    copy = trace.rename(run / "rank0.txt")
    assert "is one of the traces" in refused(capfd, str(copy), "-o", str(copy))
