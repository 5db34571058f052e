"""The table of launches: whether the host keeps the device's queue filled."""

from perfkit.report.content.aggregates import steps_of
from perfkit.report.content.document import Cell, Column, Table
from perfkit.report.content.idle import per_step
from perfkit.schema.per_rank.idle import add_launches
from perfkit.schema.run import RunReport
from perfkit.util.formatting import duration, figures, format_percent


def launches(run: RunReport) -> Table | None:
    """Return how kernels and copies were launched, over all ranks; None without recorded launches."""
    stats = add_launches(rank.launches for rank in run.ranks)
    if stats is None:
        return None
    return Table(
        "Launches of kernels and copies (means, over all ranks)",
        (
            Column("per step"),
            Column("call"),
            Column("kernel"),
            Column("short"),
            Column("delay"),
            Column("queued"),
            Column("empty"),
        ),
        [
            (
                Cell(per_step(stats.count, len(steps_of(run)))),
                Cell(duration(stats.call_ns / stats.count)),
                Cell(duration(stats.kernel_ns / stats.count)),
                Cell(format_percent(stats.shorter / stats.count)),
                Cell(duration(stats.delay_ns / stats.count), f"max {duration(stats.max_delay_ns)}"),
                Cell(figures(stats.ahead / stats.count), f"max {stats.max_ahead:,}"),
                Cell(format_percent(stats.on_idle_device / stats.count)),
            )
        ],
        "short: kernels shorter than their call; delay: from the end of the call to the start of the kernel; queued: "
        "launched earlier and not ended yet; empty: launches at which the device had nothing left to do",
    )
