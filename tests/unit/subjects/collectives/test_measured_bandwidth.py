"""Shares of a run's collectives in the bandwidth that a benchmark measured."""

from typing import Any

import pytest
from msgspec.structs import replace

from perfkit.records.benchmark import Series
from perfkit.records.common import Finding
from perfkit.records.cross_rank import BandwidthShare, CrossRankSummary, MatchedCollectiveStat
from perfkit.records.run import RunReport
from perfkit.subjects.collectives.measured_bandwidth import bandwidth_shares
from tests.support.reports.collective_builders import ALL_REDUCE, benchmark
from tests.support.reports.report_builders import make_run

TIMES = {1000: [1e5], 4000: [4e5], 16000: [8e5]}
BENCHMARK = benchmark(TIMES)


def row(**fields: Any) -> MatchedCollectiveStat:
    usual = {"operator": "all_reduce", "group": None, "group_size": 2, "bytes": 4000, "dtype": "float32", "count": 3}
    times = {"wait_ns": 0.0, "transfer_ns": 8e5, "algbw": None, "busbw": None}
    return MatchedCollectiveStat(**(usual | times | fields))


def run(*rows: MatchedCollectiveStat) -> RunReport:
    compared = CrossRankSummary(collectives=list(rows), rank_waits=[], matched=len(rows), unmatched=0, stragglers=[])
    return replace(make_run(), cross_rank=compared, device_names=["processor"])


def shares(*rows: MatchedCollectiveStat, measured: Any = BENCHMARK) -> list[BandwidthShare]:
    return bandwidth_shares(run(*rows), measured).shares or []


def test_the_share_is_the_measured_time_over_the_transfer() -> None:
    (found,) = shares(row())
    assert found.measured_ns == pytest.approx(4e5)
    assert found.share == pytest.approx(0.5)


def test_a_size_between_two_measured_ones_follows_a_power_law() -> None:
    (found,) = shares(row(bytes=2000))
    assert found.measured_ns == pytest.approx(2e5)


@pytest.mark.parametrize(
    "fields",
    [
        {"bytes": 999},
        {"bytes": 16001},
        {"bytes": None},
        {"transfer_ns": None},
        {"dtype": "bfloat16"},
        {"group_size": 4},
        {"operator": "all_gather"},
    ],
)
def test_what_was_not_measured_has_no_share_and_the_report_says_so(fields: dict[str, Any]) -> None:
    found = bandwidth_shares(run(row(**fields)), BENCHMARK)
    assert found.shares == []
    assert [fact.code for fact in found.limits if fact.code == "not_measured"] == ["not_measured"]


def test_a_dimension_is_compared_with_itself_with_all_its_groups_at_once() -> None:
    dp = Series(operator="all_reduce", dimension="dp", group_size=2, dtype="float32", in_place=True)
    measured = benchmark(
        [(dp, {4000: [1e5]}), (replace(dp, groups=2), {4000: [2e5]}), (replace(dp, dimension="tp"), {4000: [3e5]})],
        world_size=4,
    )
    (found,) = shares(row(dimension="dp"), measured=measured)
    assert found.measured_ns == pytest.approx(2e5)
    assert shares(row(dimension="cp"), measured=measured) == []
    assert shares(row(dimension=None), measured=measured) == []


def test_a_matched_send_is_compared_with_one_way_pairs_in_a_group_of_any_size() -> None:
    pairs = replace(ALL_REDUCE, operator="send_recv_pairs", group_size=2)
    ring = replace(pairs, operator="send_recv")
    measured = benchmark([(ring, {4000: [9e5]}), (pairs, {4000: [4e5]})])
    (found,) = shares(row(operator="send_recv", group_size=8), measured=measured)
    assert found.share == pytest.approx(0.5)


def test_several_collectives_at_once_are_not_what_one_reaches() -> None:
    assert shares(row(), measured=benchmark([(replace(ALL_REDUCE, concurrent=4), TIMES)])) == []


def test_another_device_is_a_finding_and_the_same_is_not() -> None:
    codes = [fact.code for fact in bandwidth_shares(run(row()), BENCHMARK).limits]
    assert "other_network_measured" not in codes
    other = replace(BENCHMARK, device_names=["another"])
    codes = [fact.code for fact in bandwidth_shares(run(row()), other).limits]
    assert "other_network_measured" in codes


def test_waiting_for_ranks_without_a_trace_is_no_share_of_a_bandwidth() -> None:
    incomplete = Finding(code="groups_incomplete", severity="info", message="")
    found = bandwidth_shares(replace(run(row()), findings=[incomplete]), BENCHMARK)
    assert found.shares is None
    assert [(fact.code, fact.case) for fact in found.limits] == [("not_measured", "ranks_missing")]
