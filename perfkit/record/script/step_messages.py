"""A script's closing line about its steps: which ones were counted, or why there are none."""

import sys
from collections.abc import Iterable
from typing import Final, NamedTuple

from perfkit.options.script import ScriptConfig
from perfkit.record.script.hooks.seen_optimizers import SeenOptimizer
from perfkit.record.script.step_counter import StepCounter

_CHILDREN: Final = (
    " (of the processes that a script starts, those of multiprocessing and those that run it again are recorded: start "
    "other ranks with mpiexec, torchrun or -n)"
)
_START_METHODS: Final = tuple(f"multiprocessing.popen_{how}" for how in ("fork", "spawn_posix", "forkserver"))
"""Modules that multiprocessing imports when it starts its first process."""
_MOST_LISTED: Final = 5


class NoSteps(NamedTuple):
    """Why a script had no step."""

    text: str
    missed: bool
    """Whether `--step-on` is the reason."""


def describe_steps(counter: StepCounter) -> str:
    """Return the number of steps, and what was taken for one where that is not obvious."""
    text = count_steps(counter.count)
    if counter.skipped:
        text += f" ({counter.skipped} without an update, which a GradScaler skipped)"
    by_ender = _steps_by_ender(counter.enders)
    if len(by_ender) > 1:
        listed = ", ".join(f"{steps} of {name}" for name, steps in list(by_ender.items())[:_MOST_LISTED])
        text += f": {listed}{', …' if len(by_ender) > _MOST_LISTED else ''}"
    others, counted = counter.others(), counter.counted
    if counted is None or not others:
        return text
    listed = ", ".join(
        f"{_distinct_name(seen, counter.enders) or f'another {seen.class_name}'} made {seen.steps}"
        for seen in others[:_MOST_LISTED]
    )
    choice = next((name for seen in others if (name := _distinct_name(seen, counter.seen.everyone()))), None)
    own = "" if len(by_ender) > 1 else f" of {_distinct_name(counted, others) or f'one {counted.class_name}'}"
    return f"{text}{own} ({listed}{f': --step-on {choice} counts those' if choice else ''})"


def _steps_by_ender(enders: list[SeenOptimizer]) -> dict[str, int]:
    """Return how many steps were ended by the optimizers of each class, of one class by variable."""
    by_class = len({seen.class_name for seen in enders}) > 1 or not all(seen.names for seen in enders)
    steps: dict[str, int] = {}
    for seen in enders:
        name = seen.class_name if by_class else seen.names[0]
        steps[name] = steps.get(name, 0) + seen.ended
    return steps


def count_steps(count: int) -> str:
    return f"{count} step" if count == 1 else f"{count} steps"


def _distinct_name(seen: SeenOptimizer, others: Iterable[SeenOptimizer]) -> str | None:
    """Return what an optimizer is called and none of the others is: a variable, else its class."""
    rest = [other for other in others if other is not seen]
    names = (*seen.names, seen.class_name)
    return next((name for name in names if not any(other.is_called(name) for other in rest)), None)


def explain_no_steps(config: ScriptConfig, counter: StepCounter, modules: list[str]) -> NoSteps:
    rule, by_class = config.step_rule, counter.seen.by_class()
    stepped = ", ".join(f"{kind} ({count_steps(steps)})" for kind, steps in by_class.items())
    name = rule.name if rule.kind == "optimizer" else None
    if name is not None and by_class and not any(seen.is_called(name) for seen in counter.seen.all):
        text = f"--step-on {name}: no such optimizer has stepped; those that have: {stepped}"
        return NoSteps(text, missed=True)
    if rule.kind == "forward" and rule.name is not None and modules:
        text = f"--step-on {config.step_on}: no such module was called; those that were: {', '.join(modules)}"
        return NoSteps(text, missed=True)
    others = "for inference: --step-on forward; or call perfkit.step() after each step"
    if counter.backward_passes:
        others = f"{counter.backward_passes} backward passes ran: --step-on backward counts those"
    return NoSteps(f"{_what_is_missing(counter, rule.kind, stepped)}; {others}", missed=False)


def _what_is_missing(counter: StepCounter, kind: str, stepped: str) -> str:
    if kind == "optimizer" and stepped:
        return f"nothing was recorded: no gradients were computed before the steps of {stepped}"
    what = {
        "optimizer": "no step of an optimizer of torch was seen in this process",
        "forward": "no such module was called in this process",
        "backward": "no backward pass was seen in this process",
        "marker": "perfkit.step() was not called in this process",
    }[kind]
    children = any(name in sys.modules for name in _START_METHODS) and not counter.backward_passes
    return f"{what}: nothing of it was recorded{_CHILDREN if children else ''}"
