"""What a run's idle time goes to, and what to do about it."""

import re
from collections import defaultdict
from collections.abc import Callable
from typing import Final, NamedTuple

from perfkit.analysis.per_rank.runtime_calls import accelerator_of, call_patterns
from perfkit.insights.dimension_advice import is_whole_model
from perfkit.insights.run_context import RunContext
from perfkit.phases import PASS_NAMES, PHASE_WORDS, PREFIX, annotation
from perfkit.schema.aggregate import OTHER_DETAILS, merge_idle
from perfkit.schema.per_rank.idle import (
    CAUSE_WORDS,
    CAUSES,
    IN_GRAPH,
    NO_LAUNCH,
    NOTHING_RECORDED,
    QUEUED_FOR_ANOTHER,
    QUEUED_FOR_NOTHING,
    SILENT_THREAD,
    Cause,
    IdleCause,
    IdleTime,
)
from perfkit.util.formatting import duration, escape_unprintable, figures, format_percent
from perfkit.whatif.changes import NO_SYNCHRONISATION, no_idle

_NAMED_SHARE: Final = 0.25
"""Share of a cause from which its largest part is named."""
_MAJORITY: Final = 0.5
_OPTIMIZER: Final = "Optimizer.step#"


class Remedy(NamedTuple):
    """What to do about a cause."""

    text: str
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
        """Its largest part."""
        return self.rows[0]

    @property
    def total_ns(self) -> int:
        """Over all steps and ranks."""
        return sum(row.total_ns for row in self.rows)

    def is_named(self) -> bool:
        """Return whether its largest part is so large that it stands for the cause."""
        return self.largest.detail != OTHER_DETAILS and self.largest.total_ns >= _NAMED_SHARE * self.total_ns

    def is_program(self) -> bool:
        """Return whether its largest part is known to be no data loading: a function, operator, call or pass."""
        detail = self.largest.detail
        is_call = detail.startswith(("aten::", *PASS_NAMES)) or call_patterns().any_call.match(detail) is not None
        return self.is_named() and (self.idle.has_python_frames or is_call) and detail not in _PHRASES


def largest_cause(context: RunContext) -> IdlePart | None:
    """Return the largest cause of idle time over all ranks; None without any."""
    # A trace without steps counts as one, start-up included, and is in no mean step.
    ranks = [rank for rank in context.run.ranks if any(step.step is not None for step in rank.steps)]
    if any(step.step is None for rank in ranks for step in rank.steps):
        return None
    idle = merge_idle(ranks)
    if not idle.causes:
        return None
    total_ns = {cause: sum(row.total_ns for row in idle.causes if row.cause == cause) for cause in CAUSES}
    cause = max(CAUSES, key=lambda name: total_ns[name])
    rows = [row for row in idle.causes if row.cause == cause]
    return IdlePart(cause, total_ns[cause] / context.rank_steps, rows, context.rank_steps, idle)


def describe(part: IdlePart, idle_ns: float, beyond: str = "most of all idle time", phase: str | None = None) -> str:
    """Return what the cause takes per step, and what of it is largest, as the end of a sentence.

    Args:
        part: the largest cause.
        idle_ns: idle time per step that the sentence speaks of; less than the causes' if some of theirs is excluded.
        beyond: what the cause takes if that is more.
        phase: phase that the sentence has already, and that is not repeated.
    """
    takes = f"{duration(part.ns)} of it" if part.ns <= idle_ns else beyond
    whole = f"{takes} is {CAUSE_WORDS[part.cause]}"
    if part.cause == "launch_bound" and part.idle.kernels:
        share = format_percent(part.idle.short_kernels / part.idle.kernels)
        whole += f" ({share} of the kernels run for less than 5 µs)"
    if not part.is_named():
        return f"{whole}, in many places{_largest_context(part)}"
    row, steps = part.largest, part.steps
    if row.detail in _PHRASES:
        return f"{whole}: {row.detail.removeprefix('queued ')}"  # the cause has the word
    if phase is not None and row.detail == PREFIX + phase:
        return whole
    where = f" in {escape_unprintable(row.context)}" if row.context else ""
    takes = f"{duration(row.total_ns / steps)} per step"
    # Not how often it was called: calls in a row are one pause, and short ones count for their caller.
    often = f", in {figures(row.count / steps)} pauses" if row.count > steps else ""
    most = "most of that" if row.total_ns >= _MAJORITY * part.total_ns else "the largest part"
    return f"{whole}, {most} {_place(row.detail)}{where} ({takes}{often})"


