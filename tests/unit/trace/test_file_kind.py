"""The error for a file that is not a trace says what it is."""

import gzip
import io
import json
import pickle
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import torch
import zstandard

from perfkit.cli import main
from perfkit.errors import NotATraceError, TraceError
from perfkit.records.comparison import Comparison, Side
from perfkit.records.per_run.whatif import WhatIf
from perfkit.records.report import Report
from perfkit.trace.file_kind import describe_file
from perfkit.trace.reader import read_trace
from tests.support.traces.trace_builder import TraceBuilder

SIDE = Side(path="a", runs=["a"])
REPORT = msgspec.json.encode(Report(perfkit_version="0.2.0", runs=[]))
COMPARISON = msgspec.json.encode(
    Comparison(perfkit_version="0.2.0", before=SIDE, after=SIDE, changes=[], gates=[], findings=[])
)
WHAT_IF = msgspec.json.encode(
    WhatIf(
        perfkit_version="0.2.0",
        run="a",
        path="a",
        ranks=[0],
        world_size=1,
        steps=[1],
        measured_step_ns=1.0,
        replayed_step_ns=1.0,
        prediction=None,
        ranking=None,
        findings=[],
    )
)


def checkpoint(*, new: bool) -> bytes:
    stream = io.BytesIO()
    torch.save({"weight": torch.zeros(2)}, stream, _use_new_zipfile_serialization=new)
    return stream.getvalue()


def archive() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        file.writestr("a.txt", "text")
    return stream.getvalue()


def tar() -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as file:
        file.addfile(tarfile.TarInfo("run/rank0.json"))
    return stream.getvalue()


KINDS: dict[str, Callable[[], bytes]] = {
    "a PyTorch checkpoint": lambda: checkpoint(new=True),
    "a PyTorch checkpoint ": lambda: checkpoint(new=False),
    "a Python pickle": lambda: pickle.dumps({"a": 1}),
    "a zip archive": archive,
    "a tar archive": tar,
    "a text file": lambda: b"epoch 1: loss 0.3\n",
    "an HDF5 file": lambda: b"\x89HDF\r\n\x1a\n" + bytes(90),
    "a safetensors file": lambda: len(b'{"a":1}').to_bytes(8, "little") + b'{"a":1}' + bytes(9),
}


@pytest.mark.parametrize("compress", [bytes, gzip.compress, zstandard.compress], ids=["plain", "gzip", "zstd"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_of_another_kind_is_named(tmp_path: Path, kind: str, compress: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "rank0.json"
    path.write_bytes(compress(KINDS[kind]()))
    with pytest.raises(TraceError, match=f"is {kind.strip()}, not a torch.profiler trace"):
        read_trace(path)


@pytest.mark.parametrize("content", [b"", b"{", b'{"traceEvents": [', b"[", b"\x00\x01\x02\x03" * 40, b'{"a": 1}'])
def test_damaged_json_is_no_other_kind(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "rank0.json"
    path.write_bytes(content)
    assert describe_file(path) is None


def test_a_json_document_after_text_is_text(tmp_path: Path) -> None:
    path = tmp_path / "rank0.json"
    path.write_text("WARNING: something\n" + json.dumps({"traceEvents": []}))
    assert describe_file(path) == "a text file"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (REPORT, "is a report of perfkit: read it with perfkit.load_report"),
        (msgspec.json.format(REPORT), "is a report of perfkit: read it with perfkit.load_report"),
        (COMPARISON, "is what perfkit wrote, not a trace: give the traces themselves"),
        (msgspec.json.format(COMPARISON), "is what perfkit wrote, not a trace: give the traces themselves"),
        (WHAT_IF, "is what perfkit wrote, not a trace: give the traces themselves"),
        (b'{\n  "schema_version": 2,\n  "run": "a"\n}', "is the record of a run: give the run's folder"),
        (b'{"schema_version": 2, "rank": 0}', "is JSON but not a trace"),
        (b'{"run": "a", "schema_version": 2}', "is JSON but not a trace"),
    ],
)
def test_what_perfkit_itself_wrote_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(content)
    with pytest.raises(NotATraceError, match=message):
        read_trace(path)


def test_what_its_commands_write_is_named(tmp_path: Path) -> None:
    trace, report, comparison = (str(tmp_path / name) for name in ("rank0.json", "report.json", "compare.json"))
    TraceBuilder(0, 1).step(1, 0, 100).op("aten::add", 10, 20).write(Path(trace))
    for command in (["analyze", trace, "-o", report], ["compare", trace, trace, "-o", comparison]):
        assert main(command) == 0
    for file, kind in ((report, "a report of perfkit: read it with"), (comparison, "what perfkit wrote, not a trace")):
        with pytest.raises(NotATraceError, match=f"is {kind}"):
            read_trace(Path(file))
