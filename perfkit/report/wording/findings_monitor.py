"""Messages about what the monitor logged of a run, and its step time."""

from collections.abc import Sequence
from typing import Final

from perfkit.base.formatting import duration, percent_change, ranges, whole_percent
from perfkit.records.facts import Words
from perfkit.records.per_run.monitor import (
    EarlyEnd,
    LateRank,
    MonitorSummary,
    PeriodicStall,
    SlowStep,
    StepPart,
    StepTimeChange,
)
from perfkit.report.wording.ledger import capital

_PART_WORDS: Final[dict[StepPart, str]] = {
    "data_loading": "waiting for data",
    "forward": "forward passes",
    "backward": "backward passes",
    "optimizer": "the optimizer",
    "pause": "checkpoints, evaluation or logging",
    "collectives": "collectives",
}
_MOST_NAMED: Final = 4
_MOST_ENDS: Final = 16
_NOT_A_NUMBER: Final = "the loss is not a number (NaN or infinite)"


def _step_time_changed(change: StepTimeChange, following: StepTimeChange | None) -> str:
    by = f"{duration(change.before_ns)} to {duration(change.after_ns)}"
    percent = percent_change(change.after_ns / change.before_ns) if change.before_ns else ""
    if change.until_step is not None:
        verb = "rises" if change.after_ns > change.before_ns else "falls"
        between = f"between steps {change.step:,} and {change.until_step:,}"
        return f"{between} the step time {verb} gradually from {by} ({percent}){_where(change.part)}"
    about = "" if change.exact else "about "
    until = "on" if following is None else _until(change, following)
    what = f"from {about}step {change.step:,} {until} a step takes {duration(change.after_ns)} instead of "
    what += f"{duration(change.before_ns)} ({percent})"
    if not change.ranks:
        return what + _where(change.part)
    slower = "slower" if change.after_ns > change.before_ns else "faster"
    return f"{what}: {_names(change.ranks, change.rank_count)} became {slower}{_where(change.part)}"


def _until(change: StepTimeChange, following: StepTimeChange) -> str:
    """Return to which step a change lasts that another follows."""
    about = "" if following.exact else "about "
    return f"to {about}step {max(change.step, following.step - 1):,}"


def _periodic_stalls(stall: PeriodicStall) -> str:
    times = f"{stall.count} times" if stall.count == stall.expected else f"{stall.count} of {stall.expected} times"
    rank = "" if stall.rank is None else f" on rank {stall.rank}"
    where = "" if stall.part is None else f", in {_PART_WORDS[stall.part]}"
    return (
        f"every {_ordinal(stall.period)} step takes {duration(stall.extra_ns)} longer{rank}, from step "
        f"{stall.first_step:,} to step {stall.last_step:,} ({times}{where})"
    )


def _slow_steps(steps: Sequence[SlowStep], count: int) -> str:
    longest = sorted(steps, key=lambda step: -step.wall_ns)[:_MOST_NAMED]
    named = ", ".join(_slow_step(step) for step in sorted(longest, key=lambda step: step.first_step))
    if count == 1:
        return f"one step took more than twice as long as usual: {named}"
    which = "" if count <= _MOST_NAMED else ", the longest of them"
    return f"{count:,} times a step took more than twice as long as usual{which}: {named}"


def _slow_step(step: SlowStep) -> str:
    last = f"-{step.last_step:,}" if step.last_step > step.first_step else ""
    rank = "" if step.rank is None else f" on rank {step.rank}"
    part = "" if step.part is None else f" in {_PART_WORDS[step.part]}"
    times = f"{step.wall_ns / step.usual_ns:.1f}x" if step.usual_ns else duration(step.wall_ns)
    return f"step {step.first_step:,}{last} ({times}{rank}{part})"


def _rank_late_over_run(late: Sequence[LateRank], count: int) -> str:
    named = "; ".join(_late_rank(one) for one in late[:_MOST_NAMED])
    more = count - min(len(late), _MOST_NAMED)
    return named + (f"; {more:,} more ranks too" if more > 1 else "; one more rank too" if more else "")


def _late_rank(late: LateRank) -> str:
    return (
        f"rank {late.rank} is late in {late.late_steps:,} of {late.steps:,} steps, by {duration(late.lag_ns)} in the "
        f"median{_when(late)}{_where(late.part)}"
    )


def _when(late: LateRank) -> str:
    if late.last_step is None:
        return "" if late.first_step is None else f", from step {late.first_step:,} on"
    return f", from step {late.first_step or 0:,} to step {late.last_step:,}"


def _monitor_log_ends_early(ends: Sequence[EarlyEnd], count: int, last_step: int) -> str:
    first = ends[0]
    if count == 1:
        return f"rank {first.rank}'s log ends at step {first.last_step:,} of {last_step:,}"
    ranks = sorted(one.rank for one in ends[:_MOST_ENDS])
    return (
        f"the logs of {_names(ranks, count)} end before step {last_step:,}, the first, of rank {first.rank}, at step "
        f"{first.last_step:,}"
    )


def _names(ranks: Sequence[int], count: int) -> str:
    if count == 1:
        return f"rank {ranks[0]}"
    return f"ranks {ranges(ranks)}" + (f" and {count - len(ranks)} more" if count > len(ranks) else "")


def _where(part: StepPart | None) -> str:
    return "" if part is None else f" (in {_PART_WORDS[part]})"


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{ending}"


def _loss_not_a_number(
    first_step: int, steps: int, lasting: bool, rolled_up: bool, or_before: bool, ranks: Sequence[int]
) -> str:
    about = "about " if rolled_up else ""
    where = f" (first on rank{'s' if len(ranks) > 1 else ''} {ranges(ranks)})" if ranks else ""
    if lasting:
        return f"from {about}step {first_step:,} {'or before ' * or_before}on {_NOT_A_NUMBER}{where}"
    if steps == 1:
        return f"in step {first_step:,} {_NOT_A_NUMBER}{where}"
    return f"in {about}{steps:,} steps, the first of them step {first_step:,}, {_NOT_A_NUMBER}{where}"


def _cut(file: str, logs: int, records: int) -> str:
    more = f" (and {logs - 1} more)" if logs > 1 else ""
    return f"{file}{more}: only the first {records:,} records were read"


def _damaged(file: str, logs: int, records: int) -> str:
    more = f" (and {logs - 1} more)" if logs > 1 else ""
    what = "1 damaged record was" if records == 1 else f"{records:,} damaged records were"
    return f"{file}{more}: {what} left out"


def step_time_of_logs(summary: MonitorSummary) -> str:
    """Return the step time of a run of which there are only logs, in place of a verdict."""
    loading = "" if summary.data_share is None else f", {whole_percent(summary.data_share)} of it data loading"
    takes = f"a step takes {duration(summary.step_ns)}{loading}" if summary.step_ns else "no step's time is known"
    return f"{capital(takes)}; none was profiled."


MONITOR: Final[Words] = {
    "step_time_changed": _step_time_changed,
    "periodic_stalls": _periodic_stalls,
    "slow_steps": _slow_steps,
    "rank_late_over_run": _rank_late_over_run,
    "loss_not_a_number": _loss_not_a_number,
    "monitor_log_ends_early": _monitor_log_ends_early,
    "monitor_log_unread": lambda error, logs: error + (f" (and {logs - 1} more logs)" if logs > 1 else ""),
    "monitor_log_unread/cut": _cut,
    "monitor_log_unread/damaged": _damaged,
}
