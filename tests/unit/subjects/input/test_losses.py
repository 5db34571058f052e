"""Advice on waiting for data: what it says of the ranks, where they do not wait alike."""

from msgspec.structs import replace

from perfkit.pipeline.words import find_insights
from perfkit.records.cross_rank import CrossRankSummary, Straggler
from perfkit.records.per_rank.loading import RankLoading, WaitNs
from perfkit.records.rank import Loads, RankReport
from perfkit.records.report import Insight
from perfkit.records.run import RunReport
from tests.support.reports.report_builders import MS, make_loading, make_rank, make_run, make_step

READS = RankLoading(waits_ns=WaitNs(reading=30 * MS), workers=[])
COMPUTES = RankLoading(waits_ns=WaitNs(transforming=30 * MS), workers=[])


def loading_rank(rank: int | None, load_ms: int, why: RankLoading | None = None) -> RankReport:
    """A rank of two steps of 100 ms, each with one load."""
    step = make_step(1, compute=20 * MS, communication=(80 - load_ms) * MS, data_loading=load_ms * MS, overhead=0)
    loads = Loads(count=1, sum_ns=load_ms * MS, max_ns=load_ms * MS, spans_ns=[load_ms * MS])
    steps = [replace(step, step=number, loads=loads) for number in (1, 2)]
    return make_rank(rank, steps, loading=why)


def loading_run(*ranks: RankReport, late: CrossRankSummary | None = None) -> RunReport:
    return make_run(
        ranks=list(ranks),
        world_size=len(ranks),
        cross_rank=late,
        efficiency=None,
        dimensions=None,
        data_loading=make_loading(source="memory", median_ns=25 * MS),
    )


def the_input(run: RunReport) -> Insight:
    (one,) = [insight for insight in find_insights([run], None).insights if insight.rule == "input"]
    return one


def straggler(rank: int, lag_ms: int) -> CrossRankSummary:
    row = Straggler(
        rank=rank,
        category="data_loading",
        lag_ns=lag_ms * MS,
        share=0.5,
        gain_ns=lag_ms * MS,
        steps_late=2,
        steps_last=2,
        steps=2,
    )
    return CrossRankSummary(
        collectives=[], rank_waits=[], matched=0, unmatched=0, stragglers=[row], stragglers_gain_ns=lag_ms * MS
    )


def test_ranks_that_alone_wait_are_named_with_their_own_loads() -> None:
    one = the_input(loading_run(loading_rank(0, 0), loading_rank(1, 50)))
    # Half of all loads take no time: no load takes the median of 25 ms.
    assert one.sentence == "Data loading, 25.0 ms"
    assert one.evidence["median_load_ns"] == 50 * MS


def test_a_time_without_a_stragglers_is_explained_by_the_others() -> None:
    ranks = [loading_rank(0, 20, COMPUTES), loading_rank(1, 20, COMPUTES), loading_rank(2, 60, READS)]
    one = the_input(loading_run(*ranks, late=straggler(2, 40)))
    # The mean is a third of the step, as tables show it: what the step gains without rank 2's delay is not loading.
    assert one.sentence == "Data loading, 13.3 ms: preparing samples on the CPU"
