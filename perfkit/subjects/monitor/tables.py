"""The tables of a monitored run: what its steps were like, and what happened when."""

from collections.abc import Iterator
from itertools import zip_longest
from operator import itemgetter
from typing import Final, NamedTuple

from perfkit.base.formatting import (
    MISSING,
    difference,
    duration,
    escape_unprintable,
    format_percent,
    percent_change,
    ranges,
    size,
)
from perfkit.records.findings import MONITOR_CODES
from perfkit.records.per_run.monitor import MonitorSummary, StepPart
from perfkit.records.run import RunReport
from perfkit.tables.labels import counted
from perfkit.tables.specification import Table, make_table, number, words

_INCOMPLETE_CODES: Final = ("monitor_log_ends_early", "monitor_log_unread")
"""Findings that limit an answer that nothing happened."""
_MOST_TOLD: Final = 3
"""In the answer; the table has all."""
_OFTEN: Final = 0.05
"""Share of steps beyond which longer ones are told although neither their period nor single ones were found."""
_PARTS: Final[dict[StepPart, str]] = {
    "data_loading": "data",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
    "pause": "checkpoint, evaluation or logging",
    "collectives": "collectives",
}


def whole_run(run: RunReport) -> str:
    """Return what the monitor saw, in a sentence; that nothing happened, if it could have seen it."""
    if run.monitor is None:
        return ""
    reported = [one.message for code in MONITOR_CODES for one in run.findings if one.code == code]
    more = f"; and {len(reported) - _MOST_TOLD} more" if len(reported) > _MOST_TOLD else ""
    if reported:
        return "; ".join(map(escape_unprintable, reported[:_MOST_TOLD])) + more
    unread = [one.message for one in run.findings if one.code in _INCOMPLETE_CODES]
    return "; ".join(filter(None, [_quiet(run.monitor), *map(escape_unprintable, unread)]))


def _quiet(summary: MonitorSummary) -> str:
    if summary.changes or summary.stalls or summary.slow_steps or summary.late_ranks or not summary.compared:
        return ""
    ranks = "; no rank is late beyond chance" if summary.lateness_known else ""
    ranks += " in the steps that it has logged" if ranks and summary.early_ends else ""
    return f"over {_compared(summary):,} steps the step time does not change for good{_no_stalls(summary)}{ranks}"


def _no_stalls(summary: MonitorSummary) -> str:
    """Return that no step stalls, as far as steps are known one by one; or that many are long."""
    uneven = uneven_sentence(summary)
    if uneven or not summary.single_steps:
        return f"; {uneven}" if uneven else ""
    if summary.single_steps == _compared(summary):
        return ", and none stalls"
    return f", and none of the {summary.single_steps:,} that were not rolled up stalls"


def uneven_sentence(summary: MonitorSummary) -> str:
    """Return how frequent steps are that take more than 1.5 times the usual one; empty if at most one in 20 is."""
    if summary.long_step_times is None or summary.long_step_count <= _OFTEN * summary.single_steps:
        return ""
    share = format_percent(summary.long_step_count / summary.single_steps)
    which = f"{summary.single_steps:,} steps that were not rolled up" if summary.rolled_up_steps else "steps"
    return f"{share} of the {which} take more than 1.5x the usual time ({summary.long_step_times:.1f}x in the median)"


def _compared(summary: MonitorSummary) -> int:
    return summary.steps - summary.left_out_steps - summary.warmup_steps


def tables(run: RunReport, top: int) -> Iterator[Table | None]:
    """Yield figures about the whole run, and what happened in it; none without logs of the monitor."""
    if run.monitor is not None:
        yield _overview(run.monitor)
        yield events(run, top)


def _overview(seen: MonitorSummary) -> Table | None:
    facts = [(label, value) for label, value in _facts(seen) if value != MISSING]
    columns = (words("", itemgetter(0)), words("value", itemgetter(1)))
    return make_table("Whole run, by the monitor", facts, columns, _uncompared(seen))


def _uncompared(seen: MonitorSummary) -> str:
    """Return why the ranks were not compared; empty if they were, or there is but one."""
    if seen.lateness_known or seen.ranks == 1:
        return ""
    return f"ranks not compared: {'time in collectives is unknown' if seen.compared else 'too few steps'}"


