"""`perfkit whatif` on recorded runs of the CPU and of devices: predictions, rankings, and refusals of one line."""

import json
from pathlib import Path
from typing import Any

import pytest

from perfkit.cli import main
from perfkit.report.json_schema import schema
from tests.support.json_validation import jsonschema
from tests.support.traces.hostile import make_runs

pytestmark = pytest.mark.usefixtures("shared_cache")

ROOT = Path(__file__).parents[3]
SAMPLE = ROOT / "traces" / "sample-memory"


def predicted(path: Path, *changes: str, tmp_path: Path) -> dict[str, Any]:
    """Return the JSON of a prediction, which its schema describes."""
    output = tmp_path / "prediction.json"
    assert main(["whatif", str(path), *changes, "-o", str(output)]) == 0
    record: dict[str, Any] = json.loads(output.read_text())
    jsonschema.Draft202012Validator(schema("whatif")).validate(record)
    return record


def test_changes_are_predicted_with_what_they_assume(tmp_path: Path) -> None:
    record = predicted(SAMPLE, "collective[dp]=0", "compute:aten::*=0.5x", tmp_path=tmp_path)
    one = record["prediction"]
    assert record["replayed_step_ns"] == record["measured_step_ns"]
    assert 0 < one["step_ns"] < record["measured_step_ns"]
    assert [change["change"] for change in one["changes"]] == ["collective[dp]=0", "compute:aten::*=0.5x"]
    assert all(change["assumptions"] and change["applies_to"] for change in one["changes"])
    assert record["ranking"] is None


def test_without_a_change_the_largest_are_ranked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ranking = predicted(SAMPLE, tmp_path=tmp_path)["ranking"]
    savings = [one["saving_ns"] for one in ranking]
    assert 3 <= len(ranking) <= 10
    assert savings == sorted(savings, reverse=True)
    assert main(["whatif", str(SAMPLE), "--top", "2", "-f", "markdown"]) == 0
    text = capsys.readouterr().out
    assert text.count("\n| ") == 2 + 2  # the title, the rule and two rows
    assert f"{len(ranking) - 2} more: use --top N" in text


@pytest.mark.slow
def test_each_change_of_the_ranking_predicts_the_same_alone(tmp_path: Path) -> None:
    for one in predicted(SAMPLE, tmp_path=tmp_path)["ranking"][:3]:
        alone = predicted(SAMPLE, one["changes"][0]["change"], tmp_path=tmp_path)["prediction"]
        assert alone["saving_ns"] == one["saving_ns"]


def test_a_change_of_nothing_saves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert predicted(SAMPLE, "compute:*=1x", tmp_path=tmp_path)["prediction"]["saving_ns"] == 0
    assert main(["whatif", str(SAMPLE), "compute:*=1x"]) == 0
    assert "the step would take as long" in capsys.readouterr().out


@pytest.mark.parametrize(
    "change", ["sync=removed", "kernels<5us=fused", "collective[*]=0", "compute:*=0.5x", "input=0"]
)
def test_a_device_with_less_to_do_is_faster(change: str, real_traces: Path, tmp_path: Path) -> None:
    record = predicted(real_traces / "gpu-dlrm-8of8", change, tmp_path=tmp_path)
    assert record["ranks"] == list(range(8))
    assert 0 < record["prediction"]["step_ns"] <= record["replayed_step_ns"] == record["measured_step_ns"]


def test_missing_ranks_are_said(real_traces: Path, tmp_path: Path) -> None:
    record = predicted(real_traces / "mi300-resnet-ddp-1of8", "collective[dp]=0", tmp_path=tmp_path)
    assert [finding["code"] for finding in record["findings"]] == ["ranks_not_replayed"]
    assert "ranks without a trace" in record["prediction"]["changes"][0]["assumptions"][0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense"], "there is no such change; write compute:NAME=0.5x"),
        (["compute:aten::nothing=0.5x"], "no operator or kernel matches; the run has aten::"),
        (["rank7=healthy"], "there is no trace of rank 7, but of 0-1"),
        (["accumulate=2", "accumulate=3"], "contradict each other"),
        (["module:layers.*=0.5x"], "module"),
        (["-o", "prediction.xyz"], "unknown output format"),
        (["input=0", "--step-marker", "("], "is not a regular expression"),
        (["input=0", "--data-marker", "("], "--data-marker '(' is not a regular expression"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["whatif", str(SAMPLE), *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_no_trace_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["whatif", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("perfkit: error: ")


@pytest.mark.parametrize("form", ["rich", "markdown"])
def test_names_in_a_trace_cannot_break_the_terminal(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run,) = make_runs(tmp_path, runs=1)
    assert main(["whatif", str(run), "-f", form]) == 0
    assert "\x1b" not in capsys.readouterr().out
    assert main(["whatif", str(run), "compute:\x1b[31m=0.5x"]) == 2
    assert capsys.readouterr().err.count("\x1b") == 0
