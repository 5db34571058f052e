"""`perfkit compare` from end to end, on the samples."""

import json
import shutil
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import msgspec
import pytest

from perfkit.records.comparison import Comparison
from perfkit.report.json_schema import schema
from tests.support.json_validation import jsonschema
from tests.support.processes.command import run_command
from tests.support.traces.trace_builder import TraceBuilder

pytestmark = pytest.mark.usefixtures("shared_cache")

ROOT = Path(__file__).parents[3]
MEMORY, HDF5 = (str(ROOT / "traces" / name) for name in ("sample-memory", "sample-hdf5"))


def compare(*args: str) -> subprocess.CompletedProcess[str]:
    return run_command("compare", *args)


def test_the_terminal_shows_what_changed() -> None:
    done = compare(MEMORY, HDF5)
    assert (done.returncode, done.stderr) == (0, "")
    below_title = done.stdout.partition("─\n")[2]  # a title of long paths takes two lines
    lines = [line.split(maxsplit=1) for line in below_title.splitlines()[:4] if line]
    assert [first for first, _ in lines] == ["Measured", "noise", "changed"]
    assert lines[0][1] == "faster: 28.9 ms per step instead of 31.5 ms (-8.2 %)."
    assert lines[1][1].rstrip() == "not known from 1 run before and 1 after: it takes 3 of each"
    assert lines[2][1].rstrip() == "source (memory → hdf5); most in compute (-1.43 ms per profiled step)"
    assert done.stdout.count("hdf5)") == 1  # said once
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_rows_of_zeros_and_empty_columns_are_left_out(tmp_path: Path) -> None:
    shown = compare(MEMORY, HDF5).stdout
    assert "memcpy" not in shown
    metrics, collectives = (
        next(line for line in shown.splitlines() if line.startswith(name)) for name in ("metric ", "collective ")
    )
    assert metrics.split() == ["metric", "before", "after", "ratio", "spread", "of", "steps"]
    assert collectives.split() == ["collective", "before", "after", "ratio"]
    for name, operator in (("before", "all_reduce"), ("after", "all_gather")):
        trace = TraceBuilder(rank=0, world_size=2, backend="gloo").step(0, 0, 100).gloo(operator, 10, 50)
        (tmp_path / name).mkdir()
        trace.write(tmp_path / name / "rank0.json")
    shown = compare(str(tmp_path / "before"), str(tmp_path / "after")).stdout
    assert "spread" not in shown
    assert "vanished" in shown


def test_an_assumption_about_noise_is_said() -> None:
    done = compare(MEMORY, HDF5, "--assume-noise", "60%", "--fail-on", "step_time > +900%", "-f", "markdown")
    assert done.returncode == 0, done.stderr
    assert "**No change beyond noise: 28.9 ms per step instead of 31.5 ms (-8.2 %).**" in done.stdout
    assert "- noise: within the assumed 60.0 %" in done.stdout


def test_what_is_wrong_with_a_run_comes_before_other_findings(tmp_path: Path) -> None:
    shutil.copytree(HDF5, tmp_path / "failed")
    manifest = json.loads((tmp_path / "failed" / "run.json").read_bytes())
    changes = {"state": "failed", "failure": {"rank": 1, "message": "RuntimeError: out of memory"}}
    (tmp_path / "failed" / "run.json").write_text(json.dumps(manifest | changes))
    report = json.loads(compare(MEMORY, str(tmp_path / "failed"), "-f", "json").stdout)
    codes = [(finding["code"], finding["severity"]) for finding in report["findings"]]
    assert codes[0] == ("run_failed", "error")
    assert len(codes) > 1


def test_json_is_what_its_schema_says_and_reads_back() -> None:
    done = compare(MEMORY, HDF5, "-f", "json", "--fail-on", "step_time > +900%", "--assume-noise", "50%")
    assert done.returncode == 0, done.stderr
    jsonschema.Draft202012Validator(schema("comparison")).validate(json.loads(done.stdout))
    found = msgspec.json.decode(done.stdout, type=Comparison)
    assert [gate.state for gate in found.gates] == ["passed"]
    assert (found.assumed_noise, found.measured_on) == (0.5, "plain")


@pytest.mark.parametrize(
    ("conditions", "code"),
    [
        (["step_time > 900s"], 0),
        (["step_time > +900%"], 4),
        (["step_time > 1ns"], 3),
        (["mfu < 1"], 4),
        (["step_time > 1ns", "mfu < 1"], 3),
        (["step_time >"], 2),
    ],
)
def test_exit_codes_tell_a_gate_from_bad_input(conditions: list[str], code: int, tmp_path: Path) -> None:
    xml = tmp_path / "gates.xml"
    done = compare(MEMORY, HDF5, *(word for text in conditions for word in ("--fail-on", text)), "-o", str(xml))
    assert done.returncode == code
    errors = [line for line in done.stderr.splitlines() if not line.startswith(f"Wrote {xml} (")]
    assert len(errors) == (code != 0)
    if code == 2:
        assert not xml.exists()
        return
    suite = ET.parse(xml).getroot()  # noqa: S314  perfkit's own
    assert suite.attrib == {
        "name": "perfkit",
        "tests": str(len(conditions)),
        "failures": str(int(code == 3)),
        "errors": str(conditions.count("mfu < 1") + conditions.count("step_time > +900%")),
    }
    assert [case.attrib["name"] for case in suite] == conditions


def test_the_figures_for_a_benchmark_chart(tmp_path: Path) -> None:
    chart = tmp_path / "out.benchmark.json"
    assert compare(MEMORY, HDF5, "-o", str(chart)).returncode == 0
    entries = {entry["name"]: entry for entry in json.loads(chart.read_text())}
    assert entries["step_time"]["unit"] == "ms"
    assert entries["step_time"]["value"] > 0
    assert "samples_per_s" not in entries  # the chart's rule is: smaller is better


def test_bad_input_is_one_line(tmp_path: Path) -> None:
    for args, code, message in (
        ((MEMORY, str(tmp_path / "none")), 1, "no such file or folder"),
        ((MEMORY, str(tmp_path)), 1, "no trace"),
        ((MEMORY, HDF5, "-o", "report.pdf"), 2, "unknown output format"),
        ((MEMORY, HDF5, "-f", "pdf"), 2, "is not one of rich"),
        ((MEMORY, HDF5, "--assume-noise", "some"), 2, "expected a percentage such as 3%"),
    ):
        done = compare(*args)
        assert (done.returncode, done.stdout) == (code, "")
        assert message in done.stderr
        assert len(done.stderr.splitlines()) == 1
