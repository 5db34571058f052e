"""Parquet: the tables of a report, read back by Arrow with their types."""

import io
import os
import sys
import threading
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from perfkit.cli import main
from perfkit.errors import StoreError
from perfkit.records.report import Report
from perfkit.report import FORMATS, reporter
from tests.support.processes.waiting import MOST_S
from tests.support.reports.report_builders import make_foreign_run, make_rank, make_report, make_run, make_step
from tests.support.reports.scaling_builders import make_scaling_report, make_strong, make_together
from tests.support.traces.idle_builders import idle_rank, row
from tests.support.traces.trace_builder import TraceBuilder

BINARY = [name for name, row in FORMATS[Report].items() if row.binary]
REPORT = make_report(make_run(), make_foreign_run())
IDLE = make_report(make_run(ranks=[idle_rank(row("host_work", "f", 20), row("unknown", "nothing", 1, None))]))
TABLES = {"parquet": "steps", "idle-parquet": "idle", "points-parquet": "points", "options-parquet": "options"}


def written(name: str, report: Report) -> pa.Table:
    stream = io.BytesIO()
    reporter(Report, name).write(report, stream, top=10)
    stream.seek(0)
    return parquet.read_table(stream)


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("report", [REPORT, make_scaling_report(), IDLE], ids=["runs", "series", "idle"])
def test_a_file_is_the_table_of_the_report(name: str, report: Report) -> None:
    table = written(name, report)
    frame = getattr(report.tables(), TABLES[name])
    assert table.column_names == list(frame.columns)
    assert table.num_rows == len(frame)
    # As rows of Python's own: neither type of the frame nor its sign for "not known" may make them equal.
    known = [[None if pd.isna(value) else value for value in row] for row in frame.itertuples(index=False)]
    assert [list(row.values()) for row in table.to_pylist()] == known


def test_no_table_is_empty() -> None:
    assert [written(name, make_scaling_report()).num_rows for name in BINARY] == [84, 0, 6, 6]
    assert written("idle-parquet", IDLE).num_rows == 2


def test_column_types_do_not_depend_on_the_rows() -> None:
    nothing = make_report(make_run(ranks=[], findings=[]))
    for name in BINARY:
        whole, empty = written(name, make_scaling_report()).schema, written(name, nothing).schema
        assert empty.remove_metadata() == whole.remove_metadata()
        assert {str(kind) for kind in empty.types} <= {"string", "int64", "double"}
    steps = written("parquet", REPORT).schema
    assert [str(steps.field(column).type) for column in ("run", "step", "start_ns")] == ["string", "int64", "int64"]
    assert {str(field.type) for field in steps if field.name.endswith("_ns")} == {"int64"}


def test_nanoseconds_are_exact() -> None:
    at_ns = 1_770_000_000_123_456_789  # a float would make ...456_768 of it
    steps = written("parquet", make_report(make_run(ranks=[make_rank(0, [make_step(None, start_ns=at_ns)])])))
    assert steps["start_ns"].to_pylist() == [at_ns]
    assert steps["step"].to_pylist() == [None]


def test_text_is_unchanged_except_for_invalid_utf_8() -> None:
    names = ["=1+1", 'a,"b"\n', "größe", "bad-\udcff"]
    steps = written("parquet", make_report(*(make_run(name) for name in names)))
    assert set(steps["run"].to_pylist()) == {"=1+1", 'a,"b"\n', "größe", r"bad-\udcff"}


def test_a_number_that_is_too_large_is_one_line() -> None:
    report = make_together(make_strong(lambda p: 100 / p, [1, 2], batch=2**64))
    with pytest.raises(StoreError, match=r"does not fit into a Parquet file .*: write CSV or JSON"):
        written("points-parquet", report)


@pytest.fixture
def trace(tmp_path: Path) -> str:
    (tmp_path / "traces").mkdir()
    return str(TraceBuilder(0, 1).step(0, 0, 100).op("aten::mm", 0, 50).write(tmp_path / "traces" / "rank0.json"))


def test_several_files_of_one_analysis(trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ["r.parquet", "r.points.parquet", "r.options.parquet", "r.csv", "r.md"]
    out = tmp_path / "out"
    assert main(["analyze", trace, *(part for name in names for part in ("-o", str(out / name)))]) == 0
    assert sorted(file.name for file in out.iterdir()) == sorted(names)
    assert parquet.read_table(out / "r.parquet")["wall_ns"].to_pylist() == [100_000]
    assert parquet.read_table(out / "r.points.parquet").num_rows == 0
    assert capsys.readouterr().out == ""


def test_one_format_is_not_for_several_files(trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = ["-o", str(tmp_path / "a.md"), "-o", str(tmp_path / "b.csv")]
    assert main(["analyze", trace, "-f", "json", *files]) == 2
    assert capsys.readouterr().err == (
        "perfkit: error: -f json is the format of one FILE: for 2 files, leave -f out and use suffixes\n"
    )
    assert list(tmp_path.glob("*.*")) == []


def test_without_pyarrow_one_line_names_the_extra(
    trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)  # as if it were not installed
    assert main(["analyze", trace, "-o", str(tmp_path / "r.parquet")]) == 1
    error = capsys.readouterr().err
    assert error.startswith("perfkit: error: Parquet needs pyarrow (")
    assert error.endswith("): pip install 'perfkit[parquet]', or in a clone '.[parquet]'\n")
    assert list(tmp_path.glob("*.parquet")) == []


def test_a_pipe_is_written_to(trace: str, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.parquet"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    assert main(["analyze", trace, "-o", str(pipe)]) == 0
    reader.join(timeout=MOST_S)
    assert parquet.read_table(io.BytesIO(read[0])).num_rows == 1
