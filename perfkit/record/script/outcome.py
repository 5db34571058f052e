"""The one line at the end of a recorded script: what was recorded and where, or why nothing was."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from perfkit.base.formatting import shell_word
from perfkit.options.script import ScriptConfig
from perfkit.record.endings import TerminatedError, exit_cause
from perfkit.record.lifecycle.end_answer import hangs_in_words, has_small_traces, print_answer
from perfkit.record.lifecycle.launched_runs import FirstFailure, write_first_failure
from perfkit.record.lifecycle.local_launch import is_child
from perfkit.record.messages import one_line, print_error, print_status
from perfkit.record.script.hang_watch import Cause
from perfkit.record.script.hooks.seen_optimizers import SeenOptimizer
from perfkit.record.script.step_counter import StepCounter
from perfkit.storage.run_folder import MANIFEST_NAME, list_files

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


_STDERR: Final = 2


class OutcomeReporter:
    """Prints how the recording of a script has ended."""

    def __init__(self, script: str, config: ScriptConfig) -> None:
        self._script = script
        self._config = config
        self.prints_answer = config.report
        """Whether it prints the answer of the analysis, which takes time, instead of the command."""
        self.explained = False
        """Whether the user has been told why no more is recorded: then an empty recording needs no other line."""

    def report_end(self, folder: Path, what: str, *, failed: bool = False) -> None:
        """Print where the traces are, or why there are none; `what` describes how the script has ended.

        After a failure without the answer of their analysis, which would push the script's own error off the screen.
        """
        if _has_trace(folder):
            self._report_traces(folder, what, with_answer=self.prints_answer and not failed)
        elif not self.explained:
            self._print_hangs(folder)
            print_status(f"{self._script}: {what}{self._why_no_trace(folder)}")

    def _why_no_trace(self, folder: Path) -> str:
        schedule = self._config.plan
        if schedule is None:
            return f"; their times: perfkit analyze {shell_word(self._as_given(folder))}"
        needed = schedule.first_recorded + 1
        return f", and no trace: it takes {needed} steps with --schedule {self._config.schedule} ({folder})"

    def _report_traces(self, folder: Path, what: str, *, with_answer: bool) -> None:
        shown = self._as_given(folder)
        how = f"to see where the time went: perfkit analyze {shell_word(shown)}"
        if not (with_answer and has_small_traces(folder)):
            self._print_hangs(folder)
            print_status(f"{self._script}: {what}; {how}")
            return
        print_status(f"{self._script}: {what}, in {shown}")
        if not print_answer(shown, _STDERR):
            print_status(how)

    def _print_hangs(self, folder: Path) -> None:
        for line in hangs_in_words(folder):
            print_status(f"{self._script}: {line}")

    def _as_given(self, folder: Path) -> Path:
        """Return the folder as `--trace-dir` names it, unless the script has changed the working directory since."""
        given = Path(self._config.trace_dir) / folder.name
        return given if given.resolve() == folder else folder

    def report_failure(self, folder: Path, rank: int, world_size: int, steps: int, cause: Cause) -> None:
        """Print why the script failed on `rank`, which is the first rank that did."""
        error = cause.error
        # An interrupt or SIGTERM reaches all ranks: it is not a failure of this one.
        is_signal = isinstance(error, (KeyboardInterrupt, TerminatedError))
        what = one_line(exit_cause(error))
        if world_size == 1 or is_signal:
            why = "" if is_signal else f": {what.rstrip('.')}"
            self.report_end(folder, f"failed after {steps} steps{why}", failed=True)
            return
        line = f"rank {rank}: {what} ({folder / MANIFEST_NAME}), after {steps} steps"
        if _has_trace(folder):
            line += f"; what was recorded before: perfkit analyze {shell_word(folder)}"
        if is_child():  # the parent prints it, after the output of the other ranks
            write_first_failure(FirstFailure(rank, line, cause.diagnosis), first=True)
        else:
            print_error(line)

    def report_nothing_recorded(self, reason: NoSteps, *, one_of_several: bool) -> None:
        """Print why the recording never began; where this is rank 0 of several, others may have been recorded."""
        if reason.missed:
            print_error(reason.text)
        else:
            print_status(f"{self._script}: {'rank 0: ' if one_of_several else ''}{reason.text}")

    def report_own_profiler(self, *, has_begun: bool) -> None:
        what = "records no more steps" if has_begun else "does not record it beside that"
        print_status(f"{self._script} profiles itself with torch.profiler: perfkit {what}")

    def report_error(self, error: BaseException) -> None:
        print_error(f"{one_line(error)}: {self._script} is not recorded any further")

    def report_incomplete(self, error: BaseException) -> None:
        print_error(f"{one_line(error)}: what is recorded of {self._script} is incomplete")


def _has_trace(folder: Path) -> bool:
    return any(file.kind == "trace" for file in list_files(folder))
