"""The verdict on pipelines: the bubble in place of communication, only where that is what it is."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from perfkit.engine.runs.verdict import classify_bottleneck
from perfkit.pipeline.words import verdict as worded
from perfkit.records.cross_rank import CrossRankSummary, Straggler
from perfkit.records.per_run.pipeline import HeavyStage, StageExcess
from perfkit.records.run import Verdict
from tests.support.reports.report_builders import MS, make_rank, make_step
from tests.unit.subjects.pipelines.test_losses import make_pipeline


def verdict(
    bubble: int,
    ideal: int | None = 40,
    *,
    other: int = 0,
    ranks: int = 4,
    count: int = 1,
    heavy: HeavyStage | None = None,
    late: int | None = None,
) -> Verdict:
    """Return the verdict on four ranks of which `bubble` % is the bubble, and `other` % other communication."""
    compute = 100 - bubble - other
    exposed: dict[str, Any] = {"compute": compute * MS, "communication": (bubble + other) * MS}
    steps = [make_step(number, **exposed, data_loading=0, overhead=0) for number in (1, 2)]
    made = make_pipeline(bubble, ideal)
    rows = [replace(row, compute_ns=2 * compute * MS, other_communication_ns=2 * other * MS) for row in made.ranks]
    pipelines = [replace(made, ranks=rows, heavy=heavy)] * count
    compared = None if late is None else make_compared(late)
    return worded(
        classify_bottleneck([make_rank(rank, steps) for rank in range(ranks)], None, compared, pipelines=pipelines)
    )


FOUR = make_pipeline(25).ranks


def make_compared(late: int) -> CrossRankSummary:
    """One straggler, whose lag is most of the step."""
    lag: dict[str, Any] = {
        "lag_ns": 40 * MS,
        "share": 0.4,
        "gain_ns": 40 * MS,
        "steps_late": 2,
        "steps_last": 2,
        "steps": 2,
    }
    row = Straggler(rank=late, category="compute", **lag)
    return CrossRankSummary(
        collectives=[], rank_waits=[], matched=0, unmatched=0, stragglers=[row], stragglers_gain_ns=40 * MS
    )


HEAVY = HeavyStage(stage=2, rank=2, excess=0.29, gain_ns=5e6, layer_move=None)
TWO_HEAVY = replace(HEAVY, also=[StageExcess(stage=1, rank=1, excess=0.22)])


@pytest.mark.parametrize(
    ("changes", "bound", "share"),
    [
        ({"bubble": 45}, "none", 0.45),
        ({"bubble": 45, "ideal": None}, "none", 0.45),
        ({"bubble": 85}, "bubble", 0.85),
        ({"bubble": 12, "ideal": 11}, "compute", 0.88),
        # The ranks of heavy stages are no stragglers; other late ranks are.
        ({"bubble": 45, "heavy": HEAVY, "late": 2}, "none", 0.45),
        ({"bubble": 45, "heavy": TWO_HEAVY, "late": 1}, "none", 0.45),
    ],
)
def test_what_the_bubble_bounds(changes: dict[str, Any], bound: str, share: float) -> None:
    found = verdict(**changes)
    assert (found.bound, found.largest_loss) == (bound, "communication")
    assert found.share == pytest.approx(share)


def test_the_bubble_is_named_with_its_schedule_and_ideal(golden: Callable[[str, str], None]) -> None:
    """Not where it is not most of communication."""
    named = [verdict(45), verdict(45, None), verdict(85), verdict(12, 11)]
    named += [verdict(45, heavy=HEAVY, late=2), verdict(45, heavy=TWO_HEAVY, late=1)]
    named += [verdict(45, other=45), verdict(45, ranks=5), verdict(45, count=0)]
    golden("\n".join(one.sentence for one in named), "wording/bubbles.txt")


def test_idle_time_that_is_longer_is_the_largest_loss() -> None:
    """Communication of 45 %, of which 25 % is the bubble, beside idle time of 35 %."""
    pipelines = [replace(make_pipeline(25), ranks=[replace(row, other_communication_ns=40 * MS) for row in FOUR])]
    exposed: dict[str, Any] = {"compute": 20 * MS, "communication": 45 * MS, "data_loading": 0, "overhead": 35 * MS}
    steps = [make_step(number, **exposed) for number in (1, 2)]
    found = worded(classify_bottleneck([make_rank(rank, steps) for rank in range(4)], None, None, pipelines=pipelines))
    assert "bubble" not in found.sentence
    assert "exposed communication, 45 %" in found.sentence


@pytest.mark.parametrize(
    "changes", [{"heavy": HEAVY, "late": 1}, {"late": 2}, {"heavy": HEAVY, "bubble": 20, "other": 30}]
)
def test_other_late_ranks_are(changes: dict[str, Any]) -> None:
    assert verdict(**({"bubble": 45, "heavy": None, "late": 2} | changes)).bound == "imbalance"
