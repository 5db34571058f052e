"""The ledger of a step: its rows add up to it, and the time of late ranks and bubbles is booked on these."""

from random import Random
from statistics import fmean
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from perfkit.engine.ledger.build import build_ledger
from perfkit.engine.ranks.summary import Compared
from perfkit.records.aggregate import step_time
from perfkit.records.cross_rank import CrossRankSummary, Straggler
from perfkit.records.per_rank.idle import IdleNs
from perfkit.records.per_run.ledger import Ledger
from perfkit.records.per_run.pipeline import Pipeline
from perfkit.records.rank import RankReport
from tests.support.reports.report_builders import MS, make_across, make_rank, make_step
from tests.unit.subjects.pipelines.test_losses import make_pipeline

PARTS = ("compute", "communication", "memcpy", "data_loading", "overhead")


def ledger_of(
    ranks: list[RankReport],
    plain_ns: list[int] | None = None,
    compared: CrossRankSummary | None = None,
    pipelines: list[Pipeline] | None = None,
) -> Ledger:
    step = step_time(plain_ns or [], ranks)
    assert step is not None
    return build_ledger((), ranks, step, Compared(compared, [], []) if compared else None, pipelines or [])


def late(rank: int, gain_ns: int, category: Any = "overhead") -> CrossRankSummary:
    row = Straggler(
        rank=rank, category=category, lag_ns=gain_ns, share=0.1, gain_ns=gain_ns, steps_late=2, steps_last=2, steps=2
    )
    return make_across(stragglers=[row], stragglers_gain_ns=gain_ns)


def ranks_of(*parts: dict[str, int]) -> list[RankReport]:
    none = dict.fromkeys(PARTS, 0)
    return [
        make_rank(rank, [make_step(number, **(none | own), hidden=0) for number in (1, 2)])
        for rank, own in enumerate(parts)
    ]


durations = st.integers(0, 10**9)


@given(
    parts=st.lists(st.tuples(*[durations] * 5).filter(any), min_size=1, max_size=4),
    plain_ns=st.lists(st.integers(1, 10**10), max_size=3),
    gain_ns=st.integers(0, 2 * 10**9),
    bubble=st.integers(0, 90),
)
def test_the_rows_add_up_to_the_step(
    parts: list[tuple[int, ...]], plain_ns: list[int], gain_ns: int, bubble: int
) -> None:
    ranks = ranks_of(*(dict(zip(PARTS, own, strict=True)) for own in parts))
    pipelines = [make_pipeline(bubble)] if len(parts) == 4 else []
    found = ledger_of(ranks, plain_ns, late(0, gain_ns) if len(parts) > 1 else None, pipelines)
    assert sum(row.ns for row in found.rows) == found.step_ns
    assert all(row.ns >= 0 and 0 <= row.share <= 1 for row in found.rows)
    assert [row.ns for row in found.rows] == sorted((row.ns for row in found.rows), reverse=True)
    if plain_ns:
        assert found.step_ns == round(sum(plain_ns) / len(plain_ns))


def test_late_ranks_have_what_the_step_gains_without_them() -> None:
    ranks = ranks_of(
        {"compute": 40 * MS, "communication": 60 * MS},
        {"compute": 40 * MS, "overhead": 60 * MS},
    )
    found = ledger_of(ranks, compared=late(1, 60 * MS))
    row = found.of("late_ranks")
    assert row is not None
    assert (row.ns, row.ranks) == (60 * MS, [1])
    assert found.of("communication") is None  # all of it is waiting for rank 1
    compute = found.of("compute")
    assert compute is not None
    assert compute.ns == 40 * MS


def test_more_than_the_step_is_not_late() -> None:
    found = ledger_of(ranks_of({"compute": 40 * MS}, {"compute": 40 * MS}), compared=late(1, 90 * MS))
    assert [(row.cause, row.ns) for row in found.rows] == [("late_ranks", 40 * MS)]


def test_recorded_steps_that_are_longer_tell_shares() -> None:
    ranks = ranks_of({"compute": 50 * MS, "overhead": 50 * MS})
    ranks = [replace(r, steps=[replace(s, idle_ns=IdleNs(host_work=50 * MS)) for s in r.steps]) for r in ranks]
    found = ledger_of(ranks, plain_ns=[60 * MS])
    assert [(row.cause, row.ns) for row in found.rows] == [("compute", 30 * MS), ("host_work", 30 * MS)]


def test_a_bubble_is_what_ranks_wait_in() -> None:
    ranks = ranks_of(*[{"compute": 55 * MS, "communication": 45 * MS}] * 4)
    found = ledger_of(ranks, pipelines=[make_pipeline(40)])
    assert [(row.cause, row.ns) for row in found.rows] == [
        ("compute", 55 * MS),
        ("bubble", 40 * MS),
        ("communication", 5 * MS),
    ]


@given(
    plain_ns=st.lists(st.integers(80 * MS, 120 * MS), min_size=1, max_size=20),
    long_ns=st.lists(st.integers(160 * MS, 10_000 * MS), max_size=10),
    order=st.randoms(use_true_random=False),
)
def test_steps_that_no_recorded_one_is_like_change_only_what_is_in_no_recorded_step(
    plain_ns: list[int], long_ns: list[int], order: Random
) -> None:
    ranks = ranks_of({"compute": 70 * MS, "overhead": 30 * MS}, {"compute": 60 * MS, "data_loading": 40 * MS})
    mixed = [*plain_ns, *long_ns]
    order.shuffle(mixed)
    with_long, without = ledger_of(ranks, mixed), ledger_of(ranks, plain_ns)
    assert with_long.step_ns == round(fmean(mixed))
    causes = {row.cause for row in without.rows} - {"unrecorded"}
    assert {row.cause for row in with_long.rows} - {"unrecorded"} == causes
    for cause in causes:
        kept, usual = with_long.of(cause), without.of(cause)
        assert kept
        assert usual
        assert abs(kept.ns - usual.ns) <= 3  # rounding is booked on the largest row


def test_rollouts_between_the_recorded_updates_are_in_no_recorded_step() -> None:
    """As of a loop with 11 rollouts among 89 steps, which take 58 % of the time."""
    plain_ns = [12 * MS] * 78 + [125 * MS] * 11
    found = ledger_of(ranks_of({"compute": 16 * MS}), plain_ns)
    assert found.step_ns == pytest.approx(26 * MS, rel=0.01)
    unrecorded = found.of("unrecorded")
    assert unrecorded is not None
    assert unrecorded.ns == pytest.approx(14 * MS, rel=0.01)


def test_without_steps_there_is_none() -> None:
    assert step_time([], [make_rank(0, [])]) is None


@pytest.mark.parametrize("steps", [1, 3])
def test_idle_time_of_unknown_cause_is_unknown(steps: int) -> None:
    rank = make_rank(0, [make_step(number, **dict.fromkeys(PARTS, MS), hidden=0) for number in range(steps)])
    found = ledger_of([rank]).of("unknown")
    assert found is not None
    assert found.ns == MS
