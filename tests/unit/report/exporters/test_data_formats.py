"""JSON, CSV, schema and DataFrames: nothing is lost, and spreadsheets run no formula."""

import csv
import io
import json
import re
from typing import Any

import msgspec
import pandas as pd
import pytest

from perfkit.errors import UsageError
from perfkit.records.manifest import RunManifest, World
from perfkit.records.report import Report
from perfkit.report import FORMATS, reporter
from perfkit.report.exporters.tables import escape_formula
from perfkit.report.json_schema import RECORDS, schema
from perfkit.report.renderers import markdown
from tests.support.json_validation import jsonschema
from tests.support.reports.report_builders import make_foreign_run, make_operator, make_rank, make_report, make_run
from tests.support.reports.scaling_builders import make_scaling_report, make_strong, make_together

REPORT = make_report(make_run(), make_foreign_run())


def written(name: str, report: Report = REPORT) -> str:
    stream = io.StringIO()
    reporter(Report, name).write(report, stream, top=10)
    return stream.getvalue()


SUITED = {"talp": make_report(), "extrap": make_scaling_report(), "svg": make_scaling_report()}
"""For formats that do not take any report."""


@pytest.mark.parametrize("name", [name for name, row in FORMATS[Report].items() if not row.binary])
def test_every_reporter_writes_text_that_ends_its_last_line(name: str) -> None:
    text = written(name, SUITED.get(name, REPORT))
    assert text.endswith("\n")
    assert "\r" not in text


def test_json_round_trip() -> None:
    text = written("json")
    assert msgspec.json.decode(text, type=Report) == REPORT
    assert text.startswith('{\n  "schema_version"')


def test_json_of_a_name_that_was_not_utf_8() -> None:
    report = make_report(make_run("bad-\udcff", ranks=[make_rank(0, operators=[make_operator("k\ud800")])]))
    decoded = msgspec.json.decode(written("json", report), type=Report)
    assert decoded.runs[0].run == r"bad-\udcff"
    assert decoded.runs[0].ranks[0].operators[0].name == r"k\ud800"


def test_points_csv_is_no_formula() -> None:
    report = make_together(make_strong(lambda p: 100 / p, [1, 2], workload="=cmd|x"))
    assert {row["series"] for row in csv.DictReader(io.StringIO(written("points", report)))} == {"'=cmd|x strong"}


def test_extrap_lines_are_measurements() -> None:
    lines = [json.loads(line) for line in written("extrap", make_scaling_report()).splitlines()]
    assert all(line.keys() == {"params", "callpath", "metric", "value"} for line in lines)
    steps = [line for line in lines if line["callpath"] == "gpt weak, memory->step"]
    assert [(line["params"], line["value"]) for line in steps[:4]] == [
        ({"ranks": 1}, 0.1),
        ({"ranks": 1}, 0.101),
        ({"ranks": 1}, 0.102),
        ({"ranks": 2}, 0.11),
    ]
    with pytest.raises(UsageError, match="several world sizes"):
        written("extrap")


def test_talp_factors_multiply() -> None:
    document = json.loads(written("talp", make_report()))
    region = document["Application"]["Global"]
    # Rank 0 computes 150 ms, so does rank 1; the run's T is 260 ms.
    assert (region["usefulTime"], region["elapsedTime"], region["numCpus"]) == (300_000_000, 260_000_000, 2)
    assert region["parallelEfficiency"] == pytest.approx(300 / 2 / 260)
    assert region["mpiLoadBalance"] * region["mpiCommunicationEfficiency"] == region["mpiParallelEfficiency"]
    assert region["mpiLoadBalanceIn"] * region["mpiLoadBalanceOut"] == pytest.approx(region["mpiLoadBalance"])
    assert document["dlbVersion"].startswith("3.5")
    with pytest.raises(UsageError, match="a TALP file contains one run, not 2"):
        written("talp")
    with pytest.raises(UsageError, match="foreign: no efficiency to write for TALP"):
        written("talp", make_report(make_foreign_run()))


