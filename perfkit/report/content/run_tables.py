"""The tables of one run."""

from collections import Counter
from collections.abc import Sequence
from statistics import median

from perfkit.report.content import aggregates as sums
from perfkit.report.content.document import BAR, CategoryBar, Cell, Column, Instance, Table
from perfkit.report.content.instances import collective_instances, collective_key, operator_instances
from perfkit.report.content.kernel_names import collective_name
from perfkit.report.content.parallelism.dimensions import dimension_cell, dimension_column
from perfkit.schema.common import CATEGORIES, UNNAMED, Category
from perfkit.schema.manifest import FileBandwidth
from perfkit.schema.rank import MemoryUse, RankReport, StepBreakdown
from perfkit.schema.run import RunReport
from perfkit.util.formatting import (
    MISSING,
    difference,
    duration,
    escape_unprintable,
    format_percent,
    format_percents,
    rate,
    size,
)

BAR_CELLS = 20
MAX_RANKS = 16
"""Of more ranks than this only the extremes are shown."""

SHORT: dict[Category, str] = {
    "compute": "compute",
    "communication": "comm",
    "memcpy": "memcpy",
    "data_loading": "data",
    "overhead": "idle",
}
LONG: dict[Category, str] = dict(zip(CATEGORIES, CATEGORIES, strict=True)) | {
    "data_loading": "data loading",
    "overhead": "idle",
}


def step_label(step: int | None) -> str:
    """Return a step's number; a trace without steps counts as one step."""
    return "all" if step is None else str(step)


def rank_label(rank: int | None) -> str:
    """Return a rank's number, or a dash if it is unknown."""
    return MISSING if rank is None else str(rank)


def rank_labels(ranks: Sequence[RankReport]) -> list[str]:
    """Return a label for each of several ranks; where several would have the same, with the name of the first trace."""
    labels = [rank_label(rank.rank) for rank in ranks]
    counts = Counter(labels)
    return [
        f"{label} {escape_unprintable(rank.traces[0])}" if counts[label] > 1 and rank.traces else label
        for label, rank in zip(labels, ranks, strict=True)
    ]


def _bar(fraction: float) -> str:
    return BAR * round(BAR_CELLS * fraction) or ("▏" if fraction > 0 else "")


def breakdown(run: RunReport) -> Table | None:
    """Return the mean step's time by category; None without steps."""
    steps = sums.steps_of(run)
    if not steps:
        return None
    exposed, total = sums.exposed_sums(steps), sums.total_sums(steps)
    wall = sum(exposed)
    rows: list[tuple[Cell, ...]] = []
    for i, category in enumerate(CATEGORIES):
        active = total[i] if i < len(total) else None
        if active == 0:
            continue
        share = exposed[i] / wall if wall else 0
        rows.append(
            (
                Cell(LONG[category]),
                Cell(duration(exposed[i] / len(steps))),
                Cell(format_percents(exposed)[i]),
                Cell(duration(None if active is None else active / len(steps))),
                Cell(format_percent(None if active is None else sums.overlapped(active, exposed[i]))),
                Cell(_bar(share), bar=CategoryBar(category, share)),
            )
        )
    mean_wall = Cell(duration(wall / len(steps)), tone="strong")
    rows.append((Cell("profiled step", tone="strong"), mean_wall, Cell("100.0 %"), *[Cell("")] * 3))
    return Table(
        f"Where the step's time goes ({_mean_of(run)})",
        (
            Column("category", "words"),
            Column("exposed"),
            Column("share"),
            Column("active"),
            Column("overlapped"),
            Column("", "words"),
        ),
        rows,
    )


def _mean_of(run: RunReport) -> str:
    counts = [len(rank.steps) for rank in run.ranks if rank.steps]
    if sum(counts) == 1:
        return "one step of one rank"
    if len(set(counts)) > 1:
        return f"mean over {sum(counts)} steps of {len(counts)} ranks together"
    steps = "one step" if counts[0] == 1 else f"{counts[0]} steps"
    return f"mean over {steps}" + (f" of each of {len(counts)} ranks" if len(counts) > 1 else "")


def ranks(run: RunReport) -> Table | None:
    """Return one row per rank: mean and median step, exposed time and share by category, overlapped communication."""
    with_steps = [r for r in run.ranks if r.steps]
    if not with_steps:
        return None
    shown = with_steps if len(with_steps) <= MAX_RANKS else _extremes(with_steps)
    left = len(with_steps) - len(shown)
    taken = [
        category for category in CATEGORIES if any(getattr(s.exposed_ns, category) for r in shown for s in r.steps)
    ]
    communicates = any(s.total_ns.communication for r in shown for s in r.steps)
    remark = "overlap: share of communication that runs under computation" if communicates else ""
    return Table(
        "Ranks (mean and median profiled step; mean exposed time per step and its share)",
        (
            Column("rank"),
            Column("steps"),
            Column("step"),
            *(Column(SHORT[c]) for c in taken),
            *([Column("overlap")] if communicates else []),
        ),
        [_rank_row(r, taken, communicates=communicates) for r in shown],
        _LEFT_OUT_RANKS.format(left) if left else remark,
    )


