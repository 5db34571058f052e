"""What a run's idle time goes to, and what to do about it."""

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from perfkit.engine.kinds.runtime_calls import accelerator_of, call_patterns
from perfkit.engine.ledger.code import NAMED_SHARE
from perfkit.engine.losses.context import LossContext
from perfkit.engine.losses.dimensions import is_whole_model
from perfkit.engine.whatif.changes import NO_SYNCHRONISATION, no_idle
from perfkit.python_functions import is_own
from perfkit.records.aggregate import MAJORITY, OTHER_DETAILS
from perfkit.records.facts import Fact, Facts, fact
from perfkit.records.per_rank.idle import (
    NO_LAUNCH,
    NOTHING_RECORDED,
    QUEUED_FOR_ANOTHER,
    QUEUED_FOR_NOTHING,
    Cause,
    IdleCause,
    IdleTime,
)

_OPTIMIZER: Final = "Optimizer.step#"


class Remedy(NamedTuple):
    """What to do about a cause."""

    facts: Facts
    only_finds_out: bool = False
    """Whether it only leads to the reason, and saves nothing by itself."""


class IdlePart(NamedTuple):
    """The largest cause of idle time: of a run's, or of what late ranks have more of than the others."""

    cause: Cause
    ns: float
    """Per step and rank."""
    rows: list[IdleCause]
    """Its parts, largest first."""
    steps: int
    """Steps of ranks that the parts are summed over."""
    idle: IdleTime
    """All causes, over those ranks."""

    @property
    def largest(self) -> IdleCause:
        return self.rows[0]

    @property
    def total_ns(self) -> int:
        """Over all steps and ranks."""
        return sum(row.total_ns for row in self.rows)

    @property
    def name(self) -> str:
        """What its largest part is in."""
        return named_by(self.largest)

    @property
    def named_ns(self) -> int:
        """How much is in that."""
        return sum(row.total_ns for row in self.rows if named_by(row) == self.name)

    def is_named(self) -> bool:
        """Return whether what its largest part is in has so much of it that it stands for the cause."""
        return self.largest.detail != OTHER_DETAILS and self.named_ns >= NAMED_SHARE * self.total_ns


def named_by(row: IdleCause) -> str:
    """Return what a part of idle time is in: the program's function, also if it called another one, or what ran."""
    return row.context if row.context and is_own(row.context) and re.match(_FUNCTION, row.detail) else row.detail


def evidence(part: IdlePart) -> dict[str, float]:
    """Return the figures that the sentence rests on."""
    figures = {"cause_ns": part.ns, "largest_ns": part.named_ns / part.steps}
    if part.cause == "launch_bound" and part.idle.kernels:
        figures["short_kernels_share"] = part.idle.short_kernels / part.idle.kernels
    return figures


def saving_ns(part: IdlePart, row_ns: int) -> float:
    """Return what could be saved per step of a row of the ledger: the time of what the remedy is about."""
    if part.cause in ("host_work", "not_running") and part.is_named():
        return min(row_ns, part.named_ns / part.steps)
    return row_ns


def change_of(part: IdlePart) -> str | None:
    """Return the change that the remedy is about, as `perfkit whatif` takes it; None if none is like it.

    Fewer launches spare the operators that issue them, which are work of the host and no idle time of it: without
    them there would be no pauses, but a replay without the pauses keeps them.
    """
    if part.cause == "launch_bound":
        return None
    if part.cause == "synchronisation":
        return NO_SYNCHRONISATION
    named = part.cause in ("host_work", "not_running") and part.is_named()
    return no_idle(part.name if named else part.cause)


def remedy(part: IdlePart, context: LossContext) -> Remedy:
    find = _REMEDIES.get(part.cause)
    return find(part, context) if find else Remedy((fact(f"less_{part.cause}"),))


def _synchronise_less(part: IdlePart, _context: LossContext) -> Remedy:
    name = part.largest.detail
    is_copy = re.match(r"aten::(to|_to_copy|copy_)$", name) or call_patterns().copying.match(name)
    return Remedy((fact("copy_asynchronously" if part.is_named() and is_copy else "synchronise_less_often"),))


def _launch_less(part: IdlePart, context: LossContext) -> Remedy:
    in_optimizer = sum(row.total_ns for row in part.rows if (row.context or row.detail).startswith(_OPTIMIZER))
    if in_optimizer > MAJORITY * part.total_ns:
        return Remedy((fact("fused_optimizer"),))
    return Remedy((fewer_launches(context),))