def test_talp_has_no_factors_of_a_run_that_computes_nothing() -> None:
    idle = re.sub(rb'"compute":\d+', b'"compute":0', msgspec.json.encode(make_report()))
    with pytest.raises(UsageError, match="no efficiency to write for TALP: no rank computes"):
        written("talp", msgspec.json.decode(idle, type=Report))


def test_csv_keeps_a_hostile_name_on_its_line() -> None:
    text = written("csv", make_report(make_run('a,"b"\n\x1b=1')))
    assert escape_formula("\t=1") == r"\t=1"
    assert len(text.splitlines()) == 5
    assert next(csv.DictReader(io.StringIO(text)))["run"] == r'a,"b"\n\x1b=1'


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a|b", "a&#124;b"),
        ("<img src=x onerror=alert(1)>", "&lt;img src=x onerror=alert(1)&gt;"),
        ("`code`", r"\`code\`"),
        ("*b* _i_ [l](u) ~s~ #1", r"\*b\* \_i\_ \[l\](u) \~s\~ \#1"),
        ("@somebody", "&#64;somebody"),
        ("https://x.example www.x.example", "https:&#47;&#47;x.example www&#46;x.example"),
        ("&lt;", "&amp;lt;"),
        ("a\\|b", "a\\\\&#124;b"),
    ],
)
def test_markdown_shows_names_as_they_are(name: str, shown: str) -> None:
    assert markdown.escape(name) == shown
    run = make_run(ranks=[make_rank(0, operators=[make_operator(name)])])
    assert f"| {shown} | compute |" in written("markdown", make_report(run))


@pytest.mark.parametrize("name", ["report", "run"])
def test_schema_is_a_schema_with_descriptions(name: str) -> None:
    document = schema(name)
    jsonschema.Draft202012Validator.check_schema(document)
    version = RECORDS[name][1]
    assert document["$id"] == f"urn:perfkit:{name}:{version}"
    assert document["title"].startswith(f"perfkit {name}, version {version}")


def test_the_models_docstrings_are_in_the_schema() -> None:
    steps = schema("report")["$defs"]["StepBreakdown"]
    assert steps["description"] == "One step of one rank."
    assert "clock" in steps["properties"]["start_ns"]["description"]
    assert schema("run")["$defs"]["RunManifest"]["properties"]["batch_size"]["description"].startswith("Samples")


def test_reports_are_valid() -> None:
    jsonschema.Draft202012Validator(schema("report")).validate(json.loads(written("json")))


@pytest.mark.parametrize("change", [{"world_size": "two"}, {"verdict": None}, {"ranks": [{}]}])
def test_the_schema_rejects_invalid_reports(change: dict[str, Any]) -> None:
    broken = json.loads(written("json"))
    broken["runs"][0] |= change
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(schema("report")).validate(broken)


def test_manifests_are_valid() -> None:
    manifest = RunManifest(
        run="r",
        state="running",
        workload="gpt",
        source="memory",
        started_at="2026-01-01T00:00:00Z",
        config={"steps": 8},
        versions={},
        backend="gloo",
        device="cpu",
        world=World(world_size=2, nodes=1, launcher="torchrun", local_world_sizes=[2]),
    )
    jsonschema.Draft202012Validator(schema("run")).validate(msgspec.to_builtins(manifest))


def test_frames_of_text_that_was_not_utf_8() -> None:
    assert set(make_report(make_run("bad-\udcff")).tables().steps["run"]) == {r"bad-\udcff"}


def test_frames_of_nothing_keep_their_columns() -> None:
    tables = make_report(make_run(ranks=[], findings=[])).tables()
    for table in (tables.steps, tables.ranks, tables.operators, tables.collectives, tables.loads, tables.findings):
        assert isinstance(table, pd.DataFrame)
        assert table.empty
        assert "run" in table.columns
