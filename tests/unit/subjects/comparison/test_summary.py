"""The three lines of a comparison: faster or slower, beyond noise or not, and what else differs."""

import io
from typing import Any

import pytest

from perfkit.records.comparison import Comparison, Side
from perfkit.records.run import RunReport
from perfkit.report.renderers import console, html, markdown
from perfkit.report.views.comparison import document
from perfkit.report.wording.findings import word_all
from perfkit.subjects.comparison.changes import differences, findings, step_work
from tests.support.reports.report_builders import MS, make_rank, make_run, make_step
from tests.support.reports.worded import changes


def steady(compute_ms: float = 60, **fields: Any) -> RunReport:
    """A run of two ranks, whose steps have 40 ms besides the computation."""
    steps = [make_step(number, compute=round(compute_ms * MS)) for number in range(6)]
    return make_run("run", ranks=[make_rank(0, steps), make_rank(1, steps)], **fields)


def compared(before: list[RunReport], after: list[RunReport], noise: float | None = None) -> Comparison:
    return Comparison(
        perfkit_version="1",
        before=Side(path="old", runs=["run"] * len(before)),
        after=Side(path="new", runs=["run"] * len(after)),
        assumed_noise=noise,
        changes=changes(before, after, None, noise),
        differences=differences(before, after),
        gates=[],
        findings=word_all([*step_work(before, after), *findings(before, after, noise)]),
    )


def summary(report: Comparison) -> list[str]:
    (section,) = document(report, 10).sections
    return [section.headline, *(f"{one.label}: {one.value}" for one in section.key_values)]


THREE = [steady(ms) for ms in (60, 64, 75)]


@pytest.mark.parametrize(
    ("before", "after", "noise", "expected"),
    [
        (
            THREE,
            [steady(ms) for ms in (100, 104, 115)],
            None,
            [
                "Slower: 144 ms per profiled step instead of 104 ms (+38.5 %).",
                "noise: beyond run-to-run variation (95 % interval: +21.7 % to +55.0 %)",
                "changed: no option, commit, version or device that is recorded; "
                "most in compute (+40.0 ms per profiled step)",
            ],
        ),
        (
            [steady(ms) for ms in (100, 104, 115)],
            THREE,
            None,
            [
                "Faster: 104 ms per profiled step instead of 144 ms (-27.8 %).",
                "noise: beyond run-to-run variation (95 % interval: -35.5 % to -17.9 %)",
            ],
        ),
        (
            THREE,
            [steady(ms) for ms in (61, 76, 80)],
            None,
            [
                "No change beyond noise: 116 ms per profiled step instead of 104 ms (+11.5 %).",
                "noise: within run-to-run variation (95 % interval: -12.2 % to +20.0 %)",
            ],
        ),
        (
            [steady(60)],
            [steady(64)],
            None,
            [
                "Measured slower: 104 ms per profiled step instead of 100 ms (+4.0 %).",
                "noise: not known from 1 run before and 1 after: it takes 3 of each",
            ],
        ),
        (
            [steady(60)],
            [steady(64)],
            0.03,
            ["Slower: 104 ms per profiled step instead of 100 ms (+4.0 %).", "noise: beyond the assumed 3.0 %"],
        ),
        (
            [steady(60)],
            [steady(60)],
            0.03,
            [
                "No change: 100 ms per profiled step.",
                "noise: within the assumed 3.0 %",
                "changed: no option, commit, version or device that is recorded",
            ],
        ),
    ],
)
def test_result_and_noise(
    before: list[RunReport], after: list[RunReport], noise: float | None, expected: list[str]
) -> None:
    assert summary(compared(before, after, noise))[: len(expected)] == expected


def test_what_changed_is_named_with_both_values_and_only_there() -> None:
    before = steady(60, commit="0123456789abcdef", versions={"torch": "2.5", "python": "3.12"}, device_names=["A100"])
    after = steady(
        60, commit="fedcba9876543210", versions={"torch": "2.6", "python": "3.12"}, device_names=["H\x1b[31m100"]
    )
    report = compared([before], [after])
    assert summary(report)[-1] == (
        "changed: commit (0123456789ab → fedcba987654), device (A100 → H\\x1b[31m100), torch (2.5 → 2.6)"
    )
    (section,) = document(report, 10).sections
    assert not section.findings
    assert [(one.kind, one.name) for one in report.differences] == [
        ("commit", "commit"),
        ("device", "device"),
        ("version", "torch"),
    ]


def test_steps_of_other_models_are_not_compared() -> None:
    report = compared([steady(60, workload="gpt")], [steady(90, workload="transformer")])
    found = summary(report)
    assert found[0].startswith("Steps are not comparable, nor are rates: the models differ (gpt / transformer)")
    assert [line.partition(":")[0] for line in found[1:]] == ["changed"]
    assert "most in" not in found[-1]


def test_all_formats_have_it_before_their_tables() -> None:
    report = compared([steady(60)], [steady(64)])
    for renderer in (console, markdown, html):
        stream = io.StringIO()
        renderer.write(report, stream, top=10)
        text = stream.getvalue()
        places = [text.index(part) for part in ("Measured slower: 104 ms", "not known from 1 run", "most in compute")]
        assert places == sorted(places)
        assert places[-1] < text.index("Metrics (times of steps")
