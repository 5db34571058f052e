"""The tables of a run's idle time: by cause, what ran in it, and whether launches keep the device busy."""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from perfkit.base.formatting import duration, figures, format_percent
from perfkit.records.aggregate import merge_idle
from perfkit.records.common import CATEGORIES, Category
from perfkit.records.per_rank.idle import CAUSE_WORDS, CAUSES, IdleCause, IdleTime, add_launches
from perfkit.records.rank import DeviceTimes, RankReport
from perfkit.records.run import RunReport
from perfkit.tables.aggregates import steps_of
from perfkit.tables.labels import LONG, MAX_RANKS, counted, per_step, rank_label
from perfkit.tables.specification import (
    RANK,
    RUN,
    Field,
    Listing,
    Table,
    code_data,
    data_of,
    make_table,
    name,
    number,
    of_ranks,
    words,
)

_SMALLEST_SHARE: Final = 0.005
"""Share of the step from which idle time is worth two tables."""


def tables(run: RunReport, top: int) -> Iterator[Table | None]:
    """Yield the tables of idle time; None where it is unknown or too little."""
    idle, steps = merge_idle(run.ranks), len(steps_of(run))
    wall_ns = sum(step.wall_ns for step in steps_of(run))
    if wall_ns and _total_ns(idle.causes) >= _SMALLEST_SHARE * wall_ns:
        yield _causes(idle, wall_ns, steps)
        yield _details(idle, wall_ns, steps, top)
    yield _devices(run)
    yield _launches(run, steps)


class _OfRank(NamedTuple):
    """A device of a rank, and the time of the rank's steps."""

    rank: RankReport
    times: DeviceTimes
    wall_ns: int

    def share(self, ns: int) -> float | None:
        """Return a time as a share of the steps."""
        return ns / self.wall_ns if self.wall_ns else None


def _of_category(category: Category) -> Field:
    return number(LONG[category], lambda row: row.share(getattr(row.times.exposed_ns, category)), format_percent)


def _devices(run: RunReport) -> Table | None:
    """Return what each device of ranks with several does; None without any."""
    rows = [
        _OfRank(rank, times, sum(step.wall_ns for step in rank.steps)) for rank in run.ranks for times in rank.devices
    ]
    columns = (
        number("rank", lambda row: rank_label(row.rank.rank)),
        words("device", lambda row: row.times.device),
        *map(_of_category, CATEGORIES),
        number("while others work", lambda row: row.share(row.times.beside_ns), format_percent),
    )
    remark = f"{len(rows) - MAX_RANKS} more" if len(rows) > MAX_RANKS else ""
    return make_table("Devices of a rank (share of its steps)", rows, columns, remark, top=MAX_RANKS)


def _causes(idle: IdleTime, wall_ns: int, steps: int) -> Table | None:
    by_cause = ([row for row in idle.causes if row.cause == cause] for cause in CAUSES)
    rows = sorted((rows for rows in by_cause if _total_ns(rows)), key=lambda rows: -_total_ns(rows))
    columns = (
        words("cause", lambda rows: CAUSE_WORDS[rows[0].cause]),
        number("time", lambda rows: _total_ns(rows) / steps, duration),
        number("% of step", lambda rows: _total_ns(rows) / wall_ns, format_percent),
        number("pauses", lambda rows: per_step(sum(row.count for row in rows), steps)),
        number("longest", lambda rows: max(row.max_ns for row in rows), duration),
    )
    return make_table("Idle time by cause (mean per step and rank)", rows, columns, _kernels(idle))


def _details(idle: IdleTime, wall_ns: int, steps: int, top: int) -> Table | None:
    """Return what ran while the run was idle, largest first."""
    columns = (
        name("what", lambda row: row.detail),
        name("in", lambda row: row.context),
        words("cause", lambda row: CAUSE_WORDS[row.cause]),
        number("pauses", lambda row: per_step(row.count, steps)),
        number("time", lambda row: row.total_ns / steps, duration),
        number("% of step", lambda row: row.total_ns / wall_ns, format_percent),
    )
    left = idle.causes[top:]
    remark = f"{len(left)} more, {duration(_total_ns(left) / steps)}" if left else ""
    return make_table("What ran in idle time (mean per step and rank)", idle.causes, columns, remark, top=top)


def _total_ns(rows: Iterable[IdleCause]) -> int:
    return sum(row.total_ns for row in rows)


def _kernels(idle: IdleTime) -> str:
    if idle.kernels < 2:
        return ""
    share = format_percent(idle.short_kernels / idle.kernels)
    return f"{share} of {idle.kernels:,} kernels run for less than 5 µs, about what launching one takes"


def _launches(run: RunReport, steps: int) -> Table | None:
    """Return how kernels and copies were launched, over all ranks; None without recorded launches."""
    stats = add_launches(rank.launches for rank in run.ranks)
    columns = (
        number("per step", lambda row: per_step(row.count, steps)),
        number("call", lambda row: row.call_ns / row.count, duration),
        number("kernel", lambda row: row.kernel_ns / row.count, duration),
        number("short", lambda row: row.shorter / row.count, format_percent),
        number(
            "delay",
            lambda row: row.delay_ns / row.count,
            duration,
            note=lambda row: f"max {duration(row.max_delay_ns)}",
        ),
        number("queued", lambda row: row.ahead / row.count, figures, note=lambda row: f"max {counted(row.max_ahead)}"),
        number("empty", lambda row: row.on_idle_device / row.count, format_percent),
    )
    return make_table(
        "Launches of kernels and copies (means, over all ranks)",
        [] if stats is None else [stats],
        columns,
        "short: kernels shorter than their call; delay: from the end of the call to the start of the kernel; queued: "
        "launched earlier and not ended yet; empty: launches at which the device had nothing left to do",
    )


LISTINGS: Final = {
    "idle": Listing(
        of_ranks(lambda rank: rank.idle.causes),
        (RUN, RANK, *data_of(IdleCause)[:-1], *code_data(lambda row: row.of.code)),
    )
}
