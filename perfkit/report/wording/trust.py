"""The line that says what makes an answer doubtful, and what would settle it."""

from collections.abc import Sequence
from typing import Final

from perfkit.base.formatting import escape_unprintable
from perfkit.records.facts import Words
from perfkit.records.run import Doubt

_STEPS_OF: Final[dict[str, str]] = {
    "optimizer": "steps are those of the optimizer",
    "loader": "steps are batches of the loader",
    "trace": "no steps are marked",
}
SENTENCES: Final[Words] = {
    "others_kept_busy": "other processes used {others:.1f} of {cores} cores",
    "record_when_idle": "record on an idle machine",
    "events_missing": "events are missing in {traces} trace{traces:||s}",
    "record_again": "record again",
    "began_apart": "ranks began to record up to {ns:duration} apart",
    "begin_together": "start behind a barrier",
    "ranks_without_trace": "{missing} of {of} ranks {missing:|has|have} no trace",
    "ranks_may_be_missing": "ranks may be missing",
    "analyse_all_traces": "analyse the traces of all ranks",
    "times_contradict": "times of the device contradict its launches",
    "ranks_disagree": "the traces of the ranks contradict each other",
    "steps_unmarked": lambda source: _STEPS_OF[source],
    "mark_steps": "--step-marker REGEX",
    "steps_differ": "the ranks recorded different steps",
    "steps_recorded": "{steps} step{steps:||s} recorded",
    "steps_vary": "steps take {least_ns:duration} to {most_ns:duration}",
    "step_has_error": "the step time has a standard error of {error:percent}",
    "run_longer": "run longer",
    "record_steps": "{own:|--schedule active=|record }{steps}{own:|| steps}",
    "steps_compile": "code was compiled in {steps:|step|steps} {steps:ranges}",
    "skip_them": "record later steps",
    "profiler_takes": "the profiler takes {share:percent} of a recorded step",
    "record_less": "--detail time",
    "long_steps": "{long} unrecorded step{long:||s} of {steps} {long:|takes|take} {share:percent} of the time",
    "recorded_faster": "recorded steps are faster than the others",
    "unknown_kernels": "{share:percent} of kernel time may be communication",
    "declare_kernels": "--kernel-rules",
}
_MOST: Final = 2
_WIDTH: Final = 80


def trust_line(doubts: Sequence[Doubt]) -> str:
    """Return the heaviest doubts with what would settle them, as many of two as fit one line; empty without any."""
    line = ""
    for doubt in doubts[:_MOST]:
        settles = f" ({doubt.remedy})" if doubt.remedy else ""
        longer = f"{line}; {doubt.what}{settles}" if line else f"Trust: {doubt.what}{settles}"
        if line and len(longer) >= _WIDTH:
            break
        line = longer
    return escape_unprintable(line)
