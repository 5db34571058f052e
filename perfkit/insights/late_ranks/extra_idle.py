"""Which cause of idle time late ranks have more of than the others."""

from collections import defaultdict
from typing import Final

from msgspec.structs import replace

from perfkit.insights.idle import IdlePart
from perfkit.insights.late_ranks.sides import Sides, count_steps
from perfkit.schema.aggregate import merge_idle
from perfkit.schema.per_rank.idle import CAUSES, Cause

_MAJORITY: Final = 0.5


def extra_cause(sides: Sides) -> IdlePart | None:
    """Return the cause that late ranks are idle for longer than the others; None if none takes most of their lag."""
    own, others, lag_ns, _ = sides
    steps, other_steps = count_steps(own), count_steps(others)
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
    if extra_ns[cause] < _MAJORITY * lag_ns * steps:
        return None
    # No part is longer than the whole, of which the others may have other parts; their pauses are not compared. What
    # the others have more of is no part, and neither is what is missing in most steps: the lag is one of every step.
    whole_ns = round(extra_ns[cause])
    parts = [
        replace(row, total_ns=min(row.total_ns, whole_ns), count=min(row.count, steps))
        for row in sorted(rows, key=lambda row: -row.total_ns)
        if row.cause == cause and row.total_ns > 0 and row.count >= _MAJORITY * steps
    ]
    return IdlePart(cause, extra_ns[cause] / steps, parts, steps, idle) if parts else None
