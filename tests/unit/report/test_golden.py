"""Whole reports as golden files; `--update-golden` rewrites them, to be read before they are committed."""

import io
from collections.abc import Callable
from pathlib import Path

import pytest

from perfkit.pipeline.analyze import analyze
from perfkit.records.report import Report
from perfkit.report.renderers import console, markdown
from tests.support.reports.report_builders import MS, make_foreign_run, make_loading, make_report, make_run
from tests.support.reports.scaling_builders import make_scaling_report

REPORTS = {
    "one_run": make_report(),
    "foreign": make_report(make_foreign_run()),
    "three_runs": make_report(
        make_run("transformer-memory", source="memory", data_loading=make_loading(source="memory", median_ns=3 * MS)),
        make_run("transformer-hdf5", state="failed", injections=[]),
        make_foreign_run(),
    ),
    "scaling": make_scaling_report(),
}


def drawn(report: Report, width: int, top: int = 10) -> str:
    stream = io.StringIO()
    console.write(report, stream, top=top, width=width)
    return stream.getvalue()


@pytest.mark.parametrize("width", [80, 200])
@pytest.mark.parametrize("name", REPORTS)
def test_terminal(name: str, width: int, golden: Callable[[str, str], None]) -> None:
    golden(drawn(REPORTS[name], width), f"report/{name}.{width}.txt")


@pytest.mark.parametrize("name", REPORTS)
def test_markdown(name: str, golden: Callable[[str, str], None]) -> None:
    stream = io.StringIO()
    markdown.write(REPORTS[name], stream, top=10)
    golden(stream.getvalue(), f"report/{name}.md")


@pytest.mark.parametrize(
    "name",
    [
        "cpu-gloo-1of300",
        "gpu-dlrm-2of128",
        "gpu-dlrm-8of8",
        "mi300-resnet-ddp-1of8",
        "nccl-metadata-1of2",
        "small",
    ],
)
def test_real_traces(name: str, real_traces: Path, golden: Callable[[str, str], None]) -> None:
    """What is reported of the traces that ship: a change of any figure or sentence shows as a diff."""
    golden(drawn(analyze(str(real_traces / name), executor="serial", cache=False), 200, top=5), f"traces/{name}.txt")


@pytest.mark.parametrize("width", [80, 200])
@pytest.mark.parametrize("name", ["gpu-dlrm-8of8", "mi300-resnet-ddp-1of8"])
def test_nothing_but_the_end_of_template_arguments_is_left_out_of_a_name(
    name: str, width: int, real_traces: Path
) -> None:
    text = drawn(analyze(str(real_traces / name), executor="serial", cache=False), width)
    assert text.count("…") == text.count("…>")
    assert "evaluate_function" in text
