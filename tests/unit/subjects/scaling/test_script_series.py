"""Series of a script's runs, and why runs are none."""

from typing import Any

import pytest

from perfkit.records.run import RunReport
from perfkit.report.wording.findings import word
from perfkit.subjects.scaling.series import why_no_series
from tests.support.reports.report_builders import make_foreign_run
from tests.support.reports.scaling_builders import make_scaled
from tests.support.reports.worded import scaling


def of_script(ranks: int, *tokens: str, batch: int | None = 8, step_ms: float = 100, **config: Any) -> RunReport:
    given = {"script": "train.py", "arguments": list(tokens), "batch_size": None} | config
    name = "-".join([f"train-{ranks}", *tokens])
    return make_scaled(
        ranks,
        step_ms,
        name=name,
        workload="train",
        source=given.get("source", "custom"),
        config=given,
        batch_size=batch,
        batch_size_from=batch and "loader",
    )


def reason(*runs: RunReport) -> str | None:
    found = why_no_series(runs)
    return None if found is None else word(found).message


def test_a_script_on_several_ranks_is_a_series_with_inferred_samples() -> None:
    runs = [of_script(1), of_script(2)]
    summary = scaling(runs)
    assert summary is not None
    (series,) = summary.series
    assert (series.name, series.batch_size) == ("train weak", 8)
    assert "samples per step are inferred from the DataLoader" in series.notes
    assert reason(*runs) is None


def test_the_argument_with_the_batch_makes_it_strong() -> None:
    runs = [of_script(1, "--bs=8", batch=8, batch_arg="--bs"), of_script(2, "--bs=4", batch=4, batch_arg="--bs")]
    summary = scaling(runs)
    assert summary is not None
    assert [(one.kind, one.batch_size) for one in summary.series] == [("strong", 8)]


def test_ranks_and_arguments_at_once_are_named_in_short() -> None:
    runs = [
        of_script(ranks, f"--data={source}", "--lr", lr, source=source)
        for ranks in (1, 2)
        for source in ("memory", "hdf5")
        for lr in ("1", "2")
    ]
    summary = scaling(runs)
    assert summary is not None
    assert [one.name for one in summary.series] == [
        "train weak, memory, lr=1",
        "train weak, memory, lr=2",
        "train weak, hdf5, lr=1",
        "train weak, hdf5, lr=2",
    ]
    rows = [(one.world_size, [row.value for row in one.rows]) for one in summary.option_comparisons]
    assert sorted(rows) == [(ranks, ["memory", "hdf5"]) for ranks in (1, 1, 2, 2)]


@pytest.mark.parametrize(
    ("runs", "why"),
    [
        ([of_script(1), of_script(2, batch=None)], "of 1-2 ranks: the samples per step of train-2 are unknown"),
        ([of_script(1, "--w=1"), of_script(2, "--w=2")], "1-2 ranks: the runs also differ in w (1, 2)"),
        (
            [of_script(1, "--bs=8"), of_script(2, "--bs=4", batch=4)],
            "differ in bs (8, 4)",
        ),
        (
            [of_script(1, "--batch=8"), of_script(2, "--batch=4", batch=4)],
            "batch (8, 4); if batch holds the batch of a rank, add --batch-arg to perfkit run",
        ),
        ([of_script(1), of_script(2, batch=6)], "samples per rank (8 on 1, 6 on 2) are neither equal, nor"),
        ([of_script(1), make_foreign_run("foreign", world_size=2)], "foreign has no run.json"),
    ],
)
def test_one_line_says_what_is_missing(runs: list[RunReport], why: str) -> None:
    assert why in str(reason(*runs))


def test_runs_on_equally_many_ranks_need_no_reason() -> None:
    assert reason(of_script(2), of_script(2, batch=None)) is None