_LEFT_OUT_RANKS = "{} more ranks; shown: minimum and maximum of each column, and the median step"


def _rank_row(rank: RankReport, taken: Sequence[Category], *, communicates: bool) -> tuple[Cell, ...]:
    """Return the row of a rank with the categories that any rank has."""
    exposed = sums.exposed_sums(rank.steps)
    communication = sums.total_sums(rank.steps)[1]
    return (
        Cell(rank_label(rank.rank)),
        Cell(str(len(rank.steps))),
        Cell(
            duration(sum(exposed) / len(rank.steps)),
            f"med {duration(sums.median_wall(rank.steps))}" if len(rank.steps) > 1 else "",
        ),
        *(
            Cell(duration(ns / len(rank.steps)), part if ns else "")
            for category, ns, part in zip(CATEGORIES, exposed, format_percents(exposed), strict=True)
            if category in taken
        ),
        *([Cell(format_percent(sums.overlapped(communication, exposed[1])))] if communicates else []),
    )


def _extremes(ranks: Sequence[RankReport]) -> list[RankReport]:
    """Return the ranks with the least, median and most of the wall time and of each category."""
    chosen: set[int] = set()
    for column in zip(*(_means(rank) for rank in ranks), strict=True):
        order = sorted(range(len(ranks)), key=column.__getitem__)
        chosen |= {order[0], order[-1]}
    walls = [_means(rank)[0] for rank in ranks]
    chosen.add(sorted(range(len(ranks)), key=walls.__getitem__)[len(ranks) // 2])
    return [ranks[i] for i in sorted(chosen)]


def _means(rank: RankReport) -> list[float]:
    """Return the mean wall time and exposed times of a rank's steps (ns)."""
    exposed = sums.exposed_sums(rank.steps)
    return [ns / len(rank.steps) for ns in (sum(exposed), *exposed)]


def slowest_steps(run: RunReport, top: int) -> Table | None:
    """Return the longest steps, each on its slowest rank; None if none is longer than that rank's median."""
    longest: dict[int | None, tuple[RankReport, StepBreakdown, float]] = {}
    for rank in run.ranks:
        usual_ns = sums.median_wall(rank.steps) or 0
        for step in rank.steps:
            if step.step not in longest or step.wall_ns > longest[step.step][1].wall_ns:
                longest[step.step] = (rank, step, usual_ns)
    slow = [(rank, step) for rank, step, usual in longest.values() if step.wall_ns > usual]
    if not slow:
        return None
    ordered = sorted(slow, key=lambda pair: -pair[1].wall_ns)
    left = len(ordered) - top
    return Table(
        "Slowest profiled steps (each on its slowest rank, compared with that rank's median)",
        (
            Column("step"),
            Column("rank"),
            Column("wall"),
            Column("over median"),
            Column("dominant", "words"),
            Column("largest increase", "words"),
        ),
        [_step_row(rank, step) for rank, step in ordered[:top]],
        f"{left} more above the median" if left > 0 else "",
    )


def _step_row(rank: RankReport, step: StepBreakdown) -> tuple[Cell, ...]:
    parts = {c: getattr(step.exposed_ns, c) for c in CATEGORIES}
    grown = {c: parts[c] - median(getattr(s.exposed_ns, c) for s in rank.steps) for c in CATEGORIES}
    dominant, largest = max(parts, key=parts.__getitem__), max(grown, key=grown.__getitem__)
    over = step.wall_ns - median(s.wall_ns for s in rank.steps)
    return (
        Cell(step_label(step.step)),
        Cell(rank_label(rank.rank)),
        Cell(duration(step.wall_ns)),
        Cell(difference(over)),
        Cell(f"{LONG[dominant]} {format_percent(parts[dominant] / step.wall_ns if step.wall_ns else None)}"),
        Cell(f"{LONG[largest]} {difference(grown[largest])}" if over > 0 and grown[largest] > 0 else MISSING),
    )


def data_loading(run: RunReport) -> Table | None:
    """Return the data loads of the run; None if none was recorded."""
    loads = run.data_loading
    if loads is None or loads.count == 0:
        return None
    source = loads.source or run.source
    longest = Instance(LONG["data_loading"], ns=loads.max_ns, rank=loads.max_rank, step=loads.max_step)
    where = f"rank {rank_label(loads.max_rank)}, step {step_label(loads.max_step)}"
    return Table(
        "Data loading",
        (
            Column("source", "words"),
            Column("loads"),
            Column("median"),
            Column("largest"),
            Column("where", "words"),
            Column("% of step"),
            Column("read"),
            *([Column("% of file")] if loads.file_bandwidth else []),
        ),
        [
            (
                Cell(MISSING if source in (None, UNNAMED) else escape_unprintable(source), instance=longest),
                Cell(f"{loads.count:,}"),
                Cell(duration(loads.median_ns)),
                Cell(duration(loads.max_ns)),
                Cell(where),
                Cell(format_percent(loads.exposed_share)),
                Cell(rate(loads.read_bytes_per_s, "B")),
                *([Cell(format_percent(loads.file_share))] if loads.file_bandwidth else []),
            )
        ],
        _file_bandwidth(loads.file_bandwidth) if loads.file_bandwidth else "",
    )


def _file_bandwidth(speed: FileBandwidth) -> str:
    bandwidth = rate(speed.bytes_per_s, "B")
    cached = "" if speed.cached_share is None else f", {format_percent(speed.cached_share)} of that from the page cache"
    return f"% of file: per-rank read rate relative to sequential reads of the file after the run: {bandwidth}{cached}"


def operators(run: RunReport, top: int) -> Table | None:
    """Return kernels and operators by summed time over all ranks."""
    merged = sums.merged_operators(run)
    if not merged:
        return None
    wall = sum(s.wall_ns for s in sums.steps_of(run))
    left, instances = merged[top:], operator_instances(run)
    rest = duration(sum(s.total_ns for s in left))
    return Table(
        _operators_title(run),
        (
            Column("name", "name"),
            Column("kind", "words"),
            Column("count"),
            Column("total"),
            Column("% of wall"),
            Column("mean"),
        ),
        [
            (
                Cell(escape_unprintable(s.name), instance=instances[s.name, s.category]),
                Cell(SHORT[s.category]),
                Cell(f"{s.count:,}"),
                Cell(duration(s.total_ns)),
                Cell(format_percent(s.total_ns / wall if wall else None)),
                Cell(duration(s.total_ns / s.count if s.count else None)),
            )
            for s in merged[:top]
        ],
        f"{len(left):,} more, {rest} in total" if left else "",
    )


def memory(run: RunReport) -> Table | None:
    """Return the peak allocated memory of each rank's devices; None if it was not recorded."""
    uses = [(rank, use) for rank in run.ranks for use in rank.memory]
    if not uses:
        return None
    # The highest peaks are nearest to the limit; the lowest one shows the spread.
    by_peak = sorted(range(len(uses)), key=lambda i: -uses[i][1].peak.allocated_bytes)
    chosen = by_peak if len(uses) <= MAX_RANKS else [*by_peak[: MAX_RANKS - 1], by_peak[-1]]
    left = len(uses) - len(chosen)
    return Table(
        "Memory (peak allocated in a step, and when)",
        (
            Column("rank"),
            Column("device", "words"),
            Column("peak"),
            Column("reserved"),
            Column("step"),
            Column("after"),
            Column("phase", "name"),
            Column("category", "words"),
        ),
        [_memory_row(*uses[i]) for i in sorted(chosen)],
        f"{left} more; shown: the {MAX_RANKS - 1} highest peaks and the lowest" if left else "",
    )


def _memory_row(rank: RankReport, use: MemoryUse) -> tuple[Cell, ...]:
    peak, limit = use.peak, use.limit_bytes
    return (
        Cell(rank_label(rank.rank)),
        Cell(use.device),
        Cell(
            size(peak.allocated_bytes),
            f"{format_percent(peak.allocated_bytes / limit)} of {size(limit)}" if limit else "",
        ),
        Cell(size(peak.reserved_bytes)),
        Cell(step_label(peak.step)),
        Cell(duration(peak.at_ns)),
        Cell(escape_unprintable(use.phase or MISSING)),
        Cell(LONG[use.category]),
    )


def _operators_title(run: RunReport) -> str:
    devices = {r.device for r in run.ranks}
    kinds = {"gpu": "kernels", "cpu": "operators by self time"}
    title = " and ".join(kinds[d] for d in ("gpu", "cpu") if d in devices)
    return f"Top {title}" + (f" (over {len(run.ranks)} ranks)" if len(run.ranks) > 1 else "")


def collectives(run: RunReport, top: int) -> Table | None:
    """Return collectives by operator, group, size and type, summed over all ranks."""
    merged = sums.merged_collectives(run)
    if not merged:
        return None
    left, instances = merged[top:], collective_instances(run)
    rest = duration(sum(s.exposed_ns for s in left))
    dimension = dimension_column(merged)
    return Table(
        "Collectives" + (f" (over {len(run.ranks)} ranks)" if len(run.ranks) > 1 else ""),
        (
            Column("operator", "name"),
            *dimension,
            Column("group", "name"),
            Column("size"),
            Column("type", "name"),
            Column("count"),
            Column("total"),
            Column("exposed"),
            Column("mean"),
        ),
        [
            (
                Cell(collective_name(s), instance=instances[collective_key(s)]),
                *dimension_cell(s, dimension),
                Cell(_group(s.group, s.group_size)),
                Cell(size(s.bytes)),
                Cell(escape_unprintable(s.dtype or MISSING)),
                Cell(f"{s.count:,}"),
                Cell(duration(s.total_ns)),
                Cell(duration(s.exposed_ns)),
                Cell(duration(s.total_ns / s.count if s.count else None)),
            )
            for s in merged[:top]
        ],
        f"{len(left):,} more, {rest} exposed in total" if left else "",
    )


def _group(name: str | None, members: int | None) -> str:
    count = "" if members is None else f"×{members}"
    return " ".join(part for part in (escape_unprintable(name or ""), count) if part) or MISSING
