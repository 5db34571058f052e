"""Runs whose steps do different work are not compared by their steps."""

import msgspec
import pytest

from perfkit.records.comparison import Comparison, Side
from perfkit.records.manifest import Throughput
from perfkit.records.run import RunReport
from perfkit.report.views.comparison import document
from perfkit.report.wording.findings import word_all
from perfkit.subjects.comparison.changes import step_work
from tests.support.reports.report_builders import MS, make_run
from tests.support.reports.worded import changes


def rates(samples_per_step: int, step_ms: int = 100, flops_per_sample: float = 2e9) -> Throughput:
    per_s = samples_per_step * 1e3 / step_ms
    return Throughput(
        samples_per_s=per_s,
        tokens_per_s=None,
        flops_per_s=per_s * flops_per_sample,
        mfu=None,
        mfu_reason="no peak is known",
        read_bytes_per_s=None,
        measured_on="plain",
        step_ns=step_ms * MS,
    )


def codes(before: list[RunReport], after: list[RunReport]) -> list[str]:
    return [finding.code for finding in step_work(before, after)]


def compared(before: RunReport, after: RunReport) -> Comparison:
    return Comparison(
        perfkit_version="1",
        before=Side(path="old", runs=["old"]),
        after=Side(path="new", runs=["new"]),
        changes=changes([before], [after]),
        gates=[],
        findings=word_all(step_work([before], [after])),
    )


def headline(before: RunReport, after: RunReport) -> str:
    (section,) = document(compared(before, after), 10).sections
    assert section.headline is not None
    return section.headline


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (make_run(throughput=rates(64)), make_run(throughput=rates(64, 50))),
        (make_run(throughput=rates(64)), make_run(throughput=rates(64), world_size=4)),  # the same global batch
        (make_run(throughput=rates(64)), make_run(throughput=rates(64, flops_per_sample=2.001e9))),
        (make_run(throughput=None), make_run(throughput=None)),
        (make_run(throughput=None, workload="train.py"), make_run(throughput=None, workload="train_new.py")),
        (make_run(throughput=None), make_run(throughput=rates(64))),
    ],
)
def test_nothing_is_said_of_steps_that_do_the_same_work_or_are_not_known_to_differ(
    before: RunReport, after: RunReport
) -> None:
    assert codes([before], [after]) == []
    assert headline(before, after).endswith(" per profiled step.")


def test_other_batches_are_compared_by_throughput() -> None:
    before, after = make_run(throughput=rates(64)), make_run(throughput=rates(128, 160))
    assert codes([before], [after]) == ["samples_per_step_differ"]
    assert headline(before, after) == (
        "Steps are not comparable: 64 samples per step before, 128 after. Measured faster: 800 samples/s instead of "
        "640 (+25.0 %)."
    )
    (section,) = document(compared(before, after), 10).sections
    assert list(section.findings) == []  # it is said once


def test_more_ranks_of_an_unknown_batch_may_do_other_work() -> None:
    before, after = make_run(throughput=None), make_run(throughput=None, world_size=4)
    assert codes([before], [after]) == ["ranks_differ"]
    assert headline(before, after).startswith("Steps may do different work: 2 ranks before, 4 after, ")


def test_other_models_are_not_compared() -> None:
    by_name = [make_run(workload=name, throughput=None) for name in ("gpt", "transformer")]
    assert codes(by_name[:1], by_name[1:]) == ["models_differ"]
    assert "the models differ (gpt / transformer)" in headline(*by_name)
    wider = make_run(throughput=rates(64, flops_per_sample=4e9))
    found = headline(make_run(throughput=rates(64)), wider)
    assert found == ("Steps are not comparable, nor are rates: the models differ (2,000 / 4,000 MFLOP per sample).")


def test_changes_of_steps_that_do_other_work_are_not_called_worse() -> None:
    before, after = ([make_run(f"{k}", throughput=rates(samples)) for k in range(3)] for samples in (64, 128))
    for run_after, judged in ((after, False), (before, True)):
        slower = [msgspec.structs.replace(run, ranks=run.ranks[1:]) for run in run_after]
        found = Comparison(
            perfkit_version="1",
            before=Side(path="old", runs=["a", "b", "c"]),
            after=Side(path="new", runs=["a", "b", "c"]),
            changes=changes(before, slower),
            gates=[],
            findings=word_all(step_work(before, slower)),
        )
        (section,) = document(found, 10).sections
        tones = {row[-1].tone for row in section.tables[0].rows if row[0].text == "overhead"}
        assert ("warning" in tones) == judged
