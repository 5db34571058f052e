"""What tables and charts call categories, ranks, steps, dimensions and rates, and the colours of categories."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from perfkit.base.formatting import MISSING, escape_unprintable, figures, ranges, size
from perfkit.base.step_numbers import numbered
from perfkit.records.common import CATEGORIES, Category
from perfkit.records.cross_rank import MatchedCollectiveStat
from perfkit.records.per_run.pipeline import HeavyStage
from perfkit.records.rank import CollectiveStat, RankReport
from perfkit.tables.specification import BAR, Field, words

SHORT: Final[dict[Category, str]] = {
    "compute": "compute",
    "communication": "comm",
    "memcpy": "memcpy",
    "data_loading": "data",
    "overhead": "idle",
}
LONG: Final[dict[Category, str]] = dict(zip(CATEGORIES, CATEGORIES, strict=True)) | {
    "data_loading": "data loading",
    "overhead": "idle",
}
BLUE, VERMILION, PINK, ORANGE, SKY, GREEN, GREY = (
    *("#0072b2", "#d55e00", "#cc79a7", "#e69f00", "#56b4e9", "#009e73"),
    "#8c8c8c",
)
"""Okabe and Ito's colours, distinguishable by the colour-blind."""
COLOURS: Final = dict(zip(CATEGORIES, (BLUE, VERMILION, PINK, ORANGE, GREY), strict=True)) | {
    "transfer": "#f0a070",
    "wait": VERMILION,
    "host": SKY,
    "operator": "#b9cfe4",
    "synchronisation": "#f0e442",
    "launch_bound": "#994f00",
    "host_work": "#444444",
    "dependency": "#5d3a9b",
    "not_running": "#117733",
    "allocation": "#882255",
    "compilation": "#44aa99",
    "profiler": "#a0a0a0",
    "other_device": "#c9a66b",
    "unknown": "#dddddd",
    "late_ranks": "#8b1a1a",
    "slow_network": "#c0392b",
    "bubble": "#b39ddb",
    "other": "#c8c8c8",
    "unrecorded": "#e8e2d0",
}
"""What each colour means, on all pages: categories, parts of communication, what the host does, causes of idle time,
and what else a ledger has."""
HUES: Final = (GREEN, "#7c5cc4", "#8a8500", "#c2187a", "#1f8fa0", "#647180")
"""Of series such as ranks, the last of what they are compared with: none has a meaning in `COLOURS`, and each has a
contrast of 3 with the page, light or dark (WCAG 2.2, 1.4.11)."""
PATTERNS: Final = {"communication": "/", "data_loading": ".", "memcpy": "x", "wait": "/"}
"""Hatching of categories on pages."""
FILLS: Final = {
    "compute": BAR,
    "communication": "▓",
    "memcpy": "▚",
    "data_loading": "▒",
    "overhead": "░",
    "late_ranks": "▞",
    "slow_network": "▙",
    "bubble": "▛",
    "other": "·",
}
"""Character of each category, and of what else a ledger has, in bars, which are read without colours too."""
INDENT: Final = "\u2003"
"""Before the name of what is part of the row above."""
MAX_RANKS: Final = 16
"""Rows of a table of ranks: of more ranks only the extremes or the first are shown."""
LOW: Final = 0.8
"""An efficiency below it is highlighted (metrics.md section 6)."""
UNKNOWN: Final = "unknown"


def step_label(step: int | None) -> str:
    """Return a step's number; a trace without steps counts as one step."""
    return "all" if step is None else numbered(step)


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


def dimension_name(dimension: str | None) -> str:
    """Return the name of a dimension of parallelism; `unknown` if it is None."""
    return UNKNOWN if dimension is None else escape_unprintable(dimension)


def dimension_column(rows: Iterable[CollectiveStat | MatchedCollectiveStat]) -> list[Field]:
    """Return the column that names the dimension of collectives; none if they all have the same."""
    several = len({row.dimension for row in rows}) > 1
    return [words("dim", lambda row: dimension_name(row.dimension))] if several else []


def counted(number: int) -> str:
    """Return a count with separators of thousands."""
    return f"{number:,}"


def per_step(count: int, steps: int) -> str:
    """Return how often something happens per step, or in how many steps if not in each."""
    return f"{count} in {steps}" if count < steps else figures(count / steps)


def byte_rate(bytes_per_s: float | None) -> str:
    """Return bytes per second with their unit."""
    return MISSING if bytes_per_s is None else f"{size(bytes_per_s)}/s"


def heavy_names(heavy: HeavyStage) -> str:
    """Return which stages are heavy: `stages 1, 3`."""
    return f"stage{'s' if heavy.also else ''} {ranges(one.stage for one in heavy.all)}"


def heavy_clause(heavy: HeavyStage) -> str:
    """Return how many times as long stages take: `stages 1, 3 take 1.3 to 1.5 times as long`."""
    times = [figures(1 + bound(one.excess for one in heavy.all)) for bound in (min, max)]
    takes = "take" if heavy.also else "takes"
    return f"{heavy_names(heavy)} {takes} {' to '.join(dict.fromkeys(times))} times as long"


INFERRED: Final[Mapping[str, str]] = {"loader": "the DataLoader", "forward": "the inputs of the model"}
"""What the samples of a script's step are inferred from."""
