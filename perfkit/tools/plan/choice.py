"""Which layout is the best of those that fit, and the decision in words."""

from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from perfkit.base.formatting import duration, size
from perfkit.records.plan import Plan, PlannedDevice, PlannedLayout

CLOSE: Final = 1.05
"""Predicted times within this ratio are not told apart: the simplest layout wins."""

DIVIDING: Final = ("tp", "pp", "cp", "ep")
"""Dimensions of a mesh that divide more than samples."""

_ORDER: Final = ("ddp", "zero1", "zero2", "zero3", "hsdp", "zero++")

_OFFLOADS: Final = ("none", "optimizer", "parameters", "nvme")

Question = tuple[str, Callable[[PlannedLayout], bool]]


def _is_divided(one: PlannedLayout) -> bool:
    return any(one.mesh.get(name, 1) > 1 for name in DIVIDING)


QUESTIONS: Final[tuple[Question, ...]] = (
    ("Do the training state and the activations fit on one device", lambda one: _is_plain(one, ("ddp",))),
    (
        "Do they fit with the state sharded over data-parallel ranks (ZeRO)",
        lambda one: _is_plain(one, _ORDER[1:]),
    ),
    (
        "Do they fit with recomputed activations",
        lambda one: not _is_divided(one) and one.checkpointing != "none" and one.offload == "none",
    ),
    ("Do they fit with experts distributed over ranks (expert parallel)", lambda one: one.mesh.get("ep", 1) > 1),
    (
        "Do they fit with each layer split over the ranks of a host (tensor parallel)",
        lambda one: one.mesh.get("tp", 1) > 1 and one.mesh.get("pp", 1) == 1,
    ),
    ("Do they fit with each sequence split over ranks (context parallel)", lambda one: one.mesh.get("cp", 1) > 1),
    ("Do they fit with the layers split over ranks (pipeline)", lambda one: one.mesh.get("pp", 1) > 1),
    ("Do they fit with the optimizer state in host memory (ZeRO-Offload)", lambda one: one.offload == "optimizer"),
    ("Do they fit with all state in host memory", lambda one: one.offload == "parameters"),
    ("Do they fit with all state on NVMe (ZeRO-Infinity)", lambda one: one.offload == "nvme"),
)
"""In order; the first answer 'yes' decides."""


def _is_plain(one: PlannedLayout, names: Sequence[str]) -> bool:
    return not _is_divided(one) and one.checkpointing == "none" and one.offload == "none" and one.dp in names


def choose(layouts: Sequence[PlannedLayout], device: PlannedDevice | None) -> tuple[int | None, str]:
    """Return the place of the best layout, and why it is the best or why there is none."""
    if device is None:
        return None, "no device given: use --device or --cluster to see what fits and how long a step takes"
    if device.memory_bytes is None:
        return None, f"the memory of {device.name} is not in the device table"
    fitting = [one for one in layouts if one.fits]
    if not fitting:
        return None, _nothing_fits(layouts)
    best, why = _best([one for one in fitting if one.command is not None] or fitting)
    return list(layouts).index(best), why if best.refused is None else f"{why}; {_refusal(best.refused)}"


def with_layouts(plan: Plan, layouts: list[PlannedLayout]) -> Plan:
    """Return a plan with other figures of its layouts, of which the best is chosen again."""
    best, reason = choose(layouts, plan.device)
    return replace(plan, layouts=layouts, best=best, reason=reason, decision=decide(layouts, plan.device))


