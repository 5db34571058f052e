"""Charts of ranks: where their time goes, and who waits in collectives."""

from typing import Final

from perfkit.base.formatting import in_ms
from perfkit.records.common import CATEGORIES
from perfkit.records.run import RunReport
from perfkit.tables import aggregates
from perfkit.tables.charts import Bars, Chart, RunChart, longest_ranks, ranks_with_steps, stacked_bars
from perfkit.tables.labels import LONG, rank_label, rank_labels

_MOST_BARS: Final = 256


def _by_rank(run: RunReport) -> Chart | None:
    ranks = ranks_with_steps(run)
    if len(ranks) < 2:
        return None
    shown, note = longest_ranks(ranks, _MOST_BARS)
    means = [[ns / len(rank.steps) for ns in aggregates.exposed_sums(rank.steps)] for rank in shown]
    series = [Bars(name, LONG[name], [in_ms(mean[i]) for mean in means]) for i, name in enumerate(CATEGORIES)]
    labels = rank_labels(shown)
    return stacked_bars("Mean profiled step per rank", labels, series, label="rank", note=note)


def _waiting(run: RunReport) -> Chart | None:
    """Return wait and transfer time per rank: the rank that waits least is the one the others wait for."""
    waits = run.cross_rank.rank_waits if run.cross_rank and run.cross_rank.waits_known else []
    if len(waits) < 2:
        return None
    steps = {rank.rank: len(rank.steps) or 1 for rank in run.ranks}
    shown = sorted(sorted(waits, key=lambda wait: wait.wait_ns)[:_MOST_BARS], key=lambda wait: wait.rank)
    series = [
        Bars(part, part, [in_ms(getattr(wait, f"{part}_ns") / steps.get(wait.rank, 1)) for wait in shown])
        for part in ("transfer", "wait")
    ]
    return stacked_bars(
        "Wait and transfer in collectives, per rank and step",
        [rank_label(wait.rank) for wait in shown],
        series,
        label="rank",
        y="ms, exposed or overlapped",
        note=f"The {len(shown)} of {len(waits)} ranks that wait least." if len(shown) < len(waits) else "",
    )


CHARTS: Final[dict[str, RunChart]] = {
    "ranks": RunChart(_by_rank, "a chart of ranks needs two or more with steps"),
    "waiting": RunChart(_waiting, "a chart of waiting needs collectives matched across ranks"),
}
