"""Insight rule for exposed copies: what helps depends on where they go."""

import re
from collections import Counter
from typing import Final, NamedTuple

from perfkit.insights.rule import InsightDraft, Rule
from perfkit.insights.run_context import RunContext, besides_stragglers, exposed_without_stragglers
from perfkit.util.formatting import duration, whole_percent

_MIN_SHARE: Final = 0.05
"""Smallest share of the step that is reported."""
_MAJORITY: Final = 0.5
"""Share of exposed copies from which one way to copy is named."""


class _Way(NamedTuple):
    pattern: str
    """Of the names that CUPTI, ROCm's and Intel's tracers give such copies."""
    words: str
    advice: str


_AHEAD: Final = "copy ahead, asynchronously and from pinned memory"
_WAYS: Final = (
    _Way(
        r"Memset|.*fillBuffer",
        "fills of memory",
        "find what fills memory on the device: tensors of zeros that are overwritten, zero_grad(set_to_none=False)",
    ),
    _Way(
        r".*(DtoH|DeviceToHost|D2M|D2H)",
        "copies to the host",
        "read results back less often, or with non_blocking=True into pinned memory, and use them later",
    ),
    _Way(
        r".*(DtoD|DeviceToDevice|D2D)",
        "copies within the device",
        "find what copies tensors on the device: contiguous(), clone(), cat, changes of layout or type",
    ),
    _Way(
        r".*PtoP",
        "copies between devices",
        "keep tensors on the device that uses them, or copy on another stream while something else is computed",
    ),
    _Way(
        r".*(HtoD|HostToDevice|M2D|H2D).*Pinned ->",
        "copies from the host's pinned memory",
        "copy the next batch on another stream while this one is computed, or copy less: smaller types, transforms on "
        "the device",
    ),
    _Way(r".*(HtoD|HostToDevice|M2D|H2D)", "copies from the host", _AHEAD),
)
"""The first that matches counts."""


def _copies(context: RunContext) -> InsightDraft | None:
    exposed_ns = exposed_without_stragglers(context, "memcpy")
    if context.share(exposed_ns) < _MIN_SHARE:
        return None
    way = _main_way(context, exposed_ns * context.rank_steps)
    most = f", most of it {way.words}" if way else ""
    return InsightDraft(
        f"exposed copies take {whole_percent(context.share(exposed_ns))} of the step ({duration(exposed_ns)}"
        f"{besides_stragglers(context, 'memcpy')}){most}",
        {"exposed_share": context.share(exposed_ns), "memcpy_ns": exposed_ns},
        _advice(context, way),
        exposed_ns,
    )


def _main_way(context: RunContext, exposed_ns: float) -> _Way | None:
    """Return the way that most of the exposed copies go; None if none surely has most, or their names do not tell.

    How much of each way is exposed is unknown, but of all others together no more than the time that they take.

    Args:
        context: the run.
        exposed_ns: exposed time of all copies, summed over ranks and steps.
    """
    spent: Counter[_Way] = Counter()
    rows = [row for rank in context.run.ranks for row in rank.operators if row.category == "memcpy"]
    for row in rows:
        if way := next((one for one in _WAYS if re.match(one.pattern, row.name)), None):
            spent[way] += row.total_ns
    least_ns = sum(row.total_ns for row in rows) - _MAJORITY * exposed_ns
    return next((way for way, spent_ns in spent.most_common(1) if spent_ns > least_ns), None)


def _advice(context: RunContext, way: _Way | None) -> str:
    if way is not None and way.advice != _AHEAD:
        return way.advice
    if context.option("pin_memory") is False:
        return "use --pin-memory"
    return _AHEAD if way else "find what is copied, and copy it ahead, on another stream, or not at all"


COPIES: Final = Rule("copies", _copies)
