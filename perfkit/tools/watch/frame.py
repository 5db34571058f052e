"""Draws what is to be shown of runs, for a terminal of any size."""

import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np
from rich.console import Group
from rich.text import Text

from perfkit.base.formatting import MISSING, clock, duration, escape_unprintable, ranges, rate, size, whole_percent
from perfkit.base.statistics.bootstrap import Floats
from perfkit.tools.watch.view import RECENT, RankNow, RunView

BLOCKS: Final = "▁▂▃▄▅▆▇█"
_PARTS: Final = {
    "forward": ("█", "green", "forward"),
    "backward": ("▇", "bright_green", "backward"),
    "optimizer": ("▆", "magenta", "optimizer"),
    "collectives": ("▓", "cyan", "collectives"),
    "data_loading": ("▒", "blue", "data"),
    "pause": ("▚", "red", "pauses"),
    "other": ("░", "yellow", "other"),
}
_LAGS: Final = ((0.03, "·", "green"), (0.1, "▂", "yellow"), (0.3, "▅", "dark_orange"), (math.inf, "█", "red"))
"""A rank's lag as a share of the step: the first limit that it is below decides."""
_BEHIND: Final = ("x", "bold red")
_UNKNOWN: Final = ("?", "dim")
_CAP: Final = 2.0
"""A step that takes longer than so many median ones is drawn as if it took so many: others would be flat."""
_MOST_STRIP_LINES: Final = 2
_MOST_EVENTS: Final = 4
_MOST_FAILURE_LINES: Final = 4

SORTS: Final[dict[str, Callable[[RankNow], float]]] = {
    "late": lambda rank: -rank.lag_ns if rank.lag_ns == rank.lag_ns else -rank.step_ns,
    "data": lambda rank: -rank.data_ns,
    "memory": lambda rank: -max(rank.rss_bytes, rank.allocated_bytes),
    "step": lambda rank: rank.step,
    "rank": lambda rank: rank.rank,
}
"""Orders of the table of ranks, by name."""
KEYS: Final = "q quit   p pause   s sort"
TRACE_KEY: Final = "   c take a trace"