def fewer_launches(context: LossContext) -> Fact:
    """Return what makes fewer launches do the same work, of what the run does not do yet."""
    larger = [] if context.is_memory_full else ["larger_batch"]
    # perfkit refuses to compile a model that is split or sharded.
    can_compile = context.option("compile") is False
    if is_whole_model(context) and can_compile:
        return fact("fewer_launches", ways=["compile_option", *larger])
    more = [] if context.is_compiled or can_compile else ["torch_compile"]
    graphs = "more_graphs" if context.has("graphs_hide_operators") else "graphs"
    return fact("fewer_launches", ways=[*larger, *more, graphs])


_FUNCTION: Final = r".*\.py\(\d+\): |<built-in "
"""A Python function. An annotation covers anything."""
_OPERATOR: Final = "aten::"

_KNOWN_WORK: Final[dict[str, str]] = {
    "collect_garbage": r"<built-in (function|method) collect\b",
    "save_less_often": r"torch/serialization\.py\(\d+\): .*save|torch/distributed/checkpoint/.*save|.*save_checkpoint",
    "print_less_often": r"<built-in (function print|method (write|flush) )|logging/__init__\.py",
    "check_operator": _OPERATOR,
}
"""What host work is called, by what to do about it; the first match counts."""


def _work_less(part: IdlePart, context: LossContext) -> Remedy:
    row, stacks = part.largest, _stacks(part.idle, context)
    if not part.is_named():
        return Remedy((fact("find_host_work"), *stacks), only_finds_out=True)
    if call_patterns().launching.match(row.detail):
        return Remedy((fact("warm_up_launches"),))
    if known := next((name for name, pattern in _KNOWN_WORK.items() if re.match(pattern, row.detail)), None):
        return Remedy((*_unless_first_call(part, context), fact(known)))
    if row.code or re.match(_FUNCTION, row.detail):
        return Remedy((fact("speed_up_function", function=row.code or row.detail),))
    return Remedy((fact("find_between_operators"), *stacks), only_finds_out=True)


def _unless_first_call(part: IdlePart, context: LossContext) -> Facts:
    """Return what to do first about an operator that may have been called once, and then sets up what it needs."""
    row = part.largest
    ranks = part.steps / context.recorded_steps
    once = row.count <= ranks and (row.count < part.steps or context.recorded_steps == 1)
    return (fact("if_first_call"),) if row.detail.startswith(_OPERATOR) and once else ()


def _stacks(idle: IdleTime, context: LossContext) -> Facts:
    return () if idle.has_python_frames else (fact("record_stacks", own=context.option("with_stack") is not None),)


_GIVES_BACK: Final = "empty_cache"


def _allocate_less(part: IdlePart, _context: LossContext) -> Remedy:
    names = [row.detail for row in part.rows]
    if not any("Free" in name for name in names):
        return Remedy((fact("warm_up_allocator"),))
    given_back = [row.total_ns for row in part.rows if row.code and (row.code.call or "").endswith(_GIVES_BACK)]
    if sum(given_back) >= NAMED_SHARE * part.total_ns:
        return Remedy((fact("keep_cached_memory", call=_GIVES_BACK),))
    device = accelerator_of(names[0])
    variable = device.allocator_variable if device is not None else None
    how = (fact("expandable_segments", variable=variable),) if variable else ()
    return Remedy((fact("less_memory", how=how),))


def _wait_less_on_device(part: IdlePart, _context: LossContext) -> Remedy:
    if part.largest.detail == QUEUED_FOR_NOTHING and part.is_named():
        return Remedy((fact("check_device"),), only_finds_out=True)
    is_stream = part.is_named() and part.largest.detail == QUEUED_FOR_ANOTHER
    return Remedy((fact("check_stream" if is_stream else "larger_kernels"),))


def _run_more(part: IdlePart, _context: LossContext) -> Remedy:
    row = part.largest
    name = row.code or row.context
    if not part.is_named() or name is None:
        return Remedy((fact("find_thread_wait"),), only_finds_out=True)
    return Remedy((fact("find_wait_of", name=name),))


def _record_more(part: IdlePart, context: LossContext) -> Remedy:
    if part.largest.detail == NO_LAUNCH:
        return Remedy((fact("record_host"),), only_finds_out=True)
    light = [rank.rank for rank in context.run.ranks if rank.light and rank.rank is not None]
    if light and part.is_named() and part.largest.detail == NOTHING_RECORDED:
        return Remedy((fact("record_fully", rank=light[0]),), only_finds_out=True)
    return Remedy((fact("annotate"), *_stacks(part.idle, context)), only_finds_out=True)


_REMEDIES: Final[dict[Cause, Callable[[IdlePart, LossContext], Remedy]]] = {
    "synchronisation": _synchronise_less,
    "launch_bound": _launch_less,
    "host_work": _work_less,
    "allocation": _allocate_less,
    "dependency": _wait_less_on_device,
    "not_running": _run_more,
    "unknown": _record_more,
}
"""Of the causes whose remedy depends on the run."""
