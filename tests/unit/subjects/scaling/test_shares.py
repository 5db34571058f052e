"""Where a series loses efficiency: the ledgers of its runs against the step of ideal scaling."""

from typing import Any

import pytest
from msgspec.structs import replace

from perfkit.records.per_run.ledger import Ledger, LedgerRow
from perfkit.records.run import RunReport
from perfkit.records.scaling import ScalingSeries
from tests.support.reports.scaling_builders import make_hosts, make_scaled
from tests.support.reports.worded import scaling


def with_ledger(
    ranks: int, batch: int, parts_ms: dict[str, float], late: tuple[int, ...] = (), **more: Any
) -> RunReport:
    whole = sum(parts_ms.values())
    rows = [
        LedgerRow(
            cause=cause,
            ns=round(ms * 1e6),
            share=ms / whole,
            ranks=list(late) if cause == "late_ranks" else [],
        )
        for cause, ms in parts_ms.items()
    ]
    ledger = Ledger(step_ns=round(whole * 1e6), is_profiled=False, from_path=True, rows=rows)
    return make_scaled(ranks, whole, batch=batch, ledger=ledger, **more)


def the(*runs: RunReport) -> ScalingSeries:
    summary = scaling(list(runs))
    assert summary is not None
    (series,) = summary.series
    return series


def test_what_is_lost_adds_up_to_the_efficiency_and_heads_the_report() -> None:
    alone = with_ledger(1, 32, {"compute": 90, "data_loading": 10})
    four = with_ledger(4, 8, {"compute": 24.5, "data_loading": 2.5, "communication": 4, "late_ranks": 5}, late=(3,))
    series = the(alone, four)
    point = series.points[1]
    assert point.efficiency.value == pytest.approx(25 / 36)
    assert sum(part.lost for part in point.parts) == pytest.approx(100 * (1 - 25 / 36))
    lost = {part.cause: part.lost for part in point.parts}
    assert lost["compute"] == pytest.approx(100 * 2 / 36)
    assert lost["data_loading"] == 0
    named = "waiting for rank 3 (14 points) and communication (11 points)"
    assert series.sentence == f"Strong scaling to 4 ranks: 69 % efficient; lost mostly to {named}"


def test_rows_of_one_cause_are_one_part() -> None:
    """Ranks that are late in every step, and others in single ones, have a row each."""
    series = the(with_ledger(2, 8, {"compute": 80}), with_ledger(4, 8, {"compute": 80, "late_ranks": 20}, late=(3,)))
    twice = with_ledger(4, 8, {"compute": 80, "late_ranks": 20}, late=(3,))
    assert twice.ledger is not None
    row = twice.ledger.rows[1]
    rows = [replace(row, ns=15_000_000, share=0.15), replace(row, ns=5_000_000, share=0.05)]
    divided = replace(twice, ledger=replace(twice.ledger, rows=[twice.ledger.rows[0], *rows]))
    assert the(with_ledger(2, 8, {"compute": 80}), divided) == series


def test_weak_scaling_keeps_the_step() -> None:
    series = the(with_ledger(2, 8, {"compute": 90}), with_ledger(4, 8, {"compute": 90, "communication": 10}))
    assert series.sentence == (
        "Weak scaling to 4 ranks: 90 % efficient against 2; lost mostly to communication (10 points)"
    )


def test_causes_that_exceed_what_is_lost_are_not_named() -> None:
    busy = with_ledger(1, 8, {"compute": 60, "unrecorded": 40})
    series = the(busy, with_ledger(2, 8, {"compute": 110}))
    assert series.sentence == "Weak scaling to 2 ranks: 91 % efficient"


def test_more_than_ideal_and_shared_cores_are_no_scaling() -> None:
    series = the(with_ledger(1, 8, {"compute": 100}), with_ledger(2, 8, {"compute": 50}))
    assert series.sentence == (
        "scaling to 2 ranks (weak) is not known: 200 % of ideal shows a slow run on 1, or parts that fit the caches"
    )
    crowded = with_ledger(4, 8, {"compute": 200}, hosts=make_hosts(4, cores=2))
    series = the(with_ledger(1, 8, {"compute": 100}), crowded)
    assert series.sentence == "scaling to 4 ranks (weak) is not shown: 4 ranks on 2 cores"


def test_what_is_no_scaling_comes_last() -> None:
    above = [with_ledger(1, 8, {"compute": 100}), with_ledger(2, 8, {"compute": 50})]
    below = [with_ledger(1, 24, {"compute": 100}), with_ledger(2, 24, {"compute": 125})]
    for runs in ([*above, *below], [*below, *above]):
        summary = scaling(runs)
        assert summary is not None
        assert [one.points[-1].efficiency.value for one in summary.series] == [0.8, 2.0]


def test_runs_without_ledgers_have_no_parts() -> None:
    series = the(make_scaled(1, 100, ranks=[]), make_scaled(2, 125, ranks=[]))
    assert [point.parts for point in series.points] == [[], []]
    assert series.sentence == "Weak scaling to 2 ranks: 80 % efficient"