def draw(
    views: Sequence[RunView], width: int, height: int, sort: str, *, paused: bool, keys: bool, trace: str = ""
) -> Group:
    """Return a frame of at most `height` lines of `width` columns; `trace` is the status of a requested trace."""
    footer = [Text(escape_unprintable(trace), "bold")] if trace else []
    footer += [_footer(sort, paused=paused, trace=len(views) == 1)] if keys else []
    room = max(1, (height - len(footer)) // max(1, len(views)))
    lines = [line for view in views for line in _run(view, width, room, sort)]
    for line in [*lines, *footer]:
        line.truncate(width)
    return Group(*lines[: max(1, height - len(footer))], *footer)


def _footer(sort: str, *, paused: bool, trace: bool) -> Text:
    line = Text(f"{KEYS}{TRACE_KEY if trace else ''}   sorted by: {sort}", "dim")
    return line.append("   PAUSED", "bold yellow") if paused else line


def _run(view: RunView, width: int, room: int, sort: str) -> list[Text]:
    """Return the lines about a run, at most `room`: the table of ranks gets what is left."""
    lines = [_title(view, width), *_messages(view, width)]
    if not view.ranks:
        return lines[:room]
    lines += [_step(view, width), *_parts(view, width), *_facts(view), *_strip(view, width)]
    events = list(_events(view, width, max(1, min(_MOST_EVENTS, (room - len(lines) - 4) // 2))))
    space = room - len(lines) - len(events) - 2
    table = list(_table(view, sort, space)) if space > 0 else []
    return [*lines, *table, *events, Text()][:room]


def _title(view: RunView, width: int) -> Text:
    line = Text.assemble((escape_unprintable(view.name), "bold"), "  ")
    line.append(escape_unprintable(view.state), "bold red" if view.is_fault else "green")
    if view.ranks:
        seen = len(view.ranks)
        of = f" of {view.world_size:,}" if view.world_size > seen else ""
        line.append(f"  {seen:,}{of} rank{'s' if view.world_size != 1 else ''}")
        total = f" of {view.total_steps:,}" if view.total_steps is not None else ""
        line.append(f"  step {(view.step or 0):,}{total}")
        remaining = view.remaining_ns
        if remaining and view.is_training:
            line.append(f"  {clock(remaining / 1e9)} left")
    line.append(" " + "─" * max(0, width - line.cell_len - 1), "dim")
    return line


def _messages(view: RunView, width: int) -> Iterator[Text]:
    """Yield why a run failed, who kept the others waiting last, and what follows."""
    failure = escape_unprintable(view.failure)
    for line in textwrap.wrap(failure, width, max_lines=_MOST_FAILURE_LINES, placeholder=" …"):
        yield Text(line, "red")
    for note in view.notes:
        for line in textwrap.wrap(escape_unprintable(note), width, break_on_hyphens=False):
            yield Text(line, "bold")


def _step(view: RunView, width: int) -> Text:
    rates = f", {rate(view.samples_per_s, 'samples')}" if view.samples_per_s is not None else ""
    line = Text.assemble("step ", (_time(view.step_ns), "bold"), rates, "  ")
    shown = view.history_ns
    if len(shown):
        low, high = duration(float(shown.min())), duration(float(shown.max()))
        label = f" {low} to {high} in {len(shown):,} steps"
        line.append_text(sparkline(shown, min(max(10, width - line.cell_len - len(label)), len(shown))))
        line.append(label, "dim")
    return line


def sparkline(values: Floats, width: int) -> Text:
    """Return `width` bars, each the largest of equally many values, from the smallest value up."""
    edges = np.linspace(0, len(values), width + 1).astype(np.int64)
    highest = np.maximum.reduceat(values, edges[:-1])
    low, cap = float(values.min()), _CAP * float(np.median(values))
    top = max(min(float(values.max()), cap), low * 1.2)  # what varies little looks flat
    level = np.clip((highest - low) / (top - low or 1) * (len(BLOCKS) - 1), 0, len(BLOCKS) - 1).astype(np.int64)
    line = Text()
    for place, value in zip(level, highest, strict=True):
        line.append(BLOCKS[place], "red" if value > cap else "cyan")
    return line


def _parts(view: RunView, width: int) -> Iterator[Text]:
    if not view.parts:
        return
    shown = [(name, view.parts[name]) for name in _PARTS if view.parts.get(name, 0) >= 0.005]
    bar, legend, drawn, total = Text(), [Text()], 0, 0.0
    for name, share in shown:
        fill, style, label = _PARTS[name]
        total += share
        end = min(width, round(width * total))
        bar.append(fill * (end - drawn), style)
        drawn = max(drawn, end)
        entry = Text(fill, style).append(f" {label} {whole_percent(share)}", "default")
        if legend[-1] and legend[-1].cell_len + 2 + entry.cell_len > width:
            legend.append(Text())
        legend[-1].append("  " if legend[-1] else "").append_text(entry)
    yield bar
    yield from legend


def _facts(view: RunView) -> Iterator[Text]:
    facts = []
    if view.loss is not None:
        facts.append(f"loss {view.loss:.4g}")
    for label, value in (("device memory", view.allocated_bytes), ("process memory", view.rss_bytes)):
        if value == value:
            facts.append(f"{label} {size(value)}")
    for label, value in (("host", view.host_busy), ("device", view.device_busy)):
        if value == value:
            facts.append(f"{label} {whole_percent(value)} busy")
    if facts:
        yield Text("  ".join(facts))


def _strip(view: RunView, width: int) -> Iterator[Text]:
    """Yield one character per rank, or per group of ranks in order: the latest of a group shows."""
    if len(view.ranks) < 2:
        return
    label = "ranks "
    room = width - len(label)
    per_cell = -(-len(view.ranks) // (room * _MOST_STRIP_LINES))
    groups = [view.ranks[at : at + per_cell] for at in range(0, len(view.ranks), per_cell)]
    for start in range(0, len(groups), room):
        line = Text(label if start == 0 else " " * len(label), "dim")
        for group in groups[start : start + room]:
            line.append(*_cell(group, view.step_ns))
        yield line
    each = f"a mark is {per_cell} ranks" if per_cell > 1 else "a mark is a rank"
    what = "late by · under 3 %  ▂ 10 %  ▅ 30 %  █ more" if view.lag_known else "? lateness unknown"
    yield Text(f"      {each}; {what}  x silent", "dim")


def _cell(group: Sequence[RankNow], step_ns: float) -> tuple[str, str]:
    if any(rank.behind for rank in group):
        return _BEHIND
    lags = [rank.lag_ns for rank in group if rank.lag_ns == rank.lag_ns]
    if not lags or not step_ns > 0:
        return _UNKNOWN
    share = max(lags) / step_ns
    return next((mark, style) for limit, mark, style in _LAGS if share < limit)


def _table(view: RunView, sort: str, space: int) -> Iterator[Text]:
    """Yield a header and the first ranks in an order, at most `space` lines."""
    if space < 2:
        return
    known = sorted(view.ranks, key=lambda rank: (not rank.behind, _last_if_unknown(SORTS[sort](rank)), rank.rank))
    titles = ("step", 9), ("step time", 10), ("late by", 10), ("data", 10), ("collectives", 12), ("memory", 9)
    yield Text(f"{'rank':>6} " + " ".join(f"{title:>{width}}" for title, width in titles), "dim")
    for rank in known[: space - 1]:
        memory = rank.allocated_bytes if rank.allocated_bytes == rank.allocated_bytes else rank.rss_bytes
        lag = rank.lag_ns if rank.lag_ns != rank.lag_ns or rank.lag_ns > 0 else 0
        late = rank.behind or (view.step_ns > 0 and rank.lag_ns >= 0.03 * view.step_ns)
        yield Text(
            f"{rank.rank:>6} {rank.step:>9,} {_time(rank.step_ns):>10} {_time(lag):>10} {_time(rank.data_ns):>10} "
            f"{_time(rank.collective_ns):>12} {size(memory) if memory == memory else MISSING:>9}",
            "red" if late else "",
        )


def _last_if_unknown(key: float) -> float:
    return key if key == key else math.inf


def _time(ns: float) -> str:
    return duration(ns) if ns == ns else MISSING


def _events(view: RunView, width: int, most: int) -> Iterator[Text]:
    """Yield what happened, each on a line, and which ranks are silent."""
    silent = [rank.rank for rank in view.ranks if rank.behind]
    shown = [f"silent for {RECENT} steps or more: rank{'s' if len(silent) > 1 else ''} {ranges(silent)}"] * bool(silent)
    shown += view.events
    for text in shown[:most]:
        wrapped = textwrap.wrap(escape_unprintable(text), width - 2)
        yield Text("! ", "bold yellow").append(wrapped[0], "default")
        if len(wrapped) > 1:
            more = Text("  ").append(" ".join(wrapped[1:]))
            more.truncate(width, overflow="ellipsis")
            yield more
    if not shown and view.single_steps >= RECENT and len(view.history_ns):
        yield Text(f"  nothing unusual in the last {view.single_steps:,} steps", "dim")
