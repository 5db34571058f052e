"""The summary of a run: where its step's time goes, and its efficiency."""

from typing import Final, NamedTuple

from perfkit.base.formatting import duration, escape_unprintable, format_percent, format_percents
from perfkit.records.common import CATEGORIES, Category
from perfkit.records.run import Efficiency, RunReport
from perfkit.tables import aggregates as sums
from perfkit.tables.labels import INDENT, LONG, LOW
from perfkit.tables.specification import BAR, CategoryBar, Cell, Field, Table, Tone, joined, make_table, number, words

BAR_CELLS = 20
_MOST_COLUMNS: Final = 6
_WAITS_UNRELIABLE: Final = frozenset({"groups_incomplete", "suspect_matches", "ranks_missing", "timelines_disagree"})
"""Findings after which wait and transfer cannot be separated."""
_ROWS: Final = {
    "parallel": "parallel efficiency",
    "load_balance": f"{INDENT}load balance",
    "host": f"{INDENT}host / launch",
    "input": f"{INDENT}input",
    "serialisation": f"{INDENT}dependency (serialisation)",
    "transfer": f"{INDENT}transfer",
    "au": "accelerator utilisation",
}


class _Part(NamedTuple):
    """A category's share of the mean step; the last one is the step itself."""

    category: Category | None
    exposed_ns: float
    share: str
    active_ns: float | None = None
    overlapped: float | None = None
    bar: Cell = Cell("")


def breakdown(run: RunReport) -> Table | None:
    """Return the mean step's time by category; None without steps."""
    steps = sums.steps_of(run)
    if not steps:
        return None

    def tone(part: _Part) -> Tone:
        return "plain" if part.category else "strong"

    columns = (
        words("category", lambda part: LONG[part.category] if part.category else "profiled step", tone=tone),
        number("exposed", lambda part: part.exposed_ns, duration, tone=tone),
        number("share", lambda part: part.share),
        number("active", lambda part: part.active_ns if part.category else Cell(""), duration),
        number("overlapped", lambda part: part.overlapped if part.category else Cell(""), format_percent),
        Field("", lambda part: part.bar, "words"),
    )
    exposed, active = sums.exposed_sums(steps), [*sums.total_sums(steps), None]
    whole = sum(exposed)
    percents = format_percents(exposed)
    rows = [
        _Part(
            category,
            exposed[i] / len(steps),
            percents[i],
            None if total is None else total / len(steps),
            None if total is None else sums.overlapped(total, exposed[i]),
            _bar(category, exposed[i] / whole if whole else 0),
        )
        for i, (category, total) in enumerate(zip(CATEGORIES, active, strict=True))
        if total != 0
    ]
    step = _Part(None, whole / len(steps), "100.0 %")
    return make_table(f"Where the step's time goes ({_mean_of(run)})", [*rows, step], columns)


def _bar(category: Category, share: float) -> Cell:
    text = BAR * round(BAR_CELLS * share) or ("▏" if share > 0 else "")
    return Cell(text, bar=CategoryBar(category, share))


def _mean_of(run: RunReport) -> str:
    counts = [len(rank.steps) for rank in run.ranks if rank.steps]
    if sum(counts) == 1:
        return "one step of one rank"
    if len(set(counts)) > 1:
        return f"mean over {sum(counts)} steps of {len(counts)} ranks together"
    steps = "one step" if counts[0] == 1 else f"{counts[0]} steps"
    return f"mean over {steps}" + (f" of each of {len(counts)} ranks" if len(counts) > 1 else "")


def efficiency(runs: list[RunReport]) -> Table | None:
    """Return POP's hierarchy with one column per run; None if no run has one, or too many have."""
    known = [(run, run.efficiency) for run in runs if run.efficiency and run.efficiency.host]
    if not known or len(known) > _MOST_COLUMNS:
        return None
    several = len(runs) > 1
    numbered = [(f"{place}: " if several else "", run, factors) for place, (run, factors) in enumerate(known, 1)]
    unreliable = any(finding.code in _WAITS_UNRELIABLE for run, _ in known for finding in run.findings)
    remark = joined(
        "parallel efficiency is the product of the five below it",
        "; ".join(f"{place}{escape_unprintable(run.run)}" for place, run, _ in numbered) if several else "",
        "; ".join(place + one.reason for place, _, one in numbered if one.parallel is None and one.reason),
        f"{'In some runs, w' if len(known) > 1 else 'W'}ait and transfer cannot be separated (see the findings): "
        "only the product of the dependency and transfer factors is valid"
        if unreliable
        else "",
        by=". ",
    )
    columns = [_factors(str(place) if several else "share", one) for place, (_, one) in enumerate(known, 1)]
    return make_table("Efficiency", list(_ROWS), [Field("factor", _ROWS.get, "words"), *columns], remark)


def _factors(title: str, factors: Efficiency) -> Field:
    return number(title, lambda key: getattr(factors, key), format_percent, low=LOW)