def _largest_context(part: IdlePart) -> str:
    """Return in which annotation most of many small parts are; empty if none has a large share of them."""
    total_ns: dict[str, int] = defaultdict(int)
    for row in part.rows:
        if row.context:
            total_ns[row.context] += row.total_ns
    largest = max(total_ns, key=lambda name: total_ns[name], default="")
    if not largest or total_ns[largest] < _NAMED_SHARE * part.total_ns:
        return ""
    where = _PHASE_NAMES.get(largest) or escape_unprintable(largest)
    most = "most of that" if total_ns[largest] >= _MAJORITY * part.total_ns else "the largest part"
    return f", {most} in {where} ({duration(total_ns[largest] / part.steps)} per step)"


def _place(detail: str) -> str:
    return f"in {_PHASE_NAMES[detail]}" if detail in _PHASE_NAMES else escape_unprintable(detail)


_PHRASES: Final = (NO_LAUNCH, NOTHING_RECORDED, SILENT_THREAD, QUEUED_FOR_NOTHING, IN_GRAPH)


def evidence(part: IdlePart) -> dict[str, float]:
    """Return the figures that the sentence rests on."""
    figures = {"cause_ns": part.ns, "largest_ns": part.largest.total_ns / part.steps}
    if part.cause == "launch_bound" and part.idle.kernels:
        figures["short_kernels_share"] = part.idle.short_kernels / part.idle.kernels
    if part.cause == "synchronisation":
        figures["begun_in_synchronisation_ns"] = part.idle.begun_in_synchronisation_ns / part.steps
    return figures


def saving_ns(part: IdlePart) -> float:
    """Return what could be saved per step: the time of what the remedy is about.

    Without a synchronisation, the whole of the gaps that it begins: the host would have the next work ready.
    """
    if part.cause in ("host_work", "not_running") and part.is_named():
        return part.largest.total_ns / part.steps
    if part.cause != "synchronisation":
        return part.ns
    return max(part.ns, part.idle.begun_in_synchronisation_ns / part.steps)


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
    return no_idle(part.largest.detail if named else part.cause)


def remedy(part: IdlePart, context: RunContext) -> Remedy:
    """Return what to do about the cause."""
    return _REMEDIES[part.cause](part, context)


def _synchronise_less(part: IdlePart, _context: RunContext) -> Remedy:
    name = part.largest.detail
    is_copy = re.match(r"aten::(to|_to_copy|copy_)$", name) or call_patterns().copying.match(name)
    if part.is_named() and is_copy:
        return Remedy("copy from pinned memory with non_blocking=True, and read results back only in some steps")
    return Remedy(
        "do not wait for the device in every step: read values (.item(), .cpu(), print) only in some, or later"
    )


def _launch_less(part: IdlePart, context: RunContext) -> Remedy:
    in_optimizer = sum(row.total_ns for row in part.rows if (row.context or row.detail).startswith(_OPTIMIZER))
    if in_optimizer > _MAJORITY * part.total_ns:
        return Remedy("use a fused optimizer (fused=True): it updates all parameters in a few launches")
    return Remedy(f"{fewer_launches(context)}: fewer launches for the same work")


def fewer_launches(context: RunContext) -> str:
    """Return what makes fewer launches do the same work, of what the run does not do yet."""
    larger = [] if context.is_memory_full else ["a larger batch"]
    # perfkit refuses to compile a model that is split or sharded.
    can_compile = context.option("compile") is False
    if is_whole_model(context) and can_compile:
        return f"use {', or '.join(['--compile', *larger])}"
    more = [] if context.is_compiled or can_compile else ["torch.compile"]
    graphs = "CUDA graphs for more of the step" if context.has("graphs_hide_operators") else "CUDA graphs"
    *first, last = [*larger, *more, graphs]
    return f"use {', '.join(first)}{' or ' if first else ''}{last}"


_FUNCTION: Final = r".*\.py\(\d+\): |<built-in "
"""A Python function. An annotation covers anything."""
_PHASE_NAMES: Final = {annotation(phase): words for phase, words in PHASE_WORDS.items()}

_OPERATOR: Final = "aten::"

