"""What the course of a monitored run shows, as sentences."""

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Final

from perfkit.schema.common import Finding
from perfkit.schema.per_run.monitor import (
    LateRank,
    MonitorSummary,
    PeriodicStall,
    SlowStep,
    StepPart,
    StepTimeChange,
)
from perfkit.util.formatting import duration, percent_change, ranges

PART_WORDS: Final[dict[StepPart, str]] = {
    "data_loading": "waiting for data",
    "forward": "forward passes",
    "backward": "backward passes",
    "optimizer": "the optimizer",
    "pause": "checkpoints, evaluation or logging",
    "collectives": "collectives",
}
_MOST_NAMED: Final = 4
_MOST_ENDS: Final = 16
EARLY_END: Final = "monitor_log_ends_early"


def monitor_findings(summary: MonitorSummary) -> Iterator[Finding]:
    """Yield what was found: changes of the step time, stalls, slow steps, late ranks, logs that end early."""
    for change, following in zip_longest(summary.changes, summary.changes[1:]):
        rank = change.ranks[0] if change.rank_count == 1 else None
        message = _change_sentence(change, following)
        yield Finding(code="step_time_changed", severity="warning", message=message, rank=rank)
    for stall in summary.stalls:
        yield Finding(code="periodic_stalls", severity="warning", message=_stall_sentence(stall), rank=stall.rank)
    if summary.slow_steps:
        slow = _slow_sentence(summary.slow_steps, summary.slow_step_count)
        yield Finding(code="slow_steps", severity="warning", message=slow)
    if summary.late_ranks:
        only = summary.late_ranks[0].rank if summary.late_rank_count == 1 else None
        late = _late_sentence(summary.late_ranks, summary.late_rank_count)
        yield Finding(code="rank_late_over_run", severity="warning", message=late, rank=only)
    if summary.early_ends:
        only = summary.early_ends[0].rank if summary.early_end_count == 1 else None
        yield Finding(code="monitor_log_ends_early", severity="warning", message=_end_sentence(summary), rank=only)


def _change_sentence(change: StepTimeChange, following: StepTimeChange | None) -> str:
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


def _stall_sentence(stall: PeriodicStall) -> str:
    times = f"{stall.count} times" if stall.count == stall.expected else f"{stall.count} of {stall.expected} times"
    rank = "" if stall.rank is None else f" on rank {stall.rank}"
    where = "" if stall.part is None else f", in {PART_WORDS[stall.part]}"
    return (
        f"every {_ordinal(stall.period)} step takes {duration(stall.extra_ns)} longer{rank}, from step "
        f"{stall.first_step:,} to step {stall.last_step:,} ({times}{where})"
    )


def _slow_sentence(steps: Sequence[SlowStep], count: int) -> str:
    longest = sorted(steps, key=lambda step: -step.wall_ns)[:_MOST_NAMED]
    named = ", ".join(_slow_step(step) for step in sorted(longest, key=lambda step: step.first_step))
    if count == 1:
        return f"one step took more than twice as long as usual: {named}"
    which = "" if count <= _MOST_NAMED else ", the longest of them"
    return f"{count:,} times a step took more than twice as long as usual{which}: {named}"


def _slow_step(step: SlowStep) -> str:
    last = f"-{step.last_step:,}" if step.last_step > step.first_step else ""
    rank = "" if step.rank is None else f" on rank {step.rank}"
    part = "" if step.part is None else f" in {PART_WORDS[step.part]}"
    times = f"{step.wall_ns / step.usual_ns:.1f}x" if step.usual_ns else duration(step.wall_ns)
    return f"step {step.first_step:,}{last} ({times}{rank}{part})"


def _late_sentence(late: Sequence[LateRank], count: int) -> str:
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


def _end_sentence(summary: MonitorSummary) -> str:
    first = summary.early_ends[0]
    if summary.early_end_count == 1:
        return f"rank {first.rank}'s log ends at step {first.last_step:,} of {summary.last_step:,}"
    ranks = sorted(one.rank for one in summary.early_ends[:_MOST_ENDS])
    return (
        f"the logs of {_names(ranks, summary.early_end_count)} end before step {summary.last_step:,}, the first, of "
        f"rank {first.rank}, at step {first.last_step:,}"
    )


def _names(ranks: Sequence[int], count: int) -> str:
    if count == 1:
        return f"rank {ranks[0]}"
    return f"ranks {ranges(ranks)}" + (f" and {count - len(ranks)} more" if count > len(ranks) else "")


def _where(part: StepPart | None) -> str:
    return "" if part is None else f" (in {PART_WORDS[part]})"


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{ending}"