def _facts(seen: MonitorSummary) -> Iterator[tuple[str, str]]:
    ranks = f"{seen.ranks:,}" + (f" of {seen.world_size:,}" if seen.ranks < seen.world_size else "")
    yield "ranks", ranks
    left_out = [
        f"{count:,} {what}"
        for count, what in (
            (seen.warmup_steps, "warm-up"),
            (seen.left_out_steps, "cold or under the profiler"),
            (seen.rolled_up_steps, "rolled up"),
        )
        if count
    ]
    which = f" ({', '.join(left_out)})" if left_out else ""
    yield "steps", f"{seen.steps:,}, from {seen.first_step:,} to {seen.last_step:,}{which}"
    yield "duration", duration(seen.span_ns)
    yield "step, mean", duration(seen.step_ns) if seen.step_ns else MISSING
    yield "waiting for data", format_percent(seen.data_share)
    yield "waiting for collectives", format_percent(seen.collective_share)
    yield "checkpoints, evaluation, logging", duration(seen.pause_ns) if seen.pause_ns else MISSING
    yield "peak memory, device", size(seen.peak_allocated_bytes)
    yield "peak memory, process", size(seen.peak_rss_bytes)
    if seen.first_loss is not None and seen.last_loss is not None:
        yield "loss", f"{seen.first_loss:.4g} to {seen.last_loss:.4g}"


def events(run: RunReport, top: int) -> Table | None:
    """Return changes, stalls, slow steps and late ranks by step; None without any. `top` limits each but changes."""
    seen = run.monitor
    if seen is None:
        return None
    rows = sorted([*_changes(seen), *_stalls(seen), *_slow(seen, top), *_late(seen, top)], key=lambda row: row.step)
    left = max(0, seen.slow_step_count - top) + max(0, seen.late_rank_count - top)
    remark = f"{left:,} more slow steps or late ranks" if left else ""
    return make_table("What happened over the whole run", rows, _EVENT, remark)


class _Event(NamedTuple):
    """What happened, from a step on."""

    step: int
    what: str
    longer: str
    ranks: str
    part: str


_EVENT: Final = (
    number("from step", lambda row: row.step, counted),
    words("what", lambda row: row.what),
    number("longer by", lambda row: row.longer),
    number("rank", lambda row: row.ranks),
    words("in", lambda row: row.part),
)


def _changes(seen: MonitorSummary) -> Iterator[_Event]:
    for change, following in zip_longest(seen.changes, seen.changes[1:]):
        percent = percent_change(change.after_ns / change.before_ns) if change.before_ns else MISSING
        how = "for good" if following is None else f"to step {max(change.step, following.step - 1):,}"
        if change.until_step is not None:
            how = f"gradually to step {change.until_step:,}"
        ranks = ranges(change.ranks) or ("" if change.rank_count == 0 else MISSING)
        verb = "slower" if change.after_ns > change.before_ns else "faster"
        moved = f"{difference(change.after_ns - change.before_ns)} ({percent})"
        yield _Event(change.step, f"{verb} {how}", moved, ranks, _part(change.part))


def _stalls(seen: MonitorSummary) -> Iterator[_Event]:
    for stall in seen.stalls:
        times = f"{stall.count} times" if stall.count == stall.expected else f"{stall.count} of {stall.expected} times"
        what = f"every {stall.period:,} steps, {times}"
        yield _Event(stall.first_step, what, difference(stall.extra_ns), _rank(stall.rank), _part(stall.part))


def _slow(seen: MonitorSummary, top: int) -> Iterator[_Event]:
    for step in sorted(seen.slow_steps, key=lambda one: -one.wall_ns)[:top]:
        what = "slow step" if step.last_step == step.first_step else f"slow steps to {step.last_step:,}"
        longer = difference(step.wall_ns - step.usual_ns)
        yield _Event(step.first_step, what, longer, _rank(step.rank), _part(step.part))


def _late(seen: MonitorSummary, top: int) -> Iterator[_Event]:
    for late in seen.late_ranks[:top]:
        until = f" until step {late.last_step:,}" if late.last_step is not None else ""
        what = f"late in {late.late_steps:,} of {late.steps:,} steps{until}"
        first = late.first_step if late.first_step is not None else seen.first_step
        yield _Event(first, what, difference(late.lag_ns), _rank(late.rank), _part(late.part))


def _rank(rank: int | None) -> str:
    return "" if rank is None else str(rank)


def _part(part: StepPart | None) -> str:
    return "" if part is None else _PARTS[part]
