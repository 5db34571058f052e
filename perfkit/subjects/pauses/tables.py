"""The table of a run's checkpoints, evaluations and logging."""

from collections.abc import Iterator

from perfkit.base.formatting import duration, left_out, size
from perfkit.records.per_run.pauses import RankPauses
from perfkit.records.run import RunReport
from perfkit.tables.labels import MAX_RANKS, counted, rank_label
from perfkit.tables.specification import Table, joined, make_table, number, words

_COLUMNS = (
    words("phase", lambda row: f"{row.phase}{_how(row)}"),
    number("rank", lambda row: rank_label(row.rank)),
    number("count", lambda row: row.count, counted),
    number("total", lambda row: row.total_ns, duration),
    number("longest", lambda row: row.max_ns, duration),
    number("written", lambda row: row.bytes, size),
    number("recorded", lambda row: row.recorded_ns if row.recorded else None, duration),
    number("others wait", lambda row: row.waited_ns, duration),
)


def tables(run: RunReport, top: int) -> Iterator[Table | None]:  # noqa: ARG001  not ranked
    """Yield the pauses by phase and rank, those of most time of each phase; None without any."""
    shown: list[RankPauses] = []
    for phase in dict.fromkeys(row.phase for row in run.pauses):
        rows = [row for row in run.pauses if row.phase == phase]
        longest = sorted(rows, key=lambda row: -row.total_ns)[:MAX_RANKS]
        shown += [row for row in rows if row in longest]
    left = len(run.pauses) - len(shown)
    remark = (
        "no part of the steps; recorded: their time within the windows of recorded steps; others wait: exposed "
        "communication of the rank that waits most, in that time"
    )
    remark = joined(remark, left_out(left, "rank") if left else "")
    yield make_table("Checkpoints, evaluation and logging", shown, _COLUMNS, remark)


def _how(row: RankPauses) -> str:
    if not row.asynchronous:
        return ""
    return " (asynchronous)" if row.asynchronous == row.count else f" ({row.asynchronous} asynchronous)"
