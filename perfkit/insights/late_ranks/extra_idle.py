"""Which cause of idle time late ranks have more of than the others."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from perfkit.insights.idle import IdlePart
from perfkit.insights.late_ranks.sides import count_steps, divide, mean_lag_ns
from perfkit.insights.run_context import RunContext
from perfkit.schema.aggregate import merge_idle
from perfkit.schema.cross_rank import Straggler
from perfkit.schema.per_rank.idle import CAUSES, Cause

_MAJORITY: Final = 0.5


def extra_cause(context: RunContext, late: Sequence[Straggler]) -> IdlePart | None:
    """Return the cause that late ranks are idle for longer than the others; None if none takes most of their lag.

    Args:
        context: the run.
        late: the late ranks.
    """
    own, others = divide(context, late)
    steps, other_steps = count_steps(own), count_steps(others)
    if not steps or not other_steps:
        return None
    usual = {(row.cause, row.detail, row.context): row.total_ns / other_steps for row in merge_idle(others).causes}
    idle, extra_ns = merge_idle(own), defaultdict[Cause, float](float)
    rows = []
    for row in idle.causes:
        more_ns = row.total_ns - steps * usual.pop((row.cause, row.detail, row.context), 0.0)
        extra_ns[row.cause] += more_ns
        rows.append(replace(row, total_ns=round(more_ns)))
    for (cause, *_), usual_ns in usual.items():  # what only the others have
        extra_ns[cause] -= steps * usual_ns
    cause = max(CAUSES, key=lambda name: extra_ns[name])
    if extra_ns[cause] < _MAJORITY * mean_lag_ns(late) * steps:
        return None
    # No part is longer than the whole, of which the others may have other parts; their pauses are not compared.
    whole_ns = round(extra_ns[cause])
    parts = [
        replace(row, total_ns=min(row.total_ns, whole_ns), count=min(row.count, steps))
        for row in sorted(rows, key=lambda row: -row.total_ns)
        if row.cause == cause
    ]
    return IdlePart(cause, extra_ns[cause] / steps, parts, steps, idle)
