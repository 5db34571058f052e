"""The table of a run's ranks: the mean step, and where its time goes."""

from collections.abc import Iterator, Sequence
from typing import Final

from perfkit.base.formatting import duration, format_percent, format_percents
from perfkit.records.common import CATEGORIES, Category
from perfkit.records.rank import RankReport
from perfkit.records.run import RunReport
from perfkit.tables import aggregates as sums
from perfkit.tables.aggregates import TIMES
from perfkit.tables.labels import MAX_RANKS, SHORT, rank_label
from perfkit.tables.specification import (
    RANK,
    RUN,
    Cell,
    Field,
    Listing,
    Row,
    Table,
    data,
    make_table,
    number,
    of_ranks,
)

_LEFT_OUT: Final = "{} more ranks; shown: minimum and maximum of each column, and the median step"


def tables(run: RunReport, top: int) -> Iterator[Table | None]:  # noqa: ARG001  not ranked
    """Yield one row per rank: mean step, exposed time and share by category, overlapped communication."""
    ranks = [rank for rank in run.ranks if rank.steps]
    shown = ranks if len(ranks) <= MAX_RANKS else _extremes(ranks)
    steps = [step for rank in shown for step in rank.steps]
    taken = [i for i, ns in enumerate(sums.exposed_sums(steps)) if ns]
    communicates = any(step.total_ns.communication for step in steps)
    remark = "overlap: share of communication that runs under computation" if communicates else ""
    columns = (
        number("rank", lambda rank: rank_label(rank.rank)),
        number("steps", lambda rank: len(rank.steps)),
        number("step", _mean_ns, duration),
        *(_exposed(CATEGORIES[i], i) for i in taken),
        *([number("overlap", _overlap, format_percent)] if communicates else []),
    )
    left = len(ranks) - len(shown)
    title = "Ranks (mean profiled step; mean exposed time per step and its share)"
    yield make_table(title, shown, columns, _LEFT_OUT.format(left) if left else remark)


def _mean_ns(rank: RankReport) -> float:
    return sum(sums.exposed_sums(rank.steps)) / len(rank.steps)


def _exposed(category: Category, place: int) -> Field:
    def cell(rank: RankReport) -> Cell:
        exposed = sums.exposed_sums(rank.steps)
        ns = exposed[place]
        return Cell(duration(ns / len(rank.steps)), format_percents(exposed)[place] if ns else "")

    return number(SHORT[category], cell)


def _overlap(rank: RankReport) -> float | None:
    place = CATEGORIES.index("communication")
    return sums.overlapped(sums.total_sums(rank.steps)[place], sums.exposed_sums(rank.steps)[place])


def _extremes(ranks: Sequence[RankReport]) -> list[RankReport]:
    """Return the ranks with the least, median and most of the wall time and of each category."""
    chosen: set[int] = set()
    for column in zip(*(_means(rank) for rank in ranks), strict=True):
        order = sorted(range(len(ranks)), key=column.__getitem__)
        chosen |= {order[0], order[-1]}
    walls = [_means(rank)[0] for rank in ranks]
    chosen.add(sorted(range(len(ranks)), key=walls.__getitem__)[len(ranks) // 2])
    return [ranks[i] for i in sorted(chosen)]


def _means(rank: RankReport) -> list[float]:
    """Return the mean wall time and exposed times of a rank's steps (ns)."""
    exposed = sums.exposed_sums(rank.steps)
    return [ns / len(rank.steps) for ns in (sum(exposed), *exposed)]


def _summed(time: Field) -> Field:
    """Return a column of a step as one of a rank: the sum over its steps, of the longest load the largest."""

    def value(row: Row) -> int:
        values = (time.value(row._replace(of=step)) for step in row.rank.steps) if time.value else ()
        return max(values, default=0) if time.key == "loads_max_ns" else sum(values)

    return data(time.key, int, value)


LISTINGS: Final = {
    "ranks": Listing(
        of_ranks(lambda rank: [rank]),
        (
            RUN,
            RANK,
            data("host", str | None, lambda row: row.rank.host),
            data("device", str, lambda row: row.rank.device),
            data("backend", str | None, lambda row: row.rank.backend),
            data("steps", int, lambda row: len(row.rank.steps)),
            *map(_summed, TIMES),
        ),
    )
}
