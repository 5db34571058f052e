"""Ranks with known idle time."""

from typing import Any

from msgspec.structs import replace

from perfkit.records.per_rank.idle import CAUSES, Cause, IdleCause, IdleNs, IdleTime
from perfkit.records.rank import RankReport
from tests.support.reports.report_builders import MS, make_rank, make_step

STEPS = 4


def row(cause: Cause, detail: str, ms: float, context: str | None = None, count: int = 4) -> IdleCause:
    """A row whose time is per step."""
    total_ns = round(STEPS * ms * MS)
    return IdleCause(
        cause=cause, detail=detail, context=context, count=count, total_ns=total_ns, max_ns=total_ns // count
    )


def idle_rank(*rows: IdleCause, rank: int = 0, **changes: Any) -> RankReport:
    """A rank on a GPU with four steps of 100 ms, of which the rows' time is idle."""
    total_ns = sum(one.total_ns for one in rows) // STEPS
    by_cause = {cause: sum(one.total_ns for one in rows if one.cause == cause) // STEPS for cause in CAUSES}
    step = make_step(0, compute=100 * MS - total_ns, communication=0, data_loading=0, overhead=total_ns, hidden=0)
    steps = [replace(step, step=number, idle_ns=IdleNs(**by_cause)) for number in range(STEPS)]
    fields: dict[str, Any] = {"kernels": 0, "short_kernels": 0}
    fields |= {"has_python_frames": True} | changes
    causes = sorted(rows, key=lambda one: -one.total_ns)
    return make_rank(rank, steps, device="gpu", phases=[], idle=IdleTime(causes=causes, **fields))
