"""Late ranks in replicated pipelines of known truth: their cost is theirs, the bubble that of the schedule."""

from pathlib import Path

import numpy as np
import pytest

import perfkit
from perfkit.records.report import Insight, Report
from tests.support.traces.replicated_pipeline import Delay, Work, none, train

STEPS, US = 8, 1000


def time(stage: int, kind: str, rank: int, step: int) -> int:
    draw = np.random.default_rng([stage, ord(kind), rank, step]).normal(0, 0.01)
    return int((1000 if kind == "F" else 2000) * (1 + draw))


def heavy(stage: int, kind: str, rank: int, step: int) -> int:
    return time(stage, kind, rank, step) * (3 if stage else 2) // 2


def late(*ranks: int, us: int = 6000) -> Delay:
    return lambda rank, _: us if rank in ranks else 0


def analyzed(folder: Path, work: Work) -> tuple[Report, float]:
    """Return the report of a run, and what it would save per step without delays (us)."""
    taken = train(folder / "run", STEPS, work)
    return perfkit.analyze(folder / "run"), taken - train(
        folder / "prompt", STEPS, work._replace(compute=none, load=none)
    )


def insights(report: Report) -> dict[str, Insight]:
    return {one.rule: one for one in report.insights}


ONE = [
    *(Work(time, compute=late(rank)) for rank in range(4)),
    Work(time, load=late(0)),
    Work(time, load=late(1)),
    *(Work(time, load=late(rank)) for rank in (2, 3)),
    Work(heavy, compute=late(3)),
    Work(heavy, load=late(0)),
]


@pytest.mark.parametrize("work", ONE)
def test_a_late_rank_comes_before_the_bubble(work: Work, tmp_path: Path) -> None:
    report, saved_us = analyzed(tmp_path, work)
    (run,) = report.runs
    assert run.cross_rank is not None
    # In the last of eight steps, no trace has what a message was received for.
    assert run.cross_rank.stragglers_gain_ns == pytest.approx(US * saved_us, rel=0.125)
    assert run.ledger is not None
    row = run.ledger.of("late_ranks")
    assert row is not None
    assert row.ns == run.cross_rank.stragglers_gain_ns
    found = insights(report)
    prompt = perfkit.analyze(tmp_path / "prompt")
    bubble_ns = insights(prompt)["pipeline_bubble"].potential_saving_ns
    # No more than its row, from which what a rank waits for a late one is estimated for each rank.
    assert found["pipeline_bubble"].potential_saving_ns == pytest.approx(bubble_ns, rel=0.12)
    assert "pipeline_transfers" not in found


def test_a_bubble_that_costs_more_has_nothing_of_what_a_late_rank_costs(tmp_path: Path) -> None:
    report, saved_us = analyzed(tmp_path, Work(time, compute=late(3, us=2000)))
    (run,) = report.runs
    assert run.ledger is not None
    bubble, waiting = run.ledger.of("bubble"), run.ledger.of("late_ranks")
    assert bubble is not None
    assert waiting is not None
    assert bubble.share == pytest.approx(0.18, abs=0.01)  # 3.1 ms of 17.3
    assert waiting.ns == pytest.approx(US * saved_us, rel=0.1)
    assert waiting.ranks == [3]


@pytest.mark.parametrize(
    "work",
    [
        Work(time, compute=late(1, 3)),  # of one pipeline: one after the other
        Work(time, load=late(1, 3)),
        Work(time, compute=late(1, 2)),  # of two: each hides the other
    ],
)
def test_delays_at_two_stages_cost_what_they_cost_together(work: Work, tmp_path: Path) -> None:
    report, saved_us = analyzed(tmp_path, work)
    (run,) = report.runs
    assert run.cross_rank is not None
    assert run.cross_rank.stragglers_gain_ns == pytest.approx(US * saved_us, rel=0.1)


def test_what_the_late_ranks_own_bubble_absorbs_is_not_gained(tmp_path: Path) -> None:
    """The stage before a heavy one waits for it: 6 ms more of work there lengthen the step by 1.5 ms."""
    report, saved_us = analyzed(tmp_path, Work(heavy, compute=late(0)))
    (run,) = report.runs
    assert run.cross_rank is not None
    assert saved_us < 3000
    assert run.cross_rank.stragglers_gain_ns == pytest.approx(US * saved_us, abs=300 * US)


def test_a_heavy_stage_is_as_heavy_as_where_no_rank_is_late(tmp_path: Path) -> None:
    report, _ = analyzed(tmp_path, Work(heavy, compute=late(3)))
    assert insights(report)["heavy_stage"].evidence["excess"] == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("work", [Work(time), Work(heavy)])
def test_without_a_late_rank_nobody_is_named(work: Work, tmp_path: Path) -> None:
    report, _ = analyzed(tmp_path, work)
    (run,) = report.runs
    assert run.verdict.bound == "bubble"
    assert "waiting" not in insights(report)
    assert not run.cross_rank or not run.cross_rank.stragglers