_KNOWN_WORK: Final[tuple[tuple[str, str], ...]] = (
    (
        r"<built-in (function|method) collect\b",
        "collect garbage between steps, or rarely (gc.disable, gc.freeze)",
    ),
    (
        r"torch/serialization\.py\(\d+\): .*save|torch/distributed/checkpoint/.*save|.*save_checkpoint",
        "save less often, or while training goes on (torch.distributed.checkpoint.async_save)",
    ),
    (r"<built-in (function print|method (write|flush) )|logging/__init__\.py", "print and log less often"),
    (_OPERATOR, "check what this operator works on: tensors on the CPU, or many small ones"),
)
"""What host work is called, and what to do about it; the first match counts."""


def _work_less(part: IdlePart, context: RunContext) -> Remedy:
    row = part.largest
    if not part.is_named():
        return Remedy(f"find what the host does between launches{_stacks(part.idle, context)}", only_finds_out=True)
    if call_patterns().launching.match(row.detail):
        return Remedy("record more warm-up steps: a first launch loads the kernel's code")
    for pattern, advice in _KNOWN_WORK:
        if re.match(pattern, row.detail):
            return Remedy(_unless_first_call(part, context) + advice)
    stacks = _stacks(part.idle, context)
    if re.match(_FUNCTION, row.detail):
        function = escape_unprintable(row.detail)
        return Remedy(f"speed up {function}, do it less often, or in another thread or process{stacks}")
    within = _PHASE_NAMES.get(row.detail) or escape_unprintable(row.detail)
    return Remedy(f"find what the host does between the operators of {within}{stacks}", only_finds_out=True)


def _unless_first_call(part: IdlePart, context: RunContext) -> str:
    """Return what to do first about an operator that may have been called once, and then sets up what it needs."""
    row = part.largest
    ranks = part.steps / context.recorded_steps
    once = row.count <= ranks and (row.count < part.steps or context.recorded_steps == 1)
    first = "record more warm-up steps if it is the operator's first call; else "
    return first if row.detail.startswith(_OPERATOR) and once else ""


def _stacks(idle: IdleTime, context: RunContext) -> str:
    if idle.has_python_frames:
        return ""
    how = "--with-stack" if context.option("with_stack") is not None else "with_stack=True"
    return f"; record Python functions to see which ({how})"


def _allocate_less(part: IdlePart, _context: RunContext) -> Remedy:
    names = [row.detail for row in part.rows]
    if not any("Free" in name for name in names):
        return Remedy("record more warm-up steps: the allocator keeps what it once got from the device")
    device = accelerator_of(names[0])
    reason = "the allocator gives memory back to get other"
    if device is None or device.allocator_variable is None:
        return Remedy(f"use less memory: {reason}")
    return Remedy(f"use less memory, or {device.allocator_variable}=expandable_segments:True: {reason}")


def _compile_before(_part: IdlePart, _context: RunContext) -> Remedy:
    return Remedy("record more warm-up steps; if it goes on, find what recompiles (TORCH_LOGS=recompiles)")


def _wait_less_on_device(part: IdlePart, _context: RunContext) -> Remedy:
    if part.largest.detail == QUEUED_FOR_NOTHING and part.is_named():
        return Remedy("check what else uses the device, and whether the trace lacks kernels", only_finds_out=True)
    if part.is_named() and part.largest.detail == QUEUED_FOR_ANOTHER:
        return Remedy("check whether it must wait for the other stream's work")
    return Remedy("use fewer, larger kernels")


def _run_more(part: IdlePart, _context: RunContext) -> Remedy:
    row = part.largest
    if not part.is_named() or row.context is None:
        return Remedy("find what the thread that trains waits for", only_finds_out=True)
    return Remedy(f"find what {escape_unprintable(row.context)} waits for, or do it in another thread")


def _profile_less(_part: IdlePart, _context: RunContext) -> Remedy:
    return Remedy("record less (no stacks, no shapes), or judge by steps without the profiler")


def _record_more(part: IdlePart, context: RunContext) -> Remedy:
    if part.largest.detail == NO_LAUNCH:
        return Remedy(
            "record the host too (ProfilerActivity.CPU): without launches nothing tells what the device waited for",
            only_finds_out=True,
        )
    return Remedy("annotate the program (record_function)" + _stacks(part.idle, context), only_finds_out=True)


_REMEDIES: Final[dict[Cause, Callable[[IdlePart, RunContext], Remedy]]] = {
    "synchronisation": _synchronise_less,
    "launch_bound": _launch_less,
    "host_work": _work_less,
    "allocation": _allocate_less,
    "compilation": _compile_before,
    "dependency": _wait_less_on_device,
    "not_running": _run_more,
    "profiler": _profile_less,
    "unknown": _record_more,
}
