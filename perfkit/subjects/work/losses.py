"""What exposed copies cost: what helps depends on where they go."""

import re
from collections import Counter
from typing import Final

from perfkit.engine.losses.context import MIN_SHARE, LossContext, exposed_without_stragglers
from perfkit.engine.losses.loss import Loss, Rules
from perfkit.engine.whatif.changes import NO_COPIES
from perfkit.records.aggregate import MAJORITY
from perfkit.records.facts import fact

_WAYS: Final[dict[str, str]] = {
    "fills": r"Memset|.*fillBuffer",
    "to_host": r".*(DtoH|DeviceToHost|D2M|D2H)",
    "within_device": r".*(DtoD|DeviceToDevice|D2D)",
    "between_devices": r".*PtoP",
    "from_pinned": r".*(HtoD|HostToDevice|M2D|H2D).*Pinned ->",
    "from_host": r".*(HtoD|HostToDevice|M2D|H2D)",
}
"""Patterns of the names that CUPTI, ROCm's and Intel's tracers give copies; the first that matches counts."""


def copies(context: LossContext) -> Loss | None:
    """Exposed copies."""
    exposed_ns = exposed_without_stragglers(context, "memcpy")
    share = context.share(exposed_ns)
    if share < MIN_SHARE:
        return None
    way = _main_way(context, exposed_ns * context.rank_steps)
    return Loss(
        cause="copies",
        row="memcpy",
        facts=(fact(way),) if way else (),
        evidence={"exposed_share": share, "memcpy_ns": exposed_ns},
        remedy=(fact(_remedy(context, way)),),
        per_step_ns=exposed_ns,
        change=NO_COPIES,
    )


def _main_way(context: LossContext, exposed_ns: float) -> str | None:
    """Return the way that most of the exposed copies go; None if none surely has most, or their names do not tell.

    How much of each way is exposed is unknown, but of all others together no more than the time that they take.

    Args:
        context: the run.
        exposed_ns: exposed time of all copies, summed over ranks and steps.
    """
    spent: Counter[str] = Counter()
    rows = [row for rank in context.run.ranks for row in rank.operators if row.category == "memcpy"]
    for row in rows:
        if way := next((way for way, pattern in _WAYS.items() if re.match(pattern, row.name)), None):
            spent[way] += row.total_ns
    least_ns = sum(row.total_ns for row in rows) - MAJORITY * exposed_ns
    return next((way for way, spent_ns in spent.most_common(1) if spent_ns > least_ns), None)


def _remedy(context: LossContext, way: str | None) -> str:
    if way is not None and way != "from_host":
        return way
    return "pin_memory" if context.option("pin_memory") is False else way or "find_copies"


LOSSES: Final[Rules] = {"copies": copies}
