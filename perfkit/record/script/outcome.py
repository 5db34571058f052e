"""The one line at the end of a recorded script: what was recorded and where, or why nothing was."""

from pathlib import Path
from typing import Final

from perfkit.base.formatting import shell_word
from perfkit.options.script import ScriptConfig
from perfkit.record.endings import TerminatedError, exit_cause
from perfkit.record.lifecycle.end_answer import hangs_in_words, has_small_traces, print_answer
from perfkit.record.lifecycle.launched_runs import FirstFailure, write_first_failure
from perfkit.record.lifecycle.local_launch import is_child
from perfkit.record.messages import one_line, print_error, print_status
from perfkit.record.script.first_cause import Cause
from perfkit.record.script.step_messages import NoSteps
from perfkit.storage.run_folder import MANIFEST_NAME, list_files

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
