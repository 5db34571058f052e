"""Tables and sentences about pairs of ranks."""

from collections.abc import Callable
from typing import Final

from perfkit.report.content.collectives.series import rate
from perfkit.report.content.document import Cell, Column, Table
from perfkit.schema.benchmark import CollectiveBenchmark, PairTest, PairTime, SlowLink
from perfkit.util.formatting import MISSING, duration, escape_unprintable, ranges, size, whole_percent

_MOST_IN_MATRIX: Final = 8
"""A matrix of more ranks does not fit on a terminal: then the slowest pairs are listed."""


def pair_tables(record: CollectiveBenchmark, top: int) -> list[Table]:
    """Return the matrices of latency and bandwidth; of many ranks the pairs with the lowest bandwidth."""
    test = record.pairs
    if test is None:
        return []
    remark = (
        f"{test.rounds} round{'' if test.rounds == 1 else 's'} of disjoint pairs, {test.passes} times; a time varies "
        f"by {whole_percent(test.latency_noise)} (latency) and {whole_percent(test.bandwidth_noise)} (bandwidth) "
        "between them"
    )
    if record.world_size > _MOST_IN_MATRIX:
        return [_slowest(test, top, remark)]
    small, large = size(test.small_bytes), size(test.large_bytes)
    return [
        _matrix(f"Time of {small} between two ranks", record, test, lambda pair: duration(pair.latency_ns), ""),
        _matrix(f"Bandwidth of {large} each way", record, test, lambda pair: rate(pair.bandwidth), remark),
    ]


def slow_sentence(link: SlowLink) -> str:
    """Return what is slow, and by how much."""
    what = {
        "pair": f"messages between ranks {ranges(link.ranks)}",
        "rank": f"all messages of rank {ranges(link.ranks)}",
        "host": f"all messages of host {escape_unprintable(link.host or '')} (ranks {ranges(link.ranks)}) to others",
    }[link.kind]
    which = "small" if link.measure == "latency" else "large"
    return f"{what} take {link.ratio:.1f} times as long as comparable ones ({which} messages)"


def _matrix(
    title: str, record: CollectiveBenchmark, test: PairTest, show: Callable[[PairTime], str], remark: str
) -> Table:
    shown = {pair.ranks: show(pair) for pair in test.pairs}
    ranks = range(record.world_size)
    slow = {tuple(sorted(link.ranks)) for link in test.slow if link.kind == "pair"}
    rows = [
        (
            Cell(f"rank {a}"),
            *(
                Cell(shown.get((min(a, b), max(a, b)), MISSING), tone="warning" if _is_in(a, b, slow) else "plain")
                for b in ranks
            ),
        )
        for a in ranks
    ]
    return Table(title, (Column("", "words"), *(Column(str(rank)) for rank in ranks)), rows, remark)


def _is_in(a: int, b: int, pairs: set[tuple[int, ...]]) -> bool:
    return (min(a, b), max(a, b)) in pairs


def _slowest(test: PairTest, top: int, remark: str) -> Table:
    rows = [
        (
            Cell(f"{pair.ranks[0]} and {pair.ranks[1]}"),
            Cell(duration(pair.latency_ns)),
            Cell(rate(pair.bandwidth)),
        )
        for pair in sorted(test.pairs, key=lambda pair: pair.bandwidth)[:top]
    ]
    title = f"Pairs with the lowest bandwidth ({size(test.large_bytes)} each way), of {len(test.pairs):,}"
    columns = (Column("ranks", "words"), Column(f"time of {size(test.small_bytes)}"), Column("bandwidth"))
    return Table(title, columns, rows, remark)
