"""CSV of communication by dimension and of gathered parameters: the rows of the DataFrames."""

import csv
import io
from pathlib import Path

import perfkit
from perfkit.records.report import Report
from perfkit.report import listing, reporter
from tests.support.traces.mesh_traces import write_mesh
from tests.support.traces.trace_builder import TraceBuilder


def written(report: Report, name: str) -> list[dict[str, str]]:
    stream = io.StringIO()
    reporter(Report, name).write(report, stream, top=1)
    return list(csv.DictReader(io.StringIO(stream.getvalue())))


def test_a_row_per_dimension_of_communication(tmp_path: Path) -> None:
    report = perfkit.analyze(write_mesh(tmp_path / "run", {name: f"mesh_{name}" for name in ("pp", "dp", "tp")}))
    rows, frame = written(report, "dimensions"), report.tables().dimensions
    assert list(rows[0]) == [column.key for column in listing("dimensions").columns]
    assert [row["dimension"] for row in rows] == frame["dimension"].tolist()
    assert {row["dimension"] for row in rows} == {"dp", "tp", "pp"}
    assert [int(row["exposed_ns"]) for row in rows] == frame["exposed_ns"].tolist()


def test_a_row_per_layer_that_gathers_parameters(tmp_path: Path) -> None:
    builder = TraceBuilder(backend="gloo").step(0, 0, 300).annotation("perfkit.forward", 0, 200).op("aten::mm", 150, 40)
    for number in range(2):
        at = 10 + 60 * number
        builder.annotation(f"FSDP::all_gather (layers.{number})", at, 40).op("c10d::_allgather_base_", at + 1, 5)
        builder.gloo("all_gather", at + 5, 30)
    report = perfkit.analyze(builder.write(tmp_path / "rank0.json"), cache=False)
    rows, frame = written(report, "parameter_gathers"), report.tables().parameter_gathers
    assert list(rows[0]) == [column.key for column in listing("parameter_gathers").columns]
    assert [row["layer"] for row in rows] == frame["layer"].tolist() == ["layers.0", "layers.1"]
    assert [int(row["exposed_ns"]) for row in rows] == frame["exposed_ns"].tolist()