def _best(fitting: Sequence[PlannedLayout]) -> tuple[PlannedLayout, str]:
    # What `perfkit run` trains comes before what other programs do.
    simplest = sorted(fitting, key=lambda one: (one.refused is not None, simplicity(one)))
    timed = [(one.step.step_ns, one) for one in simplest if one.step is not None]
    if not timed and simplest[0].offload != "none":
        return simplest[0], _why_offloaded(simplest[0])
    if not timed:
        return simplest[
            0
        ], "the simplest that fits; the device's peak for this precision is unknown, so that no time is predicted"
    fastest_ns, fastest = min(timed, key=lambda pair: pair[0])
    time_ns, best = next(pair for pair in timed if pair[0] <= CLOSE * fastest_ns)
    if best is fastest:
        return (
            best,
            f"the shortest predicted step ({duration(time_ns)}) of the {len(timed)} that fit",
        )
    return best, (
        f"the simplest whose predicted step ({duration(time_ns)}) is within {100 * (CLOSE - 1):.0f} % of the shortest "
        f"({duration(fastest_ns)}: {fastest.described})"
    )


def _refusal(reason: str) -> str:
    return reason if "perfkit run" in reason else f"`perfkit run` refuses it: {reason}"


def _why_offloaded(one: PlannedLayout) -> str:
    memory = one.memory
    outside = f"{size(memory.host_bytes)} of memory" if memory.host_bytes else f"{size(memory.nvme_bytes)} of NVMe"
    return f"the simplest that fits; each host needs {outside} for it, and how long a step takes depends on its links"


def _nothing_fits(layouts: Sequence[PlannedLayout]) -> str:
    unknown = [one for one in layouts if one.fits is None]
    if unknown:
        missing = "--layers, --width and --sequence"
        return f"the state fits with {unknown[0].name}, but activations are not counted: add {missing}"
    return f"nothing fits: {_least(layouts)}: use more ranks, a smaller --batch-size or devices with more memory"


def _least(layouts: Sequence[PlannedLayout]) -> str:
    """Return which layout needs least, how much, and by how much it is too much."""
    on_device = [one for one in layouts if one.short_of == "device"]
    if len(on_device) < len(layouts):
        # What fits on the device lacks memory beside it.
        one = min((one for one in layouts if one.short_of != "device"), key=lambda one: one.over_bytes or 0)
        memory = one.memory
        host = one.short_of == "host"
        needed = f"{size(memory.host_bytes)} of host memory" if host else f"{size(memory.nvme_bytes)} of NVMe"
        return f"{one.described} needs {needed} per host, {size(one.over_bytes)} too much"
    one = min(on_device, key=lambda one: one.memory.needed_bytes)
    return f"{one.described} needs the least, {size(one.memory.needed_bytes)}, which is {size(one.over_bytes)} too much"


def simplicity(one: PlannedLayout) -> tuple[int, int, int, int, int, int]:
    """Return a key that is smaller for what is simpler to run: less outside of the device, fewer dimensions, ...

    ... fewer tiles, no recomputation, less divided.
    """
    dimensions = sum(one.mesh.get(name, 1) > 1 for name in DIVIDING)
    return (
        _OFFLOADS.index(one.offload),
        one.tiles,
        dimensions,
        int(one.checkpointing != "none"),
        one.sequence_parallel + one.loss_parallel,
        _ORDER.index(one.dp),
    )


def decide(layouts: Sequence[PlannedLayout], device: PlannedDevice | None) -> list[str]:
    """Return the questions that lead to a strategy, up to the first 'yes', with the figures that answer them."""
    if device is None or device.memory_bytes is None:
        return []
    lines = []
    for question, belongs in QUESTIONS:
        own = [one for one in layouts if belongs(one)]
        if not own:
            continue
        fitting = sorted((one for one in own if one.fits), key=simplicity)
        if fitting:
            one = fitting[0]
            lines.append(f"{question}? Yes: {one.described} needs {size(one.memory.needed_bytes)}.")
            return lines
        lines.append(f"{question}? {_no(own)}")
    return lines


def _no(layouts: Sequence[PlannedLayout]) -> str:
    least = min(layouts, key=lambda one: one.memory.needed_bytes)
    if least.fits is None:
        return f"Unknown: {least.described} needs {size(least.memory.needed_bytes)} without its activations."
    if least.short_of != "device":
        return f"No: {_least(layouts)}."
    return f"No: {least.described} needs {size(least.memory.needed_bytes)}, {size(least.over_bytes)} too much."
